#ifndef PS_PYTHON_THREAD_STATES_H
#define PS_PYTHON_THREAD_STATES_H

#include "compat.h"

/*
 * The first state of an interpreter's list of threads that is whole. 3.11 puts a new state in front
 * before it fills it, and a thread does so without the GIL. Only the first state can be half-made,
 * because whoever makes one holds a lock. NULL: the first state has no `next` yet, for some
 * instructions.
 */
PyThreadState *ps_first_thread_now(PyInterpreterState *interpreter);
/*
 * The same, but waits for `next`. NULL: in a child that C forked meanwhile, `next` stays empty. A
 * walk from here on, with the GIL, meets each thread whose state was whole when the walk began.
 */
PyThreadState *ps_first_thread(PyInterpreterState *interpreter);

#endif

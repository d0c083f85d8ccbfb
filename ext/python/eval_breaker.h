/*
 * A call that the main thread makes between two instructions.
 *
 * Up to 3.12 Py_AddPendingCall() from another thread only stores the call. Whether something is
 * pending is computed for the thread that adds the call, which may not make such calls. So the main
 * thread does not check before something else makes it (python/cpython#84191; 3.13 has a flag for
 * each thread). Up to 3.12 the flag is set here as well.
 */
#ifndef PS_PYTHON_EVAL_BREAKER_H
#define PS_PYTHON_EVAL_BREAKER_H

#include "compat.h"

/*
 * Any thread, without the GIL. False when the interpreter's list is full. Not from the watcher in a
 * child of os.fork() before CPython has replaced the list's lock: see ps_os_fork_under_way().
 */
bool ps_pending_add(int (*call)(void *), void *argument);
/* With the GIL: finds out whether the flag is where the headers of this build say. */
void ps_pending_check(void);

#endif

/*
 * A call for the main thread to make between two instructions.
 *
 * Up to 3.12 Py_AddPendingCall() from another thread only notes the call: whether something is
 * pending is worked out for the thread that adds it, which may not make such calls, so the main
 * thread does not look before something else makes it (python/cpython#84191; 3.13 has a flag for
 * each thread). There the flag is set here as well.
 */
#ifndef PS_PYTHON_EVAL_BREAKER_H
#define PS_PYTHON_EVAL_BREAKER_H

#include "compat.h"

/* Any thread, without the GIL. False when the interpreter's list is full. */
bool ps_pending_add(int (*call)(void *), void *argument);
/* With the GIL: finds out whether the flag is where the headers that this was built with say. */
void ps_pending_check(void);

#endif

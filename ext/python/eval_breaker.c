#include "eval_breaker.h"

#include "atomic.h"

#if PS_NEEDS_POKE

/* For `ceval` of struct _is, and for _PyEval_AddPendingCall, which takes the interpreter: before 3.12 the public function looks for
   it in the state of whatever thread runs, which may be about to end. */
#define Py_BUILD_CORE 1
#undef _PyGC_FINALIZED
#include <internal/pycore_ceval.h>
#include <internal/pycore_interp.h>

static bool known; /* the flag was seen to be where we think it is */

static int *flag(void)
{
    return (int *)&PyInterpreterState_Main()->ceval.eval_breaker;
}

static int nothing(void *unused)
{
    return 0;
}

static bool add(int (*call)(void *), void *argument)
{
#if PS_PENDING_TAKES_INTERPRETER
    return _PyEval_AddPendingCall(PyInterpreterState_Main(), call, argument) == 0;
#else
    return Py_AddPendingCall(call, argument) == 0;
#endif
}

bool ps_pending_add(int (*call)(void *), void *argument)
{
    if (!add(call, argument)) return false;
    /* Until it is known the call is made when the worker asks for the GIL, which sets the same flag. */
    if (PS_READ(known)) __atomic_store_n(flag(), 1, __ATOMIC_SEQ_CST);
    return true;
}

/* On the main thread the interpreter clears the flag before it makes a call, and adding another sets it. */
void ps_pending_check(void)
{
    if (known || PS_READ(*flag()) != 0 || !add(nothing, NULL)) return;
    PS_WRITE(known, PS_READ(*flag()) == 1);
}

#else

bool ps_pending_add(int (*call)(void *), void *argument)
{
    return Py_AddPendingCall(call, argument) == 0;
}

void ps_pending_check(void) {}

#endif

#include "eval_breaker.h"

#include "atomic.h"

#if PS_NEEDS_POKE

/* For `ceval` of struct _is, and for _PyEval_AddPendingCall, which takes the interpreter: before 3.12 the public function looks for
   it in the state of whatever thread runs, which may be about to end. */
#define Py_BUILD_CORE 1
#undef _PyGC_FINALIZED
#include <internal/pycore_ceval.h>
#include <internal/pycore_interp.h>

static bool known; /* the flag is where we think it is */

static int *flag(void)
{
    return (int *)&PyInterpreterState_Main()->ceval.eval_breaker;
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

/* Its neighbour's value can be had from a public function. */
void ps_pending_check(void)
{
    int value = PS_READ(*flag());
    bool found =
        PyInterpreterState_Main()->ceval.recursion_limit == Py_GetRecursionLimit() && (value == 0 || value == 1);
    PS_WRITE(known, found);
}

#else

#if PS_PENDING_ENDS_LOUDLY
#define Py_BUILD_CORE 1
#include <internal/pycore_pystate.h>

/* From the first step of its end on 3.8 prints an error, on whatever thread asks, instead of taking a call. */
static bool is_ending(void)
{
    return PS_READ(_PyRuntime.ceval.pending.finishing) != 0;
}
#else
static bool is_ending(void)
{
    return false;
}
#endif

bool ps_pending_add(int (*call)(void *), void *argument)
{
    return !is_ending() && Py_AddPendingCall(call, argument) == 0;
}

void ps_pending_check(void) {}

#endif

#include "eval_breaker.h"

#include "base/atomic.h"
#include "thread_states.h"

#if PS_NEEDS_POKE

/*
 * For `ceval` of struct _is, for the thread that has the GIL, and for _PyEval_AddPendingCall(),
 * which takes the interpreter. Before 3.12 the public function reads the interpreter from the state
 * of whatever thread runs, which may be about to end.
 */
#define Py_BUILD_CORE 1
#undef _PyGC_FINALIZED
#include <internal/pycore_ceval.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>

static bool known;           /* the flag is where the headers say */
static PyThreadState *first; /* the state of the main thread */

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

/*
 * Any thread that takes the GIL checks for calls, and only the main thread makes them. So the flag
 * helps the main thread alone, and while it runs. Another thread would check in vain at each step,
 * until a thread requests the GIL from it. Where calls are hooked, 3.11 begins such a step over and
 * over.
 */
static bool main_thread_runs(void)
{
#if PS_PENDING_TAKES_INTERPRETER
    uintptr_t running = _Py_atomic_load_relaxed(&_PyRuntime.gilstate.tstate_current);
#else
    uintptr_t running = _Py_atomic_load_relaxed(&PyInterpreterState_Main()->ceval.gil->last_holder);
#endif
    return running == (uintptr_t)PS_READ(first);
}

bool ps_pending_add(int (*call)(void *), void *argument)
{
    if (!add(call, argument)) return false;
    /*
     * Until the flag is known, the call is made when the worker requests the GIL, which sets the
     * same flag.
     */
    if (PS_READ(known) && main_thread_runs()) __atomic_store_n(flag(), 1, __ATOMIC_SEQ_CST);
    return true;
}

/* The field beside the flag must have the value that a public function returns. */
void ps_pending_check(void)
{
    int value = PS_READ(*flag());
    bool found = PyInterpreterState_Main()->ceval.recursion_limit == Py_GetRecursionLimit() &&
                 (value == 0 || value == 1);
    PyThreadState *thread = ps_first_thread(PyInterpreterState_Main());
    while (thread && thread->thread_id != _PyRuntime.main_thread) thread = PyThreadState_Next(thread);
    PS_WRITE(first, thread);
    PS_WRITE(known, found);
}

#else

bool ps_pending_add(int (*call)(void *), void *argument)
{
    return Py_AddPendingCall(call, argument) == 0;
}

void ps_pending_check(void) {}

#endif

#include "thread_states.h"

#include <sched.h>

#include "base/atomic.h"

#if PS_HAVE_MONITORING

PyThreadState *ps_first_thread_now(PyInterpreterState *interpreter)
{
    return PyInterpreterState_ThreadHead(interpreter);
}

#else

PyThreadState *ps_first_thread_now(PyInterpreterState *interpreter)
{
    PyThreadState *first = PyInterpreterState_ThreadHead(interpreter);
    return PS_READ_ACQUIRE(first->cframe) ? first : PS_READ_ACQUIRE(first->next);
}

#endif

PyThreadState *ps_first_thread(PyInterpreterState *interpreter)
{
    PyThreadState *first = ps_first_thread_now(interpreter);
    for (int tries = 10000; !first && tries; tries--) {
        sched_yield();
        first = ps_first_thread_now(interpreter);
    }
    return first;
}

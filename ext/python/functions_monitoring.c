#include "hooks.h"

#if PS_HAVE_MONITORING

#include "base/atomic.h"
#include "base/clock.h"
#include "features/functions.h"
#include "usdt/info.h"

/*
 * Calls by sys.monitoring, on 3.12 and later. Entries (start, resume, throw) and exits (return,
 * yield, unwind) come in pairs, also for generators that are closed and coroutines that are
 * cancelled. For code that is not covered the callback returns "disable", and the code costs
 * nothing from then on. Unwinding and throwing cannot be disabled.
 */
enum { EVENTS = PS_ON_START | PS_ON_RESUME | PS_ON_THROW | PS_ON_RETURN | PS_ON_YIELD | PS_ON_UNWIND };

/* Both return false when nobody listens to the function. */
static bool enter(PyObject *const *args, bool resumed)
{
    PyCodeObject *code = (PyCodeObject *)args[0];
    ps_look look = ps_look_begin(PS_LOOK_FUNCTION);
    ps_turn turn;
    ps_turn_begin(&turn);
    bool wanted = !ps_functions_on() || ps_functions_enter(code, ps_current_frame(), resumed);
    if (PS_UNLIKELY(ps_latency_on())) wanted |= ps_latency_enter(code, ps_current_frame(), resumed);
    ps_turn_end(&turn);
    ps_look_end(look);
    return wanted;
}

static bool leave(PyObject *const *args, int outcome)
{
    PyCodeObject *code = (PyCodeObject *)args[0];
    ps_look look = ps_look_begin(PS_LOOK_FUNCTION);
    uint64_t now = ps_ticks(); /* a wait for a turn is not part of the call */
    ps_turn turn;
    ps_turn_begin(&turn);
    bool wanted = PS_UNLIKELY(ps_latency_on()) && ps_latency_leave(code, ps_current_frame(), outcome);
    wanted |= !ps_functions_on() || ps_functions_leave(code, ps_current_frame(), outcome, now);
    ps_turn_end(&turn);
    ps_look_end(look);
    return wanted;
}

static PyObject *go_on_if(bool wanted)
{
    return wanted ? ps_monitoring_go_on() : ps_monitoring_disable();
}

PS_CALLBACK(ps_on_start)
{
    return go_on_if(enter(args, false));
}

PS_CALLBACK(ps_on_resume)
{
    return go_on_if(enter(args, true));
}

PS_CALLBACK(ps_on_throw)
{
    enter(args, true);
    return ps_monitoring_go_on();
}

PS_CALLBACK(ps_on_return)
{
    return go_on_if(leave(args, PS_OUTCOME_RETURNED));
}

PS_CALLBACK(ps_on_yield)
{
    return go_on_if(leave(args, PS_OUTCOME_SUSPENDED));
}

PS_CALLBACK(ps_on_unwind)
{
    /* A generator that is closed ends so, which is no error. */
    bool closed = count > 2 && PyErr_GivenExceptionMatches(args[2], PyExc_GeneratorExit);
    leave(args, closed ? PS_OUTCOME_RETURNED : PS_OUTCOME_RAISED);
    return ps_monitoring_go_on();
}

bool ps_functions_hook(bool on)
{
    const char *reason = NULL;
    if (ps_monitoring_ask(PS_MONITORING_FUNCTIONS, on ? EVENTS : 0, &reason)) return on;
    ps_info_states(ps_functions_feature.probes, PS_STATE_REFUSED, reason);
    return false;
}

#endif

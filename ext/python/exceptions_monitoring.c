#include "exceptions.h"

#if PS_HAVE_MONITORING

#include "atomic.h"
#include "info.h"

/*
 * On 3.12 and later EXCEPTION_HANDLED tells of exceptions when their traceback is complete, and costs code that raises nothing
 * nothing. It comes for each handler that is entered, `finally` and clauses that do not match as well; those raise again, and
 * RERAISE says so. What no Python code handles is missed.
 */
static __thread PyObject *raised_again; /* compared only */

PS_CALLBACK(ps_on_raise)
{
    return ps_monitoring_go_on();
}

PS_CALLBACK(ps_on_reraise)
{
    if (count > 2) raised_again = args[2];
    return ps_monitoring_go_on();
}

PS_CALLBACK(ps_on_handled)
{
    if (count < 3 || ps_exceptions_is_noise(args[2])) return ps_monitoring_go_on();
    bool again = raised_again == args[2];
    raised_again = NULL;
    if (!again) {
        ps_row *row = ps_exceptions_count(args[2]);
        if (row) PS_ADD(row->count[PS_EXCEPTION_RESCUED], 1);
    }
    return ps_monitoring_go_on();
}

bool ps_exceptions_hook(uint32_t wanted)
{
    const char *reason = NULL;
    if (ps_monitoring_ask(PS_MONITORING_EXCEPTIONS, wanted ? PS_ON_HANDLED | PS_ON_RERAISE : 0, &reason))
        return wanted != 0;
    ps_info_state(PS_PROBE_EXCEPTION__STATS, PS_STATE_REFUSED, reason);
    return false;
}

#else

#include "info.h"

bool ps_exceptions_hook(uint32_t wanted)
{
    static const enum ps_probe probes[] = {PS_PROBE_EXCEPTION__RAISE, PS_PROBE_EXCEPTION__DETAIL,
                                           PS_PROBE_EXCEPTION__RESCUE, PS_PROBE_EXCEPTION__STATS};
    for (int i = 0; i < 4; i++)
        ps_info_state(probes[i], PS_STATE_UNSUPPORTED, "exceptions need CPython 3.12 or later so far");
    return false;
}

#endif

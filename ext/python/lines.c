/*
 * Lines: the probe fires at the start of each line of a covered function. On 3.12 and later sys.monitoring tells of them, and code
 * that is not covered costs nothing. Before, only the trace hook does, at many times the price for every call of every function: so
 * there it has to be forced.
 */
#include "hooks.h"

#include "info.h"
#include "probe.h"

static bool on;

static void fire(const ps_site *site, int line)
{
    struct ps_more_line more = {.path = site->path};
    ps_fire_line(site->name, site->file, line > 0 ? (uint64_t)line : 0, &more);
}

#if PS_HAVE_MONITORING

PS_CALLBACK(ps_on_line)
{
    ps_look look = ps_look_begin(PS_LOOK_LINE);
    ps_turn turn;
    ps_turn_begin(&turn);
    const ps_site *site = ps_functions_site((PyCodeObject *)args[0]);
    ps_turn_end(&turn);
    if (!site) return ps_monitoring_disable();
    int line = count > 1 ? (int)PyLong_AsLong(args[1]) : 0;
    fire(site, line);
    ps_look_end(look);
    return ps_monitoring_go_on();
}

static bool hook(bool wanted)
{
    const char *reason = NULL;
    if (ps_monitoring_ask(PS_MONITORING_LINES, wanted ? PS_ON_LINE : 0, &reason)) return wanted;
    ps_info_state(PS_PROBE_LINE, PS_STATE_REFUSED, reason);
    return false;
}

#else

static void listen(PyFrameObject *frame, int what, PyObject *argument)
{
    if (what != PyTrace_LINE) return;
    ps_look look = ps_look_begin(PS_LOOK_LINE);
    PyCodeObject *code = PyFrame_GetCode(frame);
    const ps_site *site = ps_functions_site(code);
    if (site) fire(site, PyFrame_GetLineNumber(frame));
    Py_DECREF(code);
    ps_look_end(look);
}

static bool hook(bool wanted)
{
    if (!wanted) {
        ps_thread_hooks_trace(PS_TRACED_LINES, NULL);
    } else if (ps_forced()) {
        ps_thread_hooks_trace(PS_TRACED_LINES, listen);
        return true;
    } else {
        ps_info_state(PS_PROBE_LINE, PS_STATE_REFUSED,
                      "needs PROBESCOPE_FORCE=1 or install(force=True): before CPython 3.12 lines slow all code down");
    }
    return false;
}

#endif

bool ps_lines_switch(uint32_t wanted)
{
    bool listens = (wanted & PS_BIT(LINE)) != 0;
    if (listens != on) on = hook(listens);
    return true;
}

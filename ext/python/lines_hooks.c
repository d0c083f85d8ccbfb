/*
 * Lines: the probe fires at the start of each line of a covered function. On 3.12 and later
 * sys.monitoring reports lines, and code that is not covered costs nothing. Before, only the trace
 * hook does, which costs many times as much for every call of every function. So there it has to be
 * forced.
 */
#include "hooks.h"

#include "base/atomic.h"
#include "features/functions.h"
#include "features/lines.h"
#include "usdt/info.h"
#include "usdt/probe.h"

static bool on;

static void fire(const ps_site *site, int line)
{
    ps_functions_fire_line(site, line > 0 ? (uint64_t)line : 0);
}

#if PS_HAVE_MONITORING

#if PS_COUNTS_C_CALLS
/* How many nested calls of C there may be while there are LINE events: half of what 3.12 allows. */
enum { DEEP = 750 };

/*
 * While there are LINE events, the interpreter does not specialise an instruction at which a line
 * begins. Then a loop over a generator, a property, __getitem__() and, in 3.13, __init__() need a
 * call of C, and otherwise none. If these are nested deeply, the program would end with a
 * RecursionError that it does not have without a tool. So the events end before that.
 */
static void end_where_deep(void)
{
    static int most; /* calls left when none is nested, as far as seen */
    int left = ps_c_calls_left(), seen = PS_READ(most);
    if (left > seen) PS_WRITE(most, left);
    if (PS_LIKELY(seen - left < DEEP)) return;
    ps_turn turn;
    ps_turn_begin(&turn);
    if (on && ps_info_state_of(PS_PROBE_LINE) != PS_STATE_REFUSED) {
        ps_monitoring_take_out(PS_ON_LINE);
        ps_info_state(
            PS_PROBE_LINE, PS_STATE_REFUSED,
            "taken out: calls are nested so deeply that line events would soon bring about a RecursionError");
    }
    ps_turn_end(&turn);
}

/*
 * Does a loop of a generator begin here? A line begins at its FOR_ITER, too, which has no event
 * while the line stays the same. So FOR_ITER cannot be disabled, and this is the event that comes
 * before it.
 */
static bool is_loop(PyCodeObject *code)
{
    enum { FAR = 40 };
    if (!(code->co_flags & CO_GENERATOR)) return false;
    int at = ps_walked_instruction(ps_walk_from(ps_thread_state())) / 2;
    PyObject *bytes = PyCode_GetCode(code); /* as compiled; the code object keeps these bytes */
    bool found = false, ended = !bytes || at < 0;
    for (int end = at + FAR; !found && !ended && at < end && at < PyBytes_GET_SIZE(bytes) / 2; at++) {
        unsigned char instruction = (unsigned char)PyBytes_AS_STRING(bytes)[2 * at];
        found = instruction == FOR_ITER;
        ended = instruction == YIELD_VALUE || instruction == RETURN_VALUE || instruction == JUMP_BACKWARD;
    }
    if (!bytes) PyErr_Clear();
    Py_XDECREF(bytes);
    return found;
}
#else
static void end_where_deep(void) {}

static bool is_loop(PyCodeObject *code)
{
    return false;
}
#endif

PS_CALLBACK(ps_on_line)
{
    ps_look look = ps_look_begin(PS_LOOK_LINE);
    ps_turn turn;
    ps_turn_begin(&turn);
    const ps_site *site = ps_functions_site((PyCodeObject *)args[0]);
    ps_turn_end(&turn);
    bool wanted = site || is_loop((PyCodeObject *)args[0]);
    if (site) fire(site, count > 1 ? (int)PyLong_AsLong(args[1]) : 0);
    if (wanted) end_where_deep();
    ps_look_end(look);
    return wanted ? ps_monitoring_go_on() : ps_monitoring_disable();
}

static bool hook_lines(bool wanted)
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

static bool hook_lines(bool wanted)
{
    if (!wanted) {
        ps_thread_hooks_trace(PS_TRACED_LINES, NULL);
    } else if (ps_forced()) {
        ps_thread_hooks_trace(PS_TRACED_LINES, listen);
        return true;
    } else {
        ps_info_state(
            PS_PROBE_LINE, PS_STATE_REFUSED,
            "needs PROBESCOPE_FORCE=1 or install(force=True): before CPython 3.12 lines slow all code down");
    }
    return false;
}

#endif

static bool hook(ps_probe_set wanted)
{
    bool listens = (wanted & PS_BIT(LINE)) != 0;
    if (listens != on) on = hook_lines(listens);
    return true;
}

const ps_hooks ps_lines_hooks = {.feature = &ps_lines_feature, .hook = hook};

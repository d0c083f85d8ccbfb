#include "exceptions_hooks.h"

#if !PS_HAVE_MONITORING

#include "base/atomic.h"
#include "base/clock.h"
#include "usdt/info.h"
#include "usdt/probe.h"

/*
 * exception__raise and exception__rescue before 3.12, for users who accept that all code slows down
 * meanwhile. The trace hook reports each frame that an exception comes to, lines, and ends of
 * calls:
 *
 *   EXCEPTION            the exception came to a frame
 *   LINE                 it is in a handler of that frame
 *   LINE or end of call  it is not handled any more: rescued
 *   end without a value  it goes on to the caller: EXCEPTION again
 *
 * A handler that raises on in its own frame is not reported. So the line of the rescue is that of
 * the first handler of that frame.
 */
enum { UNDER_WAY = 16 };

struct under_way {
    ps_address exception;
    ps_address top;   /* first entry of its traceback */
    ps_address frame; /* the frame that it came to */
    ps_row *row;
    uint64_t raised, elapsed; /* ticks; elapsed: from the raise to the handler */
    uint32_t unwound;
    int line; /* of the handler; 0: in none yet */
    bool passing;
};

static struct {
    bool on, fires_raise, fires_rescue;
    unsigned epoch; /* of what threads remember: with the tracer the rows are gone */
} trace;

/* Of this thread. */
static __thread struct {
    struct under_way all[UNDER_WAY]; /* in the order of their raises */
    uint32_t count;
    unsigned epoch;
} mine;

/*
 * Is a handler for it open on this thread, generators that run included? Of each only the innermost
 * handler is listed.
 */
static bool is_handled_now(ps_address exception)
{
    for (_PyErr_StackItem *item = ps_thread_state()->exc_info; item; item = item->previous_item)
        if (ps_address_equal(PS_ADDRESS(item->exc_value), exception)) return true;
    return false;
}

static void take_out(uint32_t i)
{
    for (mine.count--; i < mine.count; i++) mine.all[i] = mine.all[i + 1];
}

static struct under_way *find(ps_address exception)
{
    for (uint32_t i = mine.count; i-- > 0;)
        if (ps_address_equal(mine.all[i].exception, exception)) return &mine.all[i];
    return NULL;
}

static void came_to(PyFrameObject *frame, PyObject *exception, PyTracebackObject *top)
{
    struct under_way *one = find(PS_ADDRESS(exception));
    if (one && ps_address_equal(one->top, PS_ADDRESS(top->tb_next))) {
        if (!ps_address_equal(one->frame, PS_ADDRESS(frame))) one->unwound++;
        one->top = PS_ADDRESS(top);
        one->frame = PS_ADDRESS(frame);
        one->line = 0;
        one->passing = false;
        return;
    }
    if (one) take_out((uint32_t)(one - mine.all));
    /* The entries so far are those of an earlier raise. */
    ps_raise raise = {top, 1};
    ps_row *row = ps_raise_row(Py_TYPE(exception), top, &raise);
    if (trace.fires_raise) ps_exceptions_fire_raise(row, raise.depth, ps_raise_cost(raise.depth));
    if (mine.count == UNDER_WAY) take_out(0);
    mine.all[mine.count++] = (struct under_way){.exception = PS_ADDRESS(exception),
                                                .top = PS_ADDRESS(top),
                                                .frame = PS_ADDRESS(frame),
                                                .row = row,
                                                .raised = ps_ticks()};
}

/* frame: the one that the exception came to. */
static void enter_handler(struct under_way *one, PyFrameObject *frame)
{
    if (one->line) return;
    one->line = PyFrame_GetLineNumber(frame);
    one->elapsed = ps_ticks() - one->raised;
}

static void rescued(uint32_t i, PyFrameObject *frame)
{
    struct under_way one = mine.all[i];
    take_out(i);
    if (!one.row->site || !trace.fires_rescue) return;
    PyCodeObject *code = PyFrame_GetCode(frame);
    PyObject *globals = PyFrame_GetGlobals(frame);
    ps_exceptions_fire_rescue(one.row, ps_code_site_at(code, globals, one.line), one.elapsed, one.unwound);
    Py_XDECREF(globals);
    Py_DECREF(code);
}

/* Inner handlers end first, and hide the outer ones. */
static void at_line(PyFrameObject *frame)
{
    for (uint32_t i = mine.count; i-- > 0;) {
        if (!ps_address_equal(mine.all[i].frame, PS_ADDRESS(frame)) || mine.all[i].passing) continue;
        enter_handler(&mine.all[i], frame);
        if (is_handled_now(mine.all[i].exception)) return;
        rescued(i, frame);
    }
}

static void at_end(PyFrameObject *frame, bool raised)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    bool suspended = !raised && (code->co_flags & PS_RESUMABLE) && ps_frame_is_suspended(frame, code);
    Py_DECREF(code);
    for (uint32_t i = mine.count; !suspended && i-- > 0;) {
        if (!ps_address_equal(mine.all[i].frame, PS_ADDRESS(frame)) || mine.all[i].passing) continue;
        if (raised) {
            mine.all[i].passing = true;
        } else {
            enter_handler(&mine.all[i], frame);
            rescued(i, frame);
        }
    }
}

/* Called by the VM on the application's threads. The VM has put aside an exception that is set. */
static void listen(PyFrameObject *frame, int what, PyObject *argument)
{
    if (mine.epoch != trace.epoch) {
        mine.epoch = trace.epoch;
        mine.count = 0;
    }
    if (what == PyTrace_EXCEPTION) {
        PyObject *exception = PyTuple_GET_ITEM(argument, 1), *top = PyTuple_GET_ITEM(argument, 2);
        if (PyExceptionInstance_Check(exception) && PyTraceBack_Check(top) &&
            !ps_exceptions_is_noise(exception))
            came_to(frame, exception, (PyTracebackObject *)top);
    } else if (PS_UNLIKELY(mine.count)) {
        if (what == PyTrace_LINE) at_line(frame);
        else if (what == PyTrace_RETURN) at_end(frame, !argument);
    }
}

static bool state(enum ps_probe probe, ps_probe_set wanted)
{
    if (!((wanted >> probe) & 1)) return false;
    if (ps_forced())
        ps_info_state(probe, PS_STATE_DEGRADED,
                      "by the trace hook: all Python code is several times slower meanwhile");
    else
        ps_info_state(probe, PS_STATE_REFUSED,
                      "needs PROBESCOPE_FORCE=1 or install(force=True): before CPython 3.12 the trace hook "
                      "slows all code down");
    return ps_forced();
}

void ps_exceptions_trace(ps_probe_set wanted)
{
    trace.fires_raise = state(PS_PROBE_EXCEPTION__RAISE, wanted);
    trace.fires_rescue = state(PS_PROBE_EXCEPTION__RESCUE, wanted);
    bool on = trace.fires_raise || trace.fires_rescue;
    if (on != trace.on) trace.epoch++;
    trace.on = on;
    ps_thread_hooks_trace(PS_TRACED_EXCEPTIONS, on ? listen : NULL);
}

#endif

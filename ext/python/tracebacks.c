/*
 * Formatting tracebacks: which code asks for it, and how long it takes. At 20 frames that is 0.3 to
 * 1 ms, a thousand times what raising costs.
 *
 * Formatters are written in Python: ten to thirty functions of traceback and logging. While
 * somebody listens, our function is called instead of them, and calls them (tracebacks_hooks.c).
 * Only the outermost formatter counts. No frame of ours is on Python's stack, and an exception that
 * passes through is not changed.
 *
 * TracebackException.format() is a generator, which works when its lines are asked for. If it is
 * the outermost formatter, its generator gets a type of ours, which times each step. The exception
 * that it formats is remembered from when the TracebackException was made.
 */
#include "tracebacks.h"

#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/stopwatch.h"
#include "features/backtraces.h"
#include "features/exceptions.h"
#include "usdt/probe.h"
#include "exceptions_hooks.h"

enum { REMEMBERED = 32, OPEN = 16 };
/* A step of a generator that takes longer may have waited for something. */
#define LONG_STEP_NS 100000u

/*
 * What was formatted: a place in the source, named after the exception's class, and the row that is
 * charged.
 */
struct subject {
    const ps_site *raised; /* never NULL */
    ps_row_ref row;        /* of ps_exception_table */
    uint64_t depth;
    uint32_t generation; /* ps_sites_generation: `raised` is valid as long as that stays */
};

static const struct subject nothing = {.raised = &ps_site_none};

/* The last TracebackExceptions, and those of their generators that are under way. */
static struct {
    ps_address object;
    struct subject of;
} made[REMEMBERED];
static struct {
    ps_address generator; /* unset: none */
    const ps_formatter *formatter;
    const ps_site *asked;
    struct subject of;
    uint64_t ticks;
    uint64_t cpu_ns; /* the thread's CPU time when it was last read */
} generators[OPEN];
static uint32_t next_made, next_generator;

/*
 * Code on the way to the line that asked. Under the number OWN_OR_NOT: one of the two bytes, for
 * code of the application's own and other code. Under a line's number: the site of the line.
 */
enum { OWN_OR_NOT = -1000 };
static ps_known_table known;
static char own_code, other_code;

static __thread unsigned nested; /* formatters that this thread is inside */

vectorcallfunc ps_traceback_original;

void ps_tracebacks_forget(void)
{
    memset(made, 0, sizeof(made));
    memset(generators, 0, sizeof(generators));
    ps_known_clear(&known);
}

/* ---- What is formatted ---- */

static const ps_site *place_of(PyTypeObject *type, PyTracebackObject *entry)
{
    PyCodeObject *code = PyFrame_GetCode(entry->tb_frame);
    const ps_site *site = ps_type_site(type, code, PyCode_Addr2Line(code, entry->tb_lasti));
    Py_DECREF(code);
    return site;
}

static struct subject subject_of_exception(PyObject *exception)
{
    struct subject subject = nothing;
    subject.generation = ps_sites_generation;
    ps_raise raise;
    PyTracebackObject *first = ps_traceback(exception);
    bool whole = ps_exceptions_whole(first, &raise);
    if (whole) subject.depth = raise.depth;
    const ps_site *raised = ps_exceptions_origin(exception, &subject.row);
    if (!raised && PS_ENABLED(BACKTRACE__DONE))
        raised =
            whole ? place_of(Py_TYPE(exception), raise.origin) : ps_type_site(Py_TYPE(exception), NULL, 0);
    if (raised) subject.raised = raised;
    Py_XDECREF((PyObject *)first);
    return subject;
}

static bool has_traceback(PyObject *exception, PyObject *traceback)
{
    PyTracebackObject *first = ps_traceback(exception), *entry = first;
    while (entry && (PyObject *)entry != traceback) entry = entry->tb_next;
    Py_XDECREF((PyObject *)first);
    return entry != NULL;
}

/* The exception that this thread handles, if it has this traceback; NULL: any traceback. */
static struct subject subject_handled(PyObject *traceback)
{
    PyObject *type, *value, *its_traceback;
    PyErr_GetExcInfo(&type, &value, &its_traceback);
    struct subject subject = nothing;
    if (value && PyExceptionInstance_Check(value) && (!traceback || has_traceback(value, traceback)))
        subject = subject_of_exception(value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(its_traceback);
    return subject;
}

/* An exception among the arguments, or in a result of sys.exc_info(); borrowed. */
static PyObject *exception_in(PyObject *argument)
{
    if (PyExceptionInstance_Check(argument)) return argument;
    if (!PyTuple_CheckExact(argument) || PyTuple_GET_SIZE(argument) != 3) return NULL;
    PyObject *value = PyTuple_GET_ITEM(argument, 1);
    return PyExceptionInstance_Check(value) ? value : NULL;
}

static struct subject find_subject(const ps_formatter *formatter, PyObject *const *args, Py_ssize_t count)
{
    if (formatter->subject == PS_A_STACK) return nothing;
    if (formatter->subject == PS_MADE) {
        for (int i = 0; count && i < REMEMBERED; i++)
            if (ps_address_equal(made[i].object, PS_ADDRESS(args[0]))) return made[i].of;
        return nothing;
    }
    PyObject *traceback = NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *exception = exception_in(args[i]);
        if (exception) return subject_of_exception(exception);
        if (PyTraceBack_Check(args[i])) traceback = args[i];
    }
    return subject_handled(traceback);
}

/* ---- Who asked ---- */

static bool is_own(PyCodeObject *code)
{
    void *found = ps_known_of(&known, NULL, code, OWN_OR_NOT);
    if (!found) {
        found = ps_code_is_own(code) ? &own_code : &other_code;
        ps_know(&known, NULL, code, OWN_OR_NOT, found);
    }
    return found == &own_code;
}

static const ps_site *site_of_frame(PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    int line = PyFrame_GetLineNumber(frame);
    const ps_site *site = ps_known_of(&known, NULL, code, line);
    if (!site) {
        PyObject *globals = PyFrame_GetGlobals(frame);
        site = ps_code_site_at(code, globals, line);
        Py_XDECREF(globals);
        ps_know(&known, NULL, code, line, site);
    }
    Py_DECREF(code);
    return site;
}

/* The nearest line of the application's own code; else the nearest line of all. */
static const ps_site *find_asker(void)
{
    PyFrameObject *nearest = PyEval_GetFrame(); /* borrowed */
    if (!nearest) return &ps_site_none;
    ps_frame_walk walk = {nearest, is_own};
    Py_INCREF(nearest);
    bool own = ps_nearest_own_line(ps_walk_frames, &walk, NULL) >= 0;
    const ps_site *site = site_of_frame(own ? walk.frame : nearest);
    Py_XDECREF(walk.frame);
    return site;
}

/* ---- What is told ---- */

/* The row that is charged, or NULL. */
static ps_row *row_of(const struct subject *of)
{
    return ps_row_of(&ps_exception_table, of->row);
}

static ps_backtrace backtrace_of(const ps_formatter *formatter, const ps_site *asked,
                                 const struct subject *of, uint64_t ticks)
{
    return (ps_backtrace){formatter->kind, asked, of->raised, of->depth, ticks};
}

/* ---- Generators ---- */

static int find_generator(const PyObject *generator)
{
    for (int i = 0; i < OPEN; i++)
        if (ps_address_equal(generators[i].generator, PS_ADDRESS(generator))) return i;
    return -1;
}

/*
 * Called after each step of a timed generator. Steps are many and short, so the CPU clock is read
 * only after a long one, which counts at most the CPU time since the last reading. No error is
 * lost.
 */
static void note_step_in_turn(PyObject *generator, uint64_t ticks, bool ended)
{
    int i = find_generator(generator);
    if (i < 0 || !ps_tracebacks_on()) return;
    if (PS_UNLIKELY(ticks > ps_ns_to_ticks(LONG_STEP_NS))) {
        uint64_t now = ps_clock_read(CLOCK_THREAD_CPUTIME_ID),
                 cpu = ps_ns_to_ticks(now - generators[i].cpu_ns);
        generators[i].cpu_ns = now;
        if (cpu < ticks) ticks = cpu;
    }
    const struct subject *of = &generators[i].of;
    const ps_site *asked = generators[i].asked;
    ps_row *row = row_of(of);
    if (row) ps_exceptions_formatted(row, asked, ticks, ps_requests_counted());
    generators[i].ticks += ticks;
    if (!ended) return;
    ps_backtrace backtrace = backtrace_of(generators[i].formatter, asked, of, generators[i].ticks);
    ps_backtraces_fire(&backtrace);
    generators[i].generator = PS_NO_ADDRESS;
}

static void note_step(PyObject *generator, uint64_t ticks, bool ended)
{
    ps_turn turn;
    ps_turn_begin(&turn);
    note_step_in_turn(generator, ticks, ended);
    ps_turn_end(&turn);
}

static PyTypeObject timed_generator;

/* Runs a step under the generator's own type, which debug builds assert. */
static PyObject *step(PyObject *generator)
{
    Py_SET_TYPE(generator, &PyGen_Type);
    PyObject *line = PyGen_Type.tp_iternext(generator);
    Py_SET_TYPE(generator, &timed_generator);
    return line;
}

static PyObject *next_line(PyObject *generator)
{
    if (nested || !ps_tracebacks_on()) return step(generator);
    nested++;
    uint64_t start = ps_ticks();
    PyObject *line = step(generator);
    uint64_t ticks = ps_ticks() - start;
    nested--;
    note_step(generator, ticks, !line);
    return line;
}

static PySendResult step_with(PyObject *generator, PyObject *value, PyObject **result)
{
    Py_SET_TYPE(generator, &PyGen_Type);
    PySendResult sent = PyGen_Type.tp_as_async->am_send(generator, value, result);
    Py_SET_TYPE(generator, &timed_generator);
    return sent;
}

static PySendResult send(PyObject *generator, PyObject *value, PyObject **result)
{
    if (nested || !ps_tracebacks_on()) return step_with(generator, value, result);
    nested++;
    uint64_t start = ps_ticks();
    PySendResult sent = step_with(generator, value, result);
    uint64_t ticks = ps_ticks() - start;
    nested--;
    note_step(generator, ticks, sent != PYGEN_NEXT);
    return sent;
}

static PyAsyncMethods methods = {.am_send = send};

/*
 * Differs from the type of generators only in its address. A generator that outlives its tracer
 * keeps this type, which then only passes on.
 */
static PyTypeObject timed_generator = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "generator",
    .tp_base = &PyGen_Type,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_iternext = next_line,
    .tp_as_async = &methods,
};

bool ps_tracebacks_ready(void)
{
    timed_generator.tp_finalize = PyGen_Type.tp_finalize;
    return PyType_Ready(&timed_generator) == 0;
}

/* ---- Calls ---- */

static void remember(PyObject *object, const struct subject *of)
{
    uint32_t i = next_made++ % REMEMBERED;
    made[i].object = PS_ADDRESS(object);
    made[i].of = *of;
}

static void time_generator(PyObject *generator, const ps_formatter *formatter, const struct subject *of,
                           uint64_t ticks)
{
    int known = find_generator(generator); /* another one at its address that died half-way */
    uint32_t i = known >= 0 ? (uint32_t)known : next_generator++ % OPEN;
    generators[i].generator = PS_ADDRESS(generator);
    generators[i].formatter = formatter;
    generators[i].asked = find_asker();
    generators[i].of = *of;
    generators[i].ticks = ticks;
    generators[i].cpu_ns = ps_clock_read(CLOCK_THREAD_CPUTIME_ID);
    Py_SET_TYPE(generator, &timed_generator);
}

/* Called after a formatter returned, or raised: then result is NULL. */
static void record(const ps_formatter *formatter, struct subject *of, PyObject *const *args, Py_ssize_t count,
                   PyObject *result, uint64_t ticks)
{
    /* If the tracer left while the formatter ran, and another came, the earlier names are gone. */
    if (of->generation != ps_sites_generation) *of = nothing;
    if (formatter->subject == PS_MAKES && result) remember(result == Py_None && count ? args[0] : result, of);
    if (formatter->subject == PS_A_STACK && result && PyList_Check(result))
        of->depth = (uint64_t)PyList_GET_SIZE(result);
    if (result && PyGen_CheckExact(result)) {
        time_generator(result, formatter, of, ticks);
        return;
    }
    ps_backtrace backtrace = backtrace_of(formatter, find_asker(), of, ticks);
    ps_backtraces_done(&backtrace, row_of(of), ps_requests_counted());
}

/* The formatter that was hooked as this function. *of becomes what it formats. */
static const ps_formatter *begin_call(PyObject *function, PyObject *const *args, Py_ssize_t count,
                                      struct subject *of)
{
    ps_turn turn;
    ps_turn_begin(&turn);
    const ps_formatter *formatter = ps_tracebacks_hooked(function);
    if (formatter) *of = find_subject(formatter, args, count);
    ps_turn_end(&turn);
    return formatter;
}

static void end_call(const ps_formatter *formatter, struct subject *of, PyObject *const *args,
                     Py_ssize_t count, PyObject *result, uint64_t ticks)
{
    ps_look look = ps_look_begin_rare(PS_LOOK_BACKTRACE);
    ps_error error = ps_error_save();
    ps_turn turn;
    ps_turn_begin(&turn);
    /* Not if the tracer left meanwhile. */
    if (ps_tracebacks_on()) record(formatter, of, args, count, result, ticks);
    ps_turn_end(&turn);
    ps_error_restore(error);
    ps_look_end(look);
}

PyObject *ps_traceback_call(PyObject *function, PyObject *const *args, size_t flags, PyObject *names)
{
    if (nested || !ps_tracebacks_on()) return ps_traceback_run(function, args, flags, names);
    Py_ssize_t count = PyVectorcall_NARGS(flags) + (names ? PyTuple_GET_SIZE(names) : 0);
    /* What a finalizer formats meanwhile counts as nested, too. */
    nested++;
    struct subject of = nothing;
    const ps_formatter *formatter = begin_call(function, args, count, &of);
    ps_stopwatch start = ps_stopwatch_start();
    PyObject *result = ps_traceback_run(function, args, flags, names);
    uint64_t ticks = ps_stopwatch_stop(start);
    if (formatter) end_call(formatter, &of, args, count, result, ticks);
    nested--;
    return result;
}

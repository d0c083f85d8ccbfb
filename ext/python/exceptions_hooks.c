/*
 * Exceptions: a row for each place that raises a type. How exceptions are hooked depends on the
 * version (exceptions_monitoring.c, exceptions_slots.c). This file has what both share: rows,
 * figures, probes.
 *
 * What a traceback costs. For each frame that an exception passes, the interpreter makes an entry
 * and, from 3.11 on, a frame object, and frees both later. That cannot be timed from outside while
 * it happens. So it is timed once at each attach, with frames of our own that run nothing, and each
 * raise is charged by its depth.
 */
#include "exceptions_hooks.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "features/backtraces.h"
#include "features/exceptions.h"
#include "table/flush.h"
#include "usdt/info.h"
#include "usdt/probe.h"

static struct {
    ps_probe_set wanted;  /* the probes that the hooks are in for */
    uint64_t entry_cost;  /* ticks that one entry of a traceback costs */
    ps_known_table known; /* class and instruction -> row */
} exceptions;

/* PyType_IsSubtype() for three at once. */
bool ps_exceptions_is_noise(PyObject *exception)
{
    PyObject *mro = Py_TYPE(exception)->tp_mro;
    for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro); i++) {
        PyObject *type = PyTuple_GET_ITEM(mro, i);
        if (type == PyExc_StopIteration || type == PyExc_StopAsyncIteration || type == PyExc_GeneratorExit)
            return true;
    }
    return false;
}

bool ps_exceptions_whole(PyTracebackObject *first, ps_raise *raise)
{
    uint32_t depth = 1;
    if (!first) return false;
    for (; first->tb_next; depth++) first = first->tb_next;
    *raise = (ps_raise){first, depth};
    return first->tb_frame != NULL;
}

/* ---- Rows ---- */

ps_line_kind ps_walk_frames(void *of, int number)
{
    ps_frame_walk *walk = of;
    if (number && walk->frame) {
        PyFrameObject *back = PyFrame_GetBack(walk->frame);
        Py_DECREF(walk->frame);
        walk->frame = back;
    }
    if (!walk->frame) return PS_NO_LINE;
    PyCodeObject *code = PyFrame_GetCode(walk->frame);
    ps_line_kind kind = walk->is_own(code) ? PS_OWN_LINE : PS_OTHER_LINE;
    Py_DECREF(code);
    return kind;
}

/* The site of the nearest caller of this frame that is the application's own code. */
#if PS_HAVE_MONITORING
static const ps_site *find_own_caller(PyFrameObject *called)
{
    ps_frame_walk walk = {PyFrame_GetBack(called), ps_code_is_own};
    const ps_site *site = NULL;
    if (ps_nearest_own_line(ps_walk_frames, &walk, NULL) >= 0) {
        PyCodeObject *code = PyFrame_GetCode(walk.frame);
        site = ps_code_site_at(code, NULL, PyFrame_GetLineNumber(walk.frame));
        Py_DECREF(code);
    }
    Py_XDECREF(walk.frame);
    return site;
}
#else
/*
 * Before 3.12 an exception may be dying here, and no frame object may be made. If the frame is not
 * on this stack, its callers are not known.
 */
static ps_line_kind walk_callers(void *of, int number)
{
    struct ps_walked_frame **frame = of;
    *frame = ps_walk_on(*frame);
    if (!*frame) return PS_NO_LINE;
    return ps_code_is_own(ps_walked_code(*frame)) ? PS_OWN_LINE : PS_OTHER_LINE;
}

static const ps_site *find_own_caller(PyFrameObject *called)
{
    struct ps_walked_frame *frame = ps_walk_from(ps_thread_state());
    while (frame && frame->object != (PyObject *)called) frame = ps_walk_on(frame);
    if (!frame || ps_nearest_own_line(walk_callers, &frame, NULL) < 0) return NULL;
    return ps_code_site_at(ps_walked_code(frame), NULL, ps_walked_line(frame));
}
#endif

/* The inner part of a traceback. */
struct entries {
    PyTracebackObject *entry[PS_LINES_LOOKED_AT]; /* borrowed; number i is at i modulo the size */
    uint32_t count;
};

static PyTracebackObject *entry_at(const struct entries *entries, int number)
{
    return entries->entry[(entries->count - 1 - (uint32_t)number) % PS_LINES_LOOKED_AT];
}

static ps_line_kind walk_entries(void *of, int number)
{
    const struct entries *entries = of;
    if ((uint32_t)number >= entries->count) return PS_NO_LINE;
    PyCodeObject *code = PyFrame_GetCode(entry_at(entries, number)->tb_frame);
    ps_line_kind kind = ps_code_is_own(code) ? PS_OWN_LINE : PS_OTHER_LINE;
    Py_DECREF(code);
    return kind;
}

/*
 * The nearest entry of the application's own code: searched from the raise to the handler, and then
 * among the handler's callers.
 */
static const ps_site *find_app_site(PyTracebackObject *first, const ps_raise *raise)
{
    struct entries entries = {.count = 0};
    for (PyTracebackObject *entry = first; entry && entries.count < raise->depth; entry = entry->tb_next)
        entries.entry[entries.count++ % PS_LINES_LOOKED_AT] = entry;
    int own = ps_nearest_own_line(walk_entries, &entries, NULL);
    if (own < 0) return find_own_caller(first->tb_frame);
    PyTracebackObject *entry = entry_at(&entries, own);
    PyCodeObject *code = PyFrame_GetCode(entry->tb_frame);
    const ps_site *site = ps_code_site_at(code, NULL, PyCode_Addr2Line(code, entry->tb_lasti));
    Py_DECREF(code);
    return site;
}

struct raised {
    PyTracebackObject *first;
    const ps_raise *raise;
    const ps_site *in;
};

static void find_places(const void *of, const ps_site **function, const ps_site **app)
{
    const struct raised *raised = of;
    *function = raised->in;
    *app = find_app_site(raised->first, raised->raise);
}

static ps_row *name_row(PyTypeObject *type, PyTracebackObject *first, const ps_raise *raise,
                        PyCodeObject *code)
{
    PyObject *globals = PyFrame_GetGlobals(raise->origin->tb_frame);
    int line = PyCode_Addr2Line(code, raise->origin->tb_lasti);
    const ps_site *in = ps_code_site_at(code, globals, line), *site = ps_type_site(type, code, line);
    Py_XDECREF(globals);
    return ps_exceptions_row(site, in, find_places, &(struct raised){first, raise, in});
}

ps_row *ps_raise_row(PyTypeObject *type, PyTracebackObject *first, const ps_raise *raise)
{
    PyCodeObject *code = PyFrame_GetCode(raise->origin->tb_frame);
    int at = raise->origin->tb_lasti;
    ps_row *row = ps_known_of(&exceptions.known, type, code, at);
    if (PS_UNLIKELY(!row)) {
        row = name_row(type, first, raise, code);
        if (!ps_row_is_overflow(&ps_exception_table, row)) ps_know(&exceptions.known, type, code, at, row);
    }
    Py_DECREF(code);
    return row;
}

uint64_t ps_raise_cost(uint32_t depth)
{
    return exceptions.entry_cost * depth;
}

/* ---- Details ---- */

void ps_exceptions_message(char *to, PyObject *exception)
{
    PyObject *args = ((PyBaseExceptionObject *)exception)->args;
    PyObject *text =
        args && PyTuple_CheckExact(args) && PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0) : NULL;
    to[0] = '\0';
    /*
     * The message of a UnicodeError is computed: its first argument is an encoding or what could
     * not be translated.
     */
    if (text && PyUnicode_CheckExact(text) && ps_string_is_ready(text) &&
        !PyType_IsSubtype(Py_TYPE(exception), (PyTypeObject *)PyExc_UnicodeError))
        ps_copy_string(to, PS_MESSAGE_BUFFER, text);
}

void ps_raise_detail(ps_row *row, PyObject *exception, PyTracebackObject *first, uint32_t depth)
{
    if (!ps_exceptions_detail_due(row)) return;
    ps_span span;
    char message[PS_MESSAGE_BUFFER];
    ps_exceptions_message(message, exception);
    ps_exceptions_span(&span, exception, first, depth);
    ps_exceptions_fire_detail(row, depth, ps_raise_cost(depth), message, &span);
}

/* ---- Strings ---- */

const ps_site *ps_exceptions_origin(PyObject *exception, ps_row_ref *origin)
{
    ps_raise raise;
    PyTracebackObject *first = exceptions.wanted ? ps_traceback(exception) : NULL;
    ps_row *row = NULL;
    if (ps_exceptions_whole(first, &raise)) row = ps_raise_row(Py_TYPE(exception), first, &raise);
    Py_XDECREF((PyObject *)first);
    if (!row) return NULL;
    /* No exception in particular is charged to the overflow row. */
    if (!ps_row_is_overflow(&ps_exception_table, row)) *origin = ps_row_keep(&ps_exception_table, row);
    return row->site;
}

/* ---- Cost ---- */

enum { ENTRIES = 32 };

/* Makes and frees a traceback. Returns ticks; 0: that failed. */
static uint64_t time_traceback(PyCodeObject *code, PyObject *globals)
{
    PyFrameObject *frames[ENTRIES];
    int made = 0;
    PyThreadState *thread = PyThreadState_Get();
    uint64_t began = ps_ticks();
    while (made < ENTRIES && (frames[made] = PyFrame_New(thread, code, globals, NULL))) made++;
    bool done = made == ENTRIES;
    if (done) PyErr_SetNone(PyExc_Exception);
    for (int i = 0; done && i < ENTRIES; i++) done = PyTraceBack_Here(frames[i]) == 0;
    while (made) Py_DECREF(frames[--made]);
    PyErr_Clear();
    return done ? ps_ticks() - began : 0;
}

/* On the worker. No bytecode runs: the frames are made and never entered. */
static uint64_t measure_entry_cost(void)
{
    enum { ROUNDS = 16 };
    PyCodeObject *code = PyCode_NewEmpty("<probescope>", "calibrate", 1);
    PyObject *globals = PyDict_New();
    uint64_t least = UINT64_MAX;
    for (int i = 0; code && globals && i < ROUNDS; i++) {
        uint64_t ticks = time_traceback(code, globals);
        if (ticks && ticks < least) least = ticks;
    }
    Py_XDECREF(globals);
    Py_XDECREF(code);
    PyErr_Clear();

    return least == UINT64_MAX ? 0 : least / ENTRIES;
}

/* ---- On and off ---- */

static void forget(void)
{
    ps_known_clear(&exceptions.known);
    ps_exceptions_forget();
}

static bool needs_upkeep(void)
{
    return PS_READ(exceptions.wanted) && ps_exceptions_hook_needs_upkeep();
}

static void upkeep(void)
{
    if (exceptions.wanted) ps_exceptions_hook_upkeep(false);
}

void ps_exceptions_end(void)
{
    if (exceptions.wanted) ps_exceptions_hook_upkeep(true);
}

static bool hook(ps_probe_set wanted)
{
    wanted &= ps_exceptions_feature.probes;
    if (wanted == exceptions.wanted) return true;
    if (wanted && !exceptions.wanted) exceptions.entry_cost = measure_entry_cost();
    PS_WRITE(exceptions.wanted, ps_exceptions_hook(wanted) ? wanted : 0);
    return true;
}

const ps_hooks ps_exceptions_hooks = {
    .feature = &ps_exceptions_feature,
    .hook = hook,
    .forget = forget,
    .needs_upkeep = needs_upkeep,
    .upkeep = upkeep,
};

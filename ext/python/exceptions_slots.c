#include "exceptions.h"

#if !PS_HAVE_MONITORING

#include <string.h>

#include "atomic.h"
#include "probe.h"
#include "stats.h"

/*
 * Before 3.12 nothing tells of exceptions that does not slow down every line, so they are counted
 * when they die: an exception that goes still has its traceback, and that says where it was raised,
 * how deep, and which call handled it. While somebody listens, tp_dealloc and tp_clear of the
 * exception types that are written in C are ours. Classes written in Python have slots that end
 * there. So is tp_alloc, for the span that is current when one is made (exceptions_spans.c);
 * classes that are made meanwhile go without.
 *
 * In such a slot nothing may be allocated by Python, for that may start the collector, and no error
 * may be touched.
 *
 * What this cannot know: how long an exception was under way, or anything of it while it lives.
 * Where the user accepted the price, the trace hook tells that (exceptions_trace.c).
 */
enum { SLOTS = 24 };

static struct {
    bool on;
    destructor dealloc[SLOTS];
    inquiry clear[SLOTS];
    /* of every class that is written in Python; left alone, as is python_clear */
    destructor python_dealloc;
    inquiry python_clear;
    ps_places rescuers; /* code object and line -> site of a handler */
} slots;

/* ---- What a traceback says ---- */

static bool is_generator(PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    int flags = code->co_flags;
    Py_DECREF(code);
    return (flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0;
}

/*
 * Was the second not called by the first? Then the exception was raised again in the first.
 * Generators forget who called, and what Cython writes into a traceback are frames that never ran
 * and that nobody is called by.
 */
static bool is_break(const PyTracebackObject *caller, const PyTracebackObject *called)
{
    PyFrameObject *frame = called->tb_frame;
    bool ran = caller->tb_lasti >= PS_FIRST_LASTI && called->tb_lasti >= PS_FIRST_LASTI;
    if (!ran || caller->tb_frame == frame || is_generator(frame)) return false;
    PyFrameObject *back = ps_frame_known_back(frame);
    return back ? back != caller->tb_frame : !ps_frame_is_running(frame);
}

/* The call that handled it still runs: on the line that it let go of the exception. */
static const ps_site *rescuer_in(PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    int line = PyFrame_GetLineNumber(frame);
    const ps_site *site = ps_places_find(&slots.rescuers, NULL, code, line);
    if (!site) {
        PyObject *globals = PyFrame_GetGlobals(frame);
        site = ps_code_site_at(code, globals, line);
        Py_XDECREF(globals);
        ps_places_put(&slots.rescuers, NULL, code, line, (void *)site, NULL);
    }
    Py_DECREF(code);
    return site;
}

/*
 * Counts one raise of an exception that dies. handler: the frame that handled it, or NULL when that
 * is not known.
 */
static void count_raise(PyObject *exception, PyTracebackObject *first, const ps_raise *raise, bool is_last)
{
    if (!raise->origin->tb_frame) return;
    ps_row *row = ps_exceptions_row(Py_TYPE(exception), first, raise);
    ps_exceptions_count(row, raise->depth);
    if (!is_last) ps_exceptions_count_rescue(row, NULL, raise->depth == 1);
    else if (ps_frame_is_running(first->tb_frame))
        ps_exceptions_count_rescue(row, rescuer_in(first->tb_frame), raise->depth == 1);
    if (PS_ENABLED(EXCEPTION__DETAIL) && row->site)
        ps_exceptions_fire_detail(row, exception, first, raise->depth);
}

/*
 * Called with the GIL on a thread of the main interpreter that lets go of an exception, or that
 * collects garbage. Entries of which the collector has been there first are empty.
 */
static void count_dying(PyObject *exception)
{
    PyTracebackObject *first = (PyTracebackObject *)((PyBaseExceptionObject *)exception)->traceback,
                      *entry = first;
    if (!first || !PyTraceBack_Check(first) || ps_exceptions_is_noise(exception)) return;
    /* The parts that except* makes of a group have its traceback: the last one counts. */
    bool is_group = PyType_IsSubtype(Py_TYPE(exception), (PyTypeObject *)PyExc_BaseExceptionGroup);
    if (is_group && Py_REFCNT(first) > 1) return;
    bool is_last = true;
    uint32_t depth = 1;
    for (; entry->tb_next; entry = entry->tb_next, depth++) {
        if (!entry->tb_frame || !entry->tb_next->tb_frame) return;
        if (!is_break(entry, entry->tb_next)) continue;
        count_raise(exception, first, &(ps_raise){entry, depth}, is_last);
        is_last = false;
        first = entry->tb_next;
        depth = 0;
    }
    if (first->tb_frame) count_raise(exception, first, &(ps_raise){entry, depth}, is_last);
}

/* ---- Slots ---- */

/*
 * As the interpreter's own: a long chain of __context__ must not recurse through all of the C
 * stack. What subtype_dealloc hands on is tracked by the collector, and the original expects that.
 */
static void die(PyObject *exception, int number, destructor ours)
{
    PyObject_GC_UnTrack(exception);
    Py_TRASHCAN_BEGIN(exception, ours);
    if (slots.on && ps_is_main_interpreter()) {
        ps_look look = ps_look_begin(PS_LOOK_EXCEPTION);
        count_dying(exception);
        ps_exceptions_forget_span(exception);
        ps_look_end(look);
    }
    PyObject_GC_Track(exception);
    slots.dealloc[number](exception);
    Py_TRASHCAN_END;
}

/* The collector breaks a cycle: the traceback goes now. */
static int clear(PyObject *exception, int number)
{
    if (slots.on && ps_is_main_interpreter()) count_dying(exception);
    return slots.clear[number](exception);
}

/*
 * Not by tp_new: that OSError compares with its own, to find out who is to look at the arguments.
 * All types have the same function here, and none of the interpreter's looks which.
 */
static PyObject *make(PyTypeObject *type, Py_ssize_t items)
{
    PyObject *exception = PyType_GenericAlloc(type, items);
    if (exception && slots.on && PS_ENABLED(EXCEPTION__DETAIL) && ps_is_main_interpreter())
        ps_exceptions_note_span(exception);
    return exception;
}

/* clang-format off */
#define EACH_SLOT(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) \
                     X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)
#define DEFINE(i) \
    static void die##i(PyObject *exception) { die(exception, i, die##i); } \
    static int clear##i(PyObject *exception) { return clear(exception, i); }
EACH_SLOT(DEFINE)
#define DIE(i) die##i,
#define CLEAR(i) clear##i,
static const destructor our_dealloc[SLOTS] = {EACH_SLOT(DIE)};
static const inquiry our_clear[SLOTS] = {EACH_SLOT(CLEAR)};
/* clang-format on */

/*
 * The number of a slot, when it has one of ours or gets one: that of the original. -1: it stays as
 * it is.
 */
static int dealloc_number(destructor slot)
{
    for (int i = 0; i < SLOTS; i++) {
        if (slot == our_dealloc[i]) return i;
        if (!slots.dealloc[i]) slots.dealloc[i] = slot;
        if (slots.dealloc[i] == slot) return i;
    }
    return -1;
}

static int clear_number(inquiry slot)
{
    for (int i = 0; i < SLOTS; i++) {
        if (slot == our_clear[i]) return i;
        if (!slots.clear[i]) slots.clear[i] = slot;
        if (slots.clear[i] == slot) return i;
    }
    return -1;
}

static void set_slots(PyTypeObject *type, bool on)
{
    int i =
        type->tp_dealloc && type->tp_dealloc != slots.python_dealloc ? dealloc_number(type->tp_dealloc) : -1;
    if (i >= 0) type->tp_dealloc = on ? our_dealloc[i] : slots.dealloc[i];
    i = type->tp_clear && type->tp_clear != slots.python_clear ? clear_number(type->tp_clear) : -1;
    if (i >= 0) type->tp_clear = on ? our_clear[i] : slots.clear[i];
    if (type->tp_alloc == (on ? PyType_GenericAlloc : make)) type->tp_alloc = on ? make : PyType_GenericAlloc;
}

/*
 * All types of exceptions there are. Those that come later inherit their slots, ours too, which is
 * why this walks again at the end.
 */
static void walk(PyTypeObject *type, bool on)
{
    set_slots(type, on);
    /* Of `type` itself: a metaclass may have an idea of its own. */
    PyObject *list = PyObject_CallMethod((PyObject *)&PyType_Type, "__subclasses__", "O", type);
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++)
        walk((PyTypeObject *)PyList_GET_ITEM(list, i), on);
    if (!list) PyErr_Clear();
    Py_XDECREF(list);
}

/*
 * Is an object of some thread put off by the trashcan? It is not tracked, and OSError's slot
 * expects that it is.
 */
static bool is_trash_waiting(void)
{
    PyThreadState *thread = PyInterpreterState_ThreadHead(ps_thread_state()->interp);
    while (thread && !thread->trash_delete_later) thread = PyThreadState_Next(thread);
    return thread != NULL;
}

/* What a class in Python has in these slots, from one that is made for this. */
static bool learn_python_slots(void)
{
    if (slots.python_dealloc) return true;
    PyObject *class = PyObject_CallFunction((PyObject *)&PyType_Type, "s(O){}", "Probe", PyExc_Exception);
    if (!class) {
        PyErr_Clear();
        return false;
    }
    slots.python_dealloc = ((PyTypeObject *)class)->tp_dealloc;
    slots.python_clear = ((PyTypeObject *)class)->tp_clear;
    Py_DECREF(class);
    return true;
}

/* ---- On and off ---- */

bool ps_exceptions_hook_needs_upkeep(void)
{
    return false;
}

void ps_exceptions_hook_upkeep(bool last) {}

void ps_exceptions_forget(void)
{
    ps_places_clear(&slots.rescuers);
}

bool ps_exceptions_hook(uint32_t wanted)
{
    ps_exceptions_trace(wanted);
    bool on = (wanted & (PS_BIT(EXCEPTION__STATS) | PS_BIT(EXCEPTION__DETAIL))) && learn_python_slots();
    /* Where they cannot go now they stay, and do nothing, until the next attach and detach. */
    if (on != slots.on && (on || !is_trash_waiting())) walk((PyTypeObject *)PyExc_BaseException, on);
    if (on && !slots.on) ps_exceptions_forget_spans();
    slots.on = on;
    return wanted != 0;
}

#endif

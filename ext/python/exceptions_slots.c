#include "exceptions_hooks.h"

#if !PS_HAVE_MONITORING

#include <string.h>

#include "base/atomic.h"
#include "table/flush.h"
#include "usdt/info.h"
#include "usdt/probe.h"
#include "thread_states.h"

/*
 * Before 3.12 no event reports exceptions without slowing down every line. So exceptions are
 * counted when they die: a dying exception still has its traceback, which shows where it was
 * raised, how deep, and which call handled it. While somebody listens, tp_dealloc and tp_clear of
 * the exception types that are written in C are ours. The slots of classes that are written in
 * Python end in these. tp_alloc is ours, too, for the span that is current when an exception is
 * made (exceptions_spans.c). Classes that are made meanwhile have no such span.
 *
 * In such a slot Python may allocate nothing, because that may start the collector, and no error
 * may be touched.
 *
 * Not known this way: how long an exception was under way, and anything of it while it lives. If
 * the user accepted the price, the trace hook reports that (exceptions_trace.c).
 */
enum { SLOTS = 24 };

static struct {
    bool on;
    bool full; /* some type's slot stays as it is: there are more than SLOTS originals */
    destructor dealloc[SLOTS];
    inquiry clear[SLOTS];
    destructor python_dealloc; /* of every class that is written in Python; left alone, as is python_clear */
    inquiry python_clear;
    ps_known_table rescuers; /* code object and line -> site of a handler */
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
 * Was `called` not called by `caller`? Then the exception was raised again in the caller.
 * Generators forget their caller. Cython writes frames into a traceback that never ran and called
 * nothing.
 */
static bool is_break(const PyTracebackObject *caller, const PyTracebackObject *called)
{
    PyFrameObject *frame = called->tb_frame;
    bool ran = caller->tb_lasti >= PS_FIRST_LASTI && called->tb_lasti >= PS_FIRST_LASTI;
    if (!ran || caller->tb_frame == frame || is_generator(frame)) return false;
    PyFrameObject *back = ps_frame_known_back(frame);
    return back ? back != caller->tb_frame : !ps_frame_is_running(frame);
}

/* The call that handled the exception still runs, on the line where it released the exception. */
static const ps_site *rescuer_in(PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    int line = PyFrame_GetLineNumber(frame);
    const ps_site *site = ps_known_of(&slots.rescuers, NULL, code, line);
    if (!site) {
        PyObject *globals = PyFrame_GetGlobals(frame);
        site = ps_code_site_at(code, globals, line);
        Py_XDECREF(globals);
        ps_know(&slots.rescuers, NULL, code, line, site);
    }
    Py_DECREF(code);
    return site;
}

/*
 * Counts one raise of a dying exception. is_last: the last raise, which was handled in the first
 * frame if that still runs. Earlier raises were handled, too, but it is not known where.
 */
static void count_raise(PyObject *exception, PyTracebackObject *first, const ps_raise *raise, bool is_last)
{
    if (!raise->origin->tb_frame) return;
    ps_row *row = ps_raise_row(Py_TYPE(exception), first, raise);
    ps_counted *request = ps_requests_counted();
    ps_exceptions_raised(row, raise->depth, ps_raise_cost(raise->depth), request);
    if (!is_last) ps_exceptions_rescued(row, NULL, raise->depth == 1, request);
    else if (ps_frame_is_running(first->tb_frame))
        ps_exceptions_rescued(row, rescuer_in(first->tb_frame), raise->depth == 1, request);
    if (PS_ENABLED(EXCEPTION__DETAIL)) ps_raise_detail(row, exception, first, raise->depth);
}

/*
 * Called with the GIL on a thread of the main interpreter that releases an exception, or that
 * collects garbage. Entries that the collector has cleared before are empty.
 */
static void count_dying(PyObject *exception)
{
    PyTracebackObject *first = (PyTracebackObject *)((PyBaseExceptionObject *)exception)->traceback,
                      *entry = first;
    if (!first || !PyTraceBack_Check(first) || ps_exceptions_is_noise(exception)) return;
    /* The parts that except* makes of a group share its traceback: only the last part counts. */
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

static const destructor our_dealloc[SLOTS];
static const inquiry our_clear[SLOTS];

static bool is_our_dealloc(destructor slot)
{
    for (int i = 0; i < SLOTS; i++)
        if (slot == our_dealloc[i]) return true;
    return false;
}

static bool is_our_clear(inquiry slot)
{
    for (int i = 0; i < SLOTS; i++)
        if (slot == our_clear[i]) return true;
    return false;
}

/*
 * The slot of a type that is written in C may call the slot of its base, as Cython's do. Then
 * several of our slots are called for one exception. The first one counts it: that of the nearest
 * type that has one.
 */
static bool is_first_dealloc(const PyTypeObject *type, destructor ours)
{
    for (; type && type->tp_dealloc != ours; type = type->tp_base)
        if (type->tp_dealloc != slots.python_dealloc && is_our_dealloc(type->tp_dealloc)) return false;
    return true;
}

static bool is_first_clear(const PyTypeObject *type, inquiry ours)
{
    for (; type && type->tp_clear != ours; type = type->tp_base)
        if (type->tp_clear != slots.python_clear && is_our_clear(type->tp_clear)) return false;
    return true;
}

/*
 * Like the interpreter's own: a long chain of __context__ must not recurse through all of the C
 * stack. subtype_dealloc passes on an object that the collector tracks, and the original expects
 * that.
 */
static void die(PyObject *exception, int number, destructor ours)
{
    PyObject_GC_UnTrack(exception);
    Py_TRASHCAN_BEGIN(exception, ours);
    if (slots.on && ps_is_main_interpreter() && is_first_dealloc(Py_TYPE(exception), ours)) {
        ps_look look = ps_look_begin(PS_LOOK_EXCEPTION);
        count_dying(exception);
        ps_exceptions_forget_span(exception);
        ps_look_end(look);
    }
    PyObject_GC_Track(exception);
    slots.dealloc[number](exception);
    Py_TRASHCAN_END;
}

/*
 * The collector breaks a cycle: the traceback is about to go. An exception without references has
 * been counted, and its tp_dealloc calls this.
 */
static int clear(PyObject *exception, int number)
{
    bool first = Py_REFCNT(exception) > 0 && is_first_clear(Py_TYPE(exception), our_clear[number]);
    if (first && slots.on && ps_is_main_interpreter()) count_dying(exception);
    return slots.clear[number](exception);
}

/*
 * Not by tp_new: OSError compares tp_new with its own, to find out which function handles the
 * arguments. tp_alloc is the same function in all types, and the interpreter compares it with none.
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
 * The number of a slot's function, which is ours or an original. An original without a number gets
 * one here. -1: the slot stays as it is.
 */
static int dealloc_number(destructor slot)
{
    for (int i = 0; i < SLOTS; i++) {
        if (slot == our_dealloc[i]) return i;
        if (!slots.dealloc[i]) slots.dealloc[i] = slot;
        if (slots.dealloc[i] == slot) return i;
    }
    slots.full = true;
    return -1;
}

static int clear_number(inquiry slot)
{
    for (int i = 0; i < SLOTS; i++) {
        if (slot == our_clear[i]) return i;
        if (!slots.clear[i]) slots.clear[i] = slot;
        if (slots.clear[i] == slot) return i;
    }
    slots.full = true;
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
 * Visits all types of exceptions. Types that are made later inherit the slots, also ours. So the
 * walk is repeated at the end.
 */
static void walk(PyTypeObject *type, bool on)
{
    set_slots(type, on);
    /* Of `type` itself: a metaclass may define its own. */
    PyObject *list = PyObject_CallMethod((PyObject *)&PyType_Type, "__subclasses__", "O", type);
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++)
        walk((PyTypeObject *)PyList_GET_ITEM(list, i), on);
    if (!list) PyErr_Clear();
    Py_XDECREF(list);
}

/*
 * Has the trashcan put off an object of some thread? Such an object is not tracked, and OSError's
 * slot expects that it is.
 */
static bool is_trash_waiting(void)
{
    PyThreadState *thread = ps_first_thread(ps_thread_state()->interp);
    while (thread && !thread->trash_delete_later) thread = PyThreadState_Next(thread);
    return thread != NULL;
}

/* Reads the slots of classes written in Python from a class that is made for this. */
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
    ps_known_clear(&slots.rescuers);
}

static void tell_what_is_left_out(ps_probe_set wanted)
{
    ps_info_states(wanted & (PS_BIT(EXCEPTION__STATS) | PS_BIT(EXCEPTION__DETAIL)), PS_STATE_DEGRADED,
                   "some types written in C may not be counted: more than 24 have slots of their own");
}

bool ps_exceptions_hook(ps_probe_set wanted)
{
    ps_exceptions_trace(wanted);
    bool on = (wanted & (PS_BIT(EXCEPTION__STATS) | PS_BIT(EXCEPTION__DETAIL))) && learn_python_slots();
    /* Slots that cannot be restored now stay, and do nothing, until the next attach and detach. */
    if (on != slots.on && (on || !is_trash_waiting())) walk((PyTypeObject *)PyExc_BaseException, on);
    if (on && !slots.on) ps_exceptions_forget_spans();
    slots.on = on;
    if (on && slots.full) tell_what_is_left_out(wanted);
    return wanted != 0;
}

#endif

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

#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "features/coverage.h"
#include "table/flush.h"
#include "usdt/info.h"
#include "usdt/probe.h"

enum { LOOK_FOR_APP = 128 };

static struct {
    uint32_t wanted;      /* the probes that the hooks are in for */
    bool clearing;        /* the hooks are out, but the flush read the rows: clear them at the next try */
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

/*
 * Each entry holds the address of the next one, and waiting for that 100 times takes longer than
 * all else that is done for a raise. When a place raises again and again, its entries are where
 * they were the time before last: memory that is freed from the first entry to the last is used
 * again from the last to the first. So the next entry is guessed from that walk, and the CPU goes
 * on with the guess while it loads the address that proves it right.
 */
bool ps_exceptions_whole(PyTracebackObject *first, ps_raise *raise)
{
    enum { GUESSES = 256 };
    static ps_address walks[2][GUESSES + 1]; /* the last two */
    static unsigned turn;
    if (!first) return false;
    PyTracebackObject *entry = first, *next;
    ps_address *walk = walks[turn ^= 1], *guess = walk;
    for (; (next = entry->tb_next); guess++) {
        ps_address guessed = *guess;
        uintptr_t wrong = guessed.value ^ (uintptr_t)next;
        /*
         * Hides from the compiler that both are equal: it would use the address that is waited for.
         */
        __asm__("" : "+r"(wrong));
        if (wrong) break;
        entry = (PyTracebackObject *)guessed.value; /* equal to `next` */
    }
    uint32_t passed = (uint32_t)(guess - walk);
    for (; next; next = entry->tb_next) {
        if (passed < GUESSES) walk[passed] = PS_ADDRESS(next);
        passed++;
        entry = next;
    }
    *raise = (ps_raise){entry, passed + 1};
    return entry->tb_frame != NULL;
}

/* ---- Rows ---- */

#if PS_HAVE_MONITORING
/* The site of the nearest caller of this frame that is the application's own code. */
static const ps_site *find_own_caller(PyFrameObject *called)
{
    const ps_site *site = NULL;
    PyFrameObject *frame = PyFrame_GetBack(called);
    for (int i = 0; frame && i < LOOK_FOR_APP; i++) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        if (!site && ps_code_is_own(code)) site = ps_code_site_at(code, NULL, PyFrame_GetLineNumber(frame));
        Py_DECREF(code);
        PyFrameObject *back = site ? NULL : PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    return site;
}
#else
/*
 * Before 3.12 an exception may be dying here, and no frame object may be made. If the frame is not
 * on this stack, its callers are not known.
 */
static const ps_site *find_own_caller(PyFrameObject *called)
{
    struct ps_walked_frame *frame = ps_walk_from(ps_thread_state());
    while (frame && frame->object != (PyObject *)called) frame = ps_walk_on(frame);
    for (int i = 0; frame && (frame = ps_walk_on(frame)) && i < LOOK_FOR_APP; i++) {
        PyCodeObject *code = ps_walked_code(frame);
        if (ps_code_is_own(code)) return ps_code_site_at(code, NULL, ps_walked_line(frame));
    }
    return NULL;
}
#endif

/*
 * The nearest entry of the application's own code: searched from the raise to the handler, and then
 * among the handler's callers.
 */
static const ps_site *find_app_site(PyTracebackObject *first, const ps_raise *raise)
{
    PyTracebackObject *own = NULL, *entry = first;
    for (uint32_t i = 0; i < raise->depth && entry; i++, entry = entry->tb_next) {
        /* Only the inner part of a deep traceback. */
        if (raise->depth - i > LOOK_FOR_APP) continue;
        PyCodeObject *code = PyFrame_GetCode(entry->tb_frame);
        if (ps_code_is_own(code)) own = entry;
        Py_DECREF(code);
    }
    if (!own) return find_own_caller(first->tb_frame);
    PyCodeObject *code = PyFrame_GetCode(own->tb_frame);
    const ps_site *site = ps_code_site_at(code, NULL, PyCode_Addr2Line(code, own->tb_lasti));
    Py_DECREF(code);
    return site;
}

/* Keyed by the class's name and place, and by the function that raises. */
static ps_row *make_row(PyTypeObject *type, PyTracebackObject *first, const ps_raise *raise,
                        PyCodeObject *code)
{
    PyObject *globals = PyFrame_GetGlobals(raise->origin->tb_frame);
    int line = PyCode_Addr2Line(code, raise->origin->tb_lasti);
    const ps_site *in = ps_code_site_at(code, globals, line), *site = ps_type_site(type, code, line);
    Py_XDECREF(globals);
    ps_row *row = ps_table_row(&ps_exception_table, (uintptr_t)site, (uintptr_t)in, 0);
    if (row->site) return row;
    PS_WRITE_RELEASE(row->at[PS_EXCEPTION_RAISED_IN], in);
    PS_WRITE_RELEASE(row->at[PS_EXCEPTION_APP_AT], find_app_site(first, raise));
    PS_WRITE_RELEASE(row->site, site);
    return row;
}

ps_row *ps_exceptions_row(PyTypeObject *type, PyTracebackObject *first, const ps_raise *raise)
{
    PyCodeObject *code = PyFrame_GetCode(raise->origin->tb_frame);
    int at = raise->origin->tb_lasti;
    ps_row *row = ps_known_of(&exceptions.known, type, code, at);
    if (PS_UNLIKELY(!row)) {
        row = make_row(type, first, raise, code);
        if (!ps_row_is_overflow(&ps_exception_table, row)) ps_know(&exceptions.known, type, code, at, row);
    }
    Py_DECREF(code);
    return row;
}

/* The counters of this row to add to. */
static uint64_t *counted(ps_row *row)
{
    return ps_routes_row(&ps_exception_table, row, ps_requests_counted())->count;
}

void ps_exceptions_count_more(ps_row *row, uint32_t depth, uint32_t deeper)
{
    uint64_t *count = counted(row);
    PS_ADD(count[PS_EXCEPTION_COST], exceptions.entry_cost * deeper);
    PS_ADD(count[PS_EXCEPTION_DEPTH], deeper);
    if (depth > PS_READ(count[PS_EXCEPTION_DEPTH_MAX])) PS_WRITE(count[PS_EXCEPTION_DEPTH_MAX], depth);
}

void ps_exceptions_count(ps_row *row, uint32_t depth)
{
    ps_exceptions_count_more(row, depth, depth);
    PS_ADD_LAST(counted(row)[PS_EXCEPTION_RAISED], 1);
}

void ps_exceptions_count_rescue(ps_row *row, const ps_site *site, bool at_once)
{
    if (site) PS_WRITE_RELEASE(row->at[PS_EXCEPTION_RESCUED_AT], site);
    if (at_once) PS_ADD(counted(row)[PS_EXCEPTION_RESCUED_AT_ONCE], 1);
    PS_ADD_LAST(counted(row)[PS_EXCEPTION_RESCUED], 1);
}

/* ---- Probes ---- */

static const char *function_of(const ps_row *row)
{
    const ps_site *site = row->at[PS_EXCEPTION_RAISED_IN];
    return site ? site->name : "";
}

static uint64_t cost_ns(uint32_t depth)
{
    return ps_ticks_to_ns(exceptions.entry_cost * depth);
}

void ps_exceptions_fire_raise(const ps_row *row, uint32_t depth)
{
    const ps_site *site = row->site;
    struct ps_more_exception__raise more = {
        .path = site->path, .function = function_of(row), .thread_id = ps_thread_id()};
    ps_fire_exception__raise(site->name, site->file, site->line, depth, cost_ns(depth), &more);
}

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

void ps_exceptions_fire_detail(ps_row *row, PyObject *exception, PyTracebackObject *first, uint32_t depth)
{
    if (!ps_details_allow(row)) return;
    char message[PS_MESSAGE_BUFFER], traceparent[PS_TRACEPARENT_BUFFER];
    ps_exceptions_message(message, exception);
    ps_exceptions_span(traceparent, exception, first, depth);
    const ps_site *site = row->site, *app = row->at[PS_EXCEPTION_APP_AT];
    struct ps_more_exception__detail more = {
        .path = site->path,
        .function = function_of(row),
        .thread_id = ps_thread_id(),
        .message = message,
        .traceparent = traceparent,
        .app_file = app ? app->file : "",
        .app_line = app ? app->line : 0,
    };
    ps_fire_exception__detail(site->name, site->file, site->line, depth, cost_ns(depth), &more);
}

void ps_exceptions_fire_rescue(const ps_row *row, const ps_site *at, uint64_t elapsed, uint32_t unwound)
{
    if (!at) at = &ps_site_none;
    struct ps_more_exception__rescue more = {
        .path = at->path, .function = at->name, .raise_file = row->site->file, .raise_line = row->site->line};
    ps_fire_exception__rescue(row->site->name, at->file, at->line, ps_ticks_to_ns(elapsed), unwound, &more);
}

/* ---- Strings ---- */

const ps_site *ps_exceptions_origin(PyObject *exception, uintptr_t key[3])
{
    ps_raise raise;
    PyTracebackObject *first = exceptions.wanted ? ps_traceback(exception) : NULL;
    const ps_row *row = NULL;
    if (ps_exceptions_whole(first, &raise)) row = ps_exceptions_row(Py_TYPE(exception), first, &raise);
    Py_XDECREF((PyObject *)first);
    if (!row) return NULL;
    memcpy(key, row->key, sizeof(row->key));
    return row->site;
}

void ps_exceptions_charge(const uintptr_t key[3], const ps_site *asked, uint64_t ticks)
{
    ps_row *row = key[0] ? ps_table_find(&ps_exception_table, key[0], key[1], key[2]) : NULL;
    if (!row) return;
    /* There is no asking site when the interpreter itself reports an exception. */
    if (asked != &ps_site_none) PS_WRITE_RELEASE(row->at[PS_EXCEPTION_ASKED_AT], asked);
    PS_ADD_LAST(counted(row)[PS_EXCEPTION_STRINGS], ticks);
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

static bool forget_rows(void)
{
    if (!ps_tables_try_lock()) return false;
    ps_table_clear(&ps_exception_table);
    ps_flush_unlock();
    ps_known_clear(&exceptions.known);
    ps_exceptions_forget();
    return true;
}

bool ps_exceptions_needs_upkeep(void)
{
    return PS_READ(exceptions.wanted) && ps_exceptions_hook_needs_upkeep();
}

void ps_exceptions_upkeep(void)
{
    if (exceptions.wanted) ps_exceptions_hook_upkeep(false);
}

void ps_exceptions_end(void)
{
    if (exceptions.wanted) ps_exceptions_hook_upkeep(true);
}

bool ps_exceptions_switch(uint32_t wanted)
{
    wanted &= PS_EXCEPTION_PROBES;
    if (exceptions.clearing) {
        if (!forget_rows()) return false;
        exceptions.clearing = false;
    }
    if (wanted == exceptions.wanted) return true;
    if (wanted) {
        if (!exceptions.wanted) exceptions.entry_cost = measure_entry_cost();
        PS_WRITE(exceptions.wanted, ps_exceptions_hook(wanted) ? wanted : 0);
        return true;
    }
    ps_exceptions_hook(0);
    PS_WRITE(exceptions.wanted, 0);
    exceptions.clearing = !forget_rows();
    return !exceptions.clearing;
}

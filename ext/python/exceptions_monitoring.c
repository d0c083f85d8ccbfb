#include "exceptions.h"

#if PS_HAVE_MONITORING

#include <opcode.h>
#include <string.h>
#include <unistd.h>

#include "atomic.h"
#include "clock.h"
#include "info.h"
#include "probe.h"

/*
 * On 3.12 and later EXCEPTION_HANDLED tells of exceptions when their traceback is complete, and costs code that raises nothing
 * nothing. It comes for each handler that is entered: `finally`, `with` and clauses that do not match as well. Those raise again, and
 * RERAISE says so; the handler that rescued is the one that was left without it. So a rescue is known when it is over: it is counted,
 * and fired, at the next exception of its thread, or when the worker sees within a second that the thread handles it no more.
 *
 *   HANDLED -> under way, in a handler -> RERAISE -> under way, on its way -> HANDLED (deeper) -> in a handler
 *                                   `-> no longer handled: rescued
 *
 * An exception that is under way is alive, so it is known by its address. Once it is not, another may have that.
 *
 * RAISE comes for each frame that an exception passes, and costs each. It is asked for by exception__raise, and by
 * exception__rescue for the time since the raise.
 */
enum { UNDER_WAY = 64, RAISES = 32, ENTRIES_ADDED = 64, SEEN_SETS = 256, SEEN_WAYS = 4 };

struct under_way {
    PyObject *exception; /* compared only, as all pointers here but the row */
    PyThreadState *thread;
    PyTracebackObject *top; /* first entry of its traceback when it was last seen */
    uint32_t entries;       /* in that */
    ps_row *row;
    uint32_t depth; /* of its last raise */
    bool passing;   /* raised on, and in no handler yet */
    bool counted;   /* as rescued, too early */
    bool old;       /* as it is since the worker last looked */
    struct {
        PyCodeObject *code;
        long offset;
        uint32_t entries;
    } first; /* handler */
    const ps_site *rescuer;
    uint64_t elapsed; /* ticks from the raise to the handler */
};

static struct {
    uint32_t wanted;
    pid_t process;                         /* that what is under way is of */
    struct under_way under_way[UNDER_WAY]; /* in the order of their handlers */
    uint32_t count;
    uint64_t looked_ns; /* when the worker last looked */
    struct {
        PyObject *exception;
        uint64_t at;
    } raises[RAISES];
    uint32_t next_raise;
    /* What was handled, by address: another exception may have that by now. */
    struct seen {
        PyObject *exception;
        PyTracebackObject *top, *last; /* entries of its traceback */
        uint32_t entries;
        uint64_t number; /* of the handling */
        ps_row *
            rescued; /* its row when it counts as rescued, for it is handled no more; a suspended handler may raise it on */
    } seen[SEEN_SETS * SEEN_WAYS];
    uint64_t seen_number;
} handled;

/* Rows of handlers: code object and offset. Only their sites are of use. */
static ps_table rescuers;

/* What this thread raised last: the exception and the first entry of its traceback. Compared only. */
static __thread struct {
    PyObject *exception;
    PyTracebackObject *top;
} passed;

/* ---- Where ---- */

/*
 * Is this the handler of a statement? Those of the interpreter's own (the end of an `except ... as`, of an inlined comprehension, of
 * a generator) do not begin so, and always raise on. What another tool has instrumented may be one.
 */
static bool is_statement(PyCodeObject *code, long offset)
{
    uint8_t opcode = ((const uint8_t *)code->co_code_adaptive)[offset];
    return opcode == PUSH_EXC_INFO || opcode >= MIN_INSTRUMENTED_OPCODE;
}

static const ps_site *rescuer_at(PyCodeObject *code, long offset)
{
    ps_row *row = ps_table_row(&rescuers, (uintptr_t)code, (uintptr_t)offset, 0);
    if (PS_LIKELY(row->site != NULL)) return row->site;
    Py_INCREF(code);
    /* The first instruction of a handler may have no line. */
    int line = -1;
    for (int i = 0; line <= 0 && i < 4; i++) line = PyCode_Addr2Line(code, (int)offset + 2 * i);
    PyObject *globals = PyEval_GetGlobals(); /* borrowed */
    return row->site = ps_code_site_at(code, globals, line);
}

/* ---- Raised again ---- */

/* What is known of it; else the place to put it, which is that of the one that was handled longest ago. */
static struct seen *seen_of(PyObject *exception)
{
    struct seen *set = &handled.seen[((uintptr_t)exception >> 4) % SEEN_SETS * SEEN_WAYS], *oldest = set;
    for (int i = 0; i < SEEN_WAYS; i++) {
        if (set[i].exception == exception) return &set[i];
        if (set[i].number < oldest->number) oldest = &set[i];
    }
    return oldest;
}

/* Was the frame of this entry not called by the one of the entry before it? Then an exception was raised again in that one. */
static bool is_break(PyTracebackObject *caller, PyTracebackObject *entry)
{
    if (caller->tb_frame == entry->tb_frame) return true;
    PyFrameObject *back = PyFrame_GetBack(entry->tb_frame);
    bool is = back && back != caller->tb_frame;
    Py_XDECREF(back);
    return is;
}

/* Leaves the last raise of it. Looked at closely when it has the last entry that it had before, and more of them than then. */
static void narrow_to_last(PyObject *exception, PyTracebackObject *first, ps_raise *raise)
{
    const struct seen *seen = seen_of(exception);
    if (PS_LIKELY(seen->exception != exception || seen->last != raise->origin || seen->entries >= raise->depth)) return;
    PyTracebackObject *entry = first;
    uint32_t fresh = raise->depth - seen->entries;
    for (uint32_t i = 1; i < fresh; i++) entry = entry->tb_next;
    if (is_break(entry, entry->tb_next)) *raise = (ps_raise){entry, fresh};
}

/* ---- Under way ---- */

static void take_out(uint32_t i)
{
    memmove(&handled.under_way[i], &handled.under_way[i + 1], (--handled.count - i) * sizeof(handled.under_way[0]));
}

static void rescued(const struct under_way *one)
{
    if (one->counted) {
        PS_WRITE_RELEASE(one->row->at[PS_EXCEPTION_RESCUED_AT], one->rescuer);
    } else {
        ps_exceptions_count_rescue(one->row, one->rescuer, one->depth == 1);
        if ((handled.wanted & PS_BIT(EXCEPTION__RESCUE)) && one->row->site)
            ps_exceptions_fire_rescue(one->row, one->rescuer, one->elapsed, one->depth - 1);
    }
    struct seen *seen = seen_of(one->exception);
    if (seen->exception == one->exception) seen->rescued = one->row;
}

/* Is a handler for it open on this thread, generators that run included? Handlers below the innermost are not listed. */
static bool is_handled_now(PyThreadState *thread, PyObject *exception)
{
    for (_PyErr_StackItem *item = thread->exc_info; item; item = item->previous_item)
        if (item->exc_value == exception) return true;
    return false;
}

/* Those of this thread whose handlers are over. The inner ones end first, so the first that is not over ends the search. */
static void settle(PyThreadState *thread)
{
    for (uint32_t i = handled.count; i-- > 0;) {
        struct under_way *one = &handled.under_way[i];
        if (one->thread != thread || one->passing) continue;
        if (is_handled_now(thread, one->exception)) return;
        rescued(one);
        take_out(i);
    }
}

static struct under_way *find(PyThreadState *thread, PyObject *exception)
{
    for (uint32_t i = handled.count; i-- > 0;) {
        struct under_way *one = &handled.under_way[i];
        if (one->exception == exception && one->thread == thread) return one;
    }
    return NULL;
}

/* The place of a new one, to be filled. */
static struct under_way *add(void)
{
    if (handled.count == UNDER_WAY) {
        if (!handled.under_way[0].passing) rescued(&handled.under_way[0]);
        take_out(0);
    }
    return &handled.under_way[handled.count++];
}

static uint64_t since_raise(PyObject *exception, uint64_t now)
{
    for (uint32_t back = 1; back <= RAISES; back++) {
        uint32_t i = (handled.next_raise - back) % RAISES;
        if (handled.raises[i].exception == exception) return now - handled.raises[i].at;
    }
    return 0;
}

/*
 * Has this exception come here on its way from the handler that raised it on? Else another has its address by now. Then it is in
 * another handler of the same frame, or has new entries before those it had.
 */
static bool came_on(const struct under_way *one, PyTracebackObject *top, uint32_t entries, PyCodeObject *code,
                    long offset)
{
    if (!one->passing || entries < one->entries) return false;
    if (entries == one->entries)
        return one->top == top &&
               (one->first.entries != entries || one->first.code != code || one->first.offset != offset);
    for (uint32_t i = one->entries; i < entries; i++) top = top->tb_next;
    return one->top == top;
}

/* ---- Events ---- */

enum event { RAISED, RAISED_ON, HANDLED };

static void raised(PyObject *exception, PyTracebackObject *top)
{
    if (!top) return;
    /* From the frame below? Else it is raised here, perhaps not for the first time. */
    bool from_below = top->tb_next && passed.exception == exception && passed.top == top->tb_next;
    passed.exception = exception;
    passed.top = top;
    if (PS_LIKELY(from_below) || ps_exceptions_is_noise(exception)) return;
    /* `raise e` where e is handled raises it on. */
    PyThreadState *thread = ps_thread_state();
    if (top->tb_next && find(thread, exception) && is_handled_now(thread, exception)) return;
    uint32_t i = handled.next_raise++ % RAISES;
    handled.raises[i].exception = exception;
    handled.raises[i].at = ps_ticks();
    if (PS_ENABLED(EXCEPTION__RAISE)) {
        ps_raise raise = {top, 1};
        ps_row *row = ps_exceptions_row(Py_TYPE(exception), top, &raise);
        if (row->site) ps_exceptions_fire_raise(row, raise.depth);
    }
}

/* A handler that says `raise e` puts an entry before those there are. */
static void add_entries(struct under_way *one, PyTracebackObject *top)
{
    uint32_t more = 0;
    PyTracebackObject *entry = top;
    while (entry && entry != one->top && more < ENTRIES_ADDED) entry = entry->tb_next, more++;
    if (!more || entry != one->top) return;
    one->top = top;
    one->entries += more;
    one->depth += more;
    ps_exceptions_count_more(one->row, one->depth, more);
}

static void raised_on(PyObject *exception, PyTracebackObject *top)
{
    PyThreadState *thread = ps_thread_state();
    if (ps_exceptions_is_noise(exception)) return;
    passed.exception = exception;
    passed.top = top;
    struct under_way *one = find(thread, exception);
    for (uint32_t i = handled.count; !one && top && i-- > 0;) {
        /* What except* left of a group is another object with the same traceback. */
        struct under_way *group = &handled.under_way[i];
        if (group->thread == thread && group->top == top && !group->passing) one = group;
    }
    struct seen *seen = seen_of(exception);
    if (!one && seen->exception == exception && seen->rescued) {
        one = add();
        *one = (struct under_way){.thread = thread,
                                  .top = seen->top,
                                  .entries = seen->entries,
                                  .depth = seen->entries,
                                  .row = seen->rescued,
                                  .counted = true};
    }
    if (!one) return;
    seen->rescued = NULL;
    one->exception = exception;
    one->passing = true;
    one->old = false;
    add_entries(one, top);
}

/* Names are made for rows, and that may run the application's code: so places in lists are asked for after that. */
static void entered_handler(PyCodeObject *code, long offset, PyObject *exception, PyTracebackObject *top)
{
    PyThreadState *thread = ps_thread_state();
    ps_raise raise;
    if (ps_exceptions_is_noise(exception)) return;
    settle(thread);
    struct under_way *known = find(thread, exception), *one;
    /* One that comes from a handler that was suspended has raised on before. */
    if (!known && seen_of(exception)->exception == exception) seen_of(exception)->rescued = NULL;
    if (!is_statement(code, offset) || !ps_exceptions_whole(top, &raise)) return;
    passed.exception = NULL;
    uint32_t entries = raise.depth;
    PyTracebackObject *last = raise.origin;
    const ps_site *rescuer = rescuer_at(code, offset);
    known = find(thread, exception);
    if (known && came_on(known, top, entries, code, offset)) {
        struct under_way on = *known;
        take_out((uint32_t)(known - handled.under_way));
        on.depth += entries - on.entries;
        ps_exceptions_count_more(on.row, on.depth, entries - on.entries);
        on.passing = on.old = false;
        one = add();
        *one = on;
    } else {
        if (known) take_out((uint32_t)(known - handled.under_way));
        narrow_to_last(exception, top, &raise);
        ps_row *row = ps_exceptions_row(Py_TYPE(exception), top, &raise);
        ps_exceptions_count(row, raise.depth);
        if (PS_ENABLED(EXCEPTION__DETAIL) && row->site) ps_exceptions_fire_detail(row, exception, top, raise.depth);
        one = add();
        one->exception = exception;
        one->thread = thread;
        one->row = row;
        one->depth = raise.depth;
        one->passing = one->counted = one->old = false;
        one->first.code = code;
        one->first.offset = offset;
        one->first.entries = entries;
    }
    one->top = top;
    one->entries = entries;
    one->rescuer = rescuer;
    one->elapsed = (handled.wanted & PS_BIT(EXCEPTION__RESCUE)) ? since_raise(exception, ps_ticks()) : 0;
    *seen_of(exception) = (struct seen){exception, top, last, entries, ++handled.seen_number, NULL};
}

/* At the first handler it is the one that is current. */
void ps_exceptions_span(char *to, PyObject *exception, PyTracebackObject *first, uint32_t depth)
{
    ps_trace_context(to, PS_BIT(EXCEPTION__DETAIL));
}

/* Called by CPython on the thread that raises, with the GIL. The exception that is raised is put aside. */
static PyObject *tell(enum event event, PyObject *const *args, Py_ssize_t count)
{
    if (count < 3) return ps_monitoring_go_on();
    ps_turn turn;
    ps_turn_begin(&turn);
    /* Without a GIL an event may still be on its way here after the hooks were taken out. */
    if (PS_HAVE_GIL || handled.wanted) {
        PyTracebackObject *top = ps_traceback(args[2]);
        if (event == RAISED) raised(args[2], top);
        else if (event == RAISED_ON) raised_on(args[2], top);
        else entered_handler((PyCodeObject *)args[0], PyLong_AsLong(args[1]), args[2], top);
        Py_XDECREF((PyObject *)top);
    }
    ps_turn_end(&turn);
    return ps_monitoring_go_on();
}

PS_CALLBACK(ps_on_raise)
{
    return tell(RAISED, args, count);
}

PS_CALLBACK(ps_on_handled)
{
    return tell(HANDLED, args, count);
}

PS_CALLBACK(ps_on_reraise)
{
    return tell(RAISED_ON, args, count);
}

/* ---- The worker ---- */

enum { LOOK_NS = 300000000 };

bool ps_exceptions_hook_needs_upkeep(void)
{
    return PS_READ(handled.count) && ps_monotonic_ns() - PS_READ(handled.looked_ns) > LOOK_NS;
}

#if PS_HAVE_GIL
static bool is_alive(const PyThreadState *thread)
{
    PyThreadState *one = PyInterpreterState_ThreadHead(PyInterpreterState_Main());
    while (one && one != thread) one = PyThreadState_Next(one);
    return one != NULL;
}

/* Is number i still on its way, or in a handler that is open? */
static bool goes_on(uint32_t i, bool last)
{
    const struct under_way *one = &handled.under_way[i];
    if (!is_alive(one->thread)) return false;
    if (one->passing) return !one->old;
    /* A thread's inner handlers come later, and hide its outer ones. */
    for (uint32_t j = i + 1; j < handled.count; j++)
        if (handled.under_way[j].thread == one->thread && !handled.under_way[j].passing) return true;
    return is_handled_now(one->thread, one->exception);
}

/* What the parent's other threads had under way at a fork is the parent's. */
static bool is_ours(const struct under_way *one, bool forked)
{
    return !forked || is_alive(one->thread);
}
#else
/* Without a GIL nobody can look at what another thread handles: some time after it began a handler counts as one that rescued. */
static bool goes_on(uint32_t i, bool last)
{
    const struct under_way *one = &handled.under_way[i];
    return one->thread == ps_thread_state() || (!one->old && !last);
}

static bool is_ours(const struct under_way *one, bool forked)
{
    return !forked;
}
#endif

void ps_exceptions_hook_upkeep(bool last)
{
    PS_WRITE(handled.looked_ns, ps_monotonic_ns());
    bool forked = handled.process != getpid();
    handled.process = getpid();
    if (last) settle(ps_thread_state());
    for (uint32_t i = handled.count; i-- > 0;) {
        struct under_way *one = &handled.under_way[i];
        bool over = !goes_on(i, last);
        one->old = true;
        if (!over) continue;
        if (!one->passing && is_ours(one, forked)) rescued(one);
        take_out(i);
    }
}

void ps_exceptions_forget(void)
{
    uint32_t rows = rescuers.rows;
    for (uint32_t i = 0; i < rows; i++) Py_DECREF((PyObject *)ps_table_at(&rescuers, i)->key[0]);
    ps_table_clear(&rescuers);
}

static unsigned events_for(uint32_t wanted)
{
    if (!wanted) return 0;
    bool raises = (wanted & (PS_BIT(EXCEPTION__RAISE) | PS_BIT(EXCEPTION__RESCUE))) != 0;
    return PS_ON_HANDLED | PS_ON_RERAISE | (raises ? PS_ON_RAISE : 0);
}

bool ps_exceptions_hook(uint32_t wanted)
{
    const char *reason = NULL;
    bool done = ps_monitoring_ask(PS_MONITORING_EXCEPTIONS, events_for(wanted), &reason);
    if (!handled.wanted || !wanted) memset(&handled, 0, sizeof(handled));
    handled.wanted = done ? wanted : 0;
    handled.process = getpid();
    for (int i = 0; !done && i < PS_PROBE_COUNT; i++)
        if (((wanted & PS_EXCEPTION_PROBES) >> i) & 1) ps_info_state((enum ps_probe)i, PS_STATE_REFUSED, reason);
    return done && wanted;
}

#endif

#include "exceptions_hooks.h"

#if PS_HAVE_MONITORING

#include <opcode.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "features/exceptions.h"
#include "usdt/info.h"
#include "usdt/probe.h"
#include "thread_states.h"

/*
 * On 3.12 and later EXCEPTION_HANDLED reports an exception when its traceback is complete, and
 * costs nothing in code that does not raise. It comes for each handler that is entered, also for
 * `finally`, `with` and clauses that do not match. Those raise the exception again, and RERAISE
 * reports that. The handler that rescued is the one that was left without RERAISE. So a rescue is
 * known when it is over. It is counted, and fired, at the next exception of its thread, or when the
 * worker, which looks every 0.3 s (LOOK_NS), sees that the thread does not handle the exception any
 * more.
 *
 *   HANDLED -> in a handler -> RERAISE -> passing -> HANDLED (deeper) -> in a handler
 *                    `-> no longer handled: rescued
 *
 * An exception that is under way is alive, so it is known by its address. Once it is not, another
 * exception may have that address.
 *
 * RAISE comes, and costs time, for each frame that an exception passes. It is enabled for
 * exception__raise, and for exception__rescue, which reports the time since the raise.
 */
enum {
    UNDER_WAY = 64,
    RAISES = 32,
    ENTRIES_ADDED = 64,
    SEEN_BITS = 8,
    SEEN_SETS = 1 << SEEN_BITS,
    SEEN_WAYS = 4
};

struct under_way {
    ps_address exception, thread;
    ps_address top;   /* first entry of its traceback when it was last seen */
    uint32_t entries; /* in that traceback */
    ps_row_ref row;
    uint32_t depth; /* of its last raise */
    bool passing;   /* raised on, and in no handler yet */
    bool counted;   /* counted as rescued, too early */
    bool old;       /* unchanged since the worker last looked */
    struct {
        ps_address code;
        long offset;
        uint32_t entries;
    } first; /* handler */
    const ps_site *rescuer;
    uint64_t elapsed; /* ticks from the raise to the handler */
};

static struct {
    ps_probe_set wanted;
    pid_t process;                         /* the process of what is under way */
    struct under_way under_way[UNDER_WAY]; /* in the order of their handlers */
    uint32_t count;
    uint64_t looked_ns; /* when the worker last looked */
    struct {
        ps_address exception;
        uint64_t at;
    } raises[RAISES];
    uint32_t next_raise;
    /* Exceptions that were handled. Another exception may have the address by now. */
    struct seen {
        ps_address exception;
        ps_address top, last; /* entries of its traceback */
        uint32_t entries;
        uint64_t number;    /* of the handling */
        ps_row_ref rescued; /* its row, if it counts as rescued; a suspended handler may raise it on */
    } seen[SEEN_SETS * SEEN_WAYS];
    uint64_t seen_number;
} handled;

static ps_known_table rescuers; /* code object and offset -> site of a handler */

/* What this thread raised last: the exception and the first entry of its traceback. */
static __thread struct {
    ps_address exception, top;
} passed;

/* ---- Where ---- */

/*
 * Is this the handler of a statement? The interpreter has handlers of its own, at the end of an
 * `except ... as`, of an inlined comprehension, of a generator. These do not begin with this
 * instruction, and always raise on. An instruction that another tool has instrumented may be one.
 */
static bool is_statement(PyCodeObject *code, long offset)
{
    uint8_t opcode = ((const uint8_t *)code->co_code_adaptive)[offset];
    return opcode == PUSH_EXC_INFO || opcode >= MIN_INSTRUMENTED_OPCODE;
}

static const ps_site *rescuer_at(PyCodeObject *code, long offset)
{
    const ps_site *site = ps_known_of(&rescuers, NULL, code, offset);
    if (PS_LIKELY(site != NULL)) return site;
    /*
     * The first instruction of a handler may have no line. The search ends with the code: behind it
     * CPython reads beyond its table of lines.
     */
    enum { UNIT = 2, UNITS = 4 };
    int line = -1, end = (int)Py_SIZE(code) * UNIT;
    for (int at = (int)offset; line <= 0 && at < end && at < offset + UNITS * UNIT; at += UNIT)
        line = PyCode_Addr2Line(code, at);
    PyObject *globals = PyEval_GetGlobals(); /* borrowed */
    site = ps_code_site_at(code, globals, line);
    ps_know(&rescuers, NULL, code, offset, site);
    return site;
}

/* ---- Raised again ---- */

/*
 * What is known of the exception; else the entry to replace, which is that of the exception that
 * was handled longest ago.
 */
static struct seen *seen_of(ps_address exception)
{
    struct seen *set = &handled.seen[ps_address_hash(exception, SEEN_BITS) * SEEN_WAYS], *oldest = set;
    for (int i = 0; i < SEEN_WAYS; i++) {
        if (ps_address_equal(set[i].exception, exception)) return &set[i];
        if (set[i].number < oldest->number) oldest = &set[i];
    }
    return oldest;
}

/*
 * Was the frame of this entry not called by the frame of the entry before it? Then the exception
 * was raised again in that frame.
 */
static bool is_break(PyTracebackObject *caller, PyTracebackObject *entry)
{
    if (caller->tb_frame == entry->tb_frame) return true;
    PyFrameObject *back = PyFrame_GetBack(entry->tb_frame);
    bool is = back && back != caller->tb_frame;
    Py_XDECREF(back);
    return is;
}

/*
 * Reduces a raise to its last part. Entries are compared only if the exception has the same last
 * entry as before, and more entries than then.
 */
static void narrow_to_last(PyObject *exception, PyTracebackObject *first, ps_raise *raise)
{
    const struct seen *seen = seen_of(PS_ADDRESS(exception));
    bool same = ps_address_equal(seen->exception, PS_ADDRESS(exception)) &&
                ps_address_equal(seen->last, PS_ADDRESS(raise->origin));
    if (PS_LIKELY(!same || seen->entries >= raise->depth)) return;
    PyTracebackObject *entry = first;
    uint32_t fresh = raise->depth - seen->entries;
    for (uint32_t i = 1; i < fresh; i++) entry = entry->tb_next;
    if (is_break(entry, entry->tb_next)) *raise = (ps_raise){entry, fresh};
}

/* ---- Under way ---- */

static void take_out(uint32_t i)
{
    memmove(&handled.under_way[i], &handled.under_way[i + 1],
            (--handled.count - i) * sizeof(handled.under_way[0]));
}

static void rescued(const struct under_way *one)
{
    ps_row *row = ps_row_of(&ps_exception_table, one->row);
    if (!row) return;
    if (one->counted) {
        ps_exceptions_rescued_at(row, one->rescuer);
    } else {
        ps_exceptions_rescued(row, one->rescuer, one->depth == 1, ps_requests_counted());
        if (handled.wanted & PS_BIT(EXCEPTION__RESCUE))
            ps_exceptions_fire_rescue(row, one->rescuer, one->elapsed, one->depth - 1);
    }
    struct seen *seen = seen_of(one->exception);
    if (ps_address_equal(seen->exception, one->exception)) seen->rescued = one->row;
}

/*
 * Is a handler for it open on this thread, generators that run included? Of each only the innermost
 * handler is listed.
 */
static bool is_handled_now(PyThreadState *thread, ps_address exception)
{
    for (_PyErr_StackItem *item = thread->exc_info; item; item = item->previous_item)
        if (ps_address_equal(PS_ADDRESS(item->exc_value), exception)) return true;
    return false;
}

/*
 * Ends those of this thread whose handlers are over. Inner handlers end first, so the first one
 * that is not over ends the search.
 */
static void settle(PyThreadState *thread)
{
    for (uint32_t i = handled.count; i-- > 0;) {
        struct under_way *one = &handled.under_way[i];
        if (!ps_address_equal(one->thread, PS_ADDRESS(thread)) || one->passing) continue;
        if (is_handled_now(thread, one->exception)) return;
        rescued(one);
        take_out(i);
    }
}

static struct under_way *find(PyThreadState *thread, ps_address exception)
{
    for (uint32_t i = handled.count; i-- > 0;) {
        struct under_way *one = &handled.under_way[i];
        if (ps_address_equal(one->exception, exception) && ps_address_equal(one->thread, PS_ADDRESS(thread)))
            return one;
    }
    return NULL;
}

/* The place for a new one, to be filled in. */
static struct under_way *add(void)
{
    if (handled.count == UNDER_WAY) {
        if (!handled.under_way[0].passing) rescued(&handled.under_way[0]);
        take_out(0);
    }
    return &handled.under_way[handled.count++];
}

static uint64_t since_raise(ps_address exception, uint64_t now)
{
    for (uint32_t back = 1; back <= RAISES; back++) {
        uint32_t i = (handled.next_raise - back) % RAISES;
        if (ps_address_equal(handled.raises[i].exception, exception)) return now - handled.raises[i].at;
    }
    return 0;
}

/*
 * Did this exception come here from the handler that raised it on? Then it is in another handler of
 * the same frame, or has new entries before the old ones. Otherwise another exception has its
 * address by now.
 */
static bool came_on(const struct under_way *one, PyTracebackObject *top, uint32_t entries, PyCodeObject *code,
                    long offset)
{
    if (!one->passing || entries < one->entries) return false;
    if (entries == one->entries)
        return ps_address_equal(one->top, PS_ADDRESS(top)) &&
               (one->first.entries != entries || !ps_address_equal(one->first.code, PS_ADDRESS(code)) ||
                one->first.offset != offset);
    for (uint32_t i = one->entries; i < entries; i++) top = top->tb_next;
    return ps_address_equal(one->top, PS_ADDRESS(top));
}

/* ---- Events ---- */

enum event { RAISED, RAISED_ON, HANDLED };

static void raised(PyObject *exception, PyTracebackObject *top)
{
    if (!top) return;
    /*
     * Does it come from the frame below? Otherwise it is raised here, perhaps not for the first
     * time.
     */
    ps_address address = PS_ADDRESS(exception);
    bool from_below = top->tb_next && ps_address_equal(passed.exception, address) &&
                      ps_address_equal(passed.top, PS_ADDRESS(top->tb_next));
    passed.exception = address;
    passed.top = PS_ADDRESS(top);
    if (PS_LIKELY(from_below) || ps_exceptions_is_noise(exception)) return;
    /* `raise e` in a handler of e raises it on. */
    PyThreadState *thread = ps_thread_state();
    if (top->tb_next && find(thread, address) && is_handled_now(thread, address)) return;
    uint32_t i = handled.next_raise++ % RAISES;
    handled.raises[i].exception = address;
    handled.raises[i].at = ps_ticks();
    if (PS_ENABLED(EXCEPTION__RAISE)) {
        ps_raise raise = {top, 1};
        const ps_row *row = ps_raise_row(Py_TYPE(exception), top, &raise);
        ps_exceptions_fire_raise(row, raise.depth, ps_raise_cost(raise.depth));
    }
}

static void count_more(const struct under_way *one, uint32_t more)
{
    ps_row *row = ps_row_of(&ps_exception_table, one->row);
    if (row) ps_exceptions_deeper(row, one->depth, more, ps_raise_cost(more), ps_requests_counted());
}

/* `raise e` in a handler puts an entry before the others. */
static void add_entries(struct under_way *one, PyTracebackObject *top)
{
    uint32_t more = 0;
    PyTracebackObject *entry = top;
    while (entry && !ps_address_equal(one->top, PS_ADDRESS(entry)) && more < ENTRIES_ADDED) {
        entry = entry->tb_next;
        more++;
    }
    if (!more || !ps_address_equal(one->top, PS_ADDRESS(entry))) return;
    one->top = PS_ADDRESS(top);
    one->entries += more;
    one->depth += more;
    count_more(one, more);
}

static void raised_on(PyObject *exception, PyTracebackObject *top)
{
    PyThreadState *thread = ps_thread_state();
    if (ps_exceptions_is_noise(exception)) return;
    ps_address address = PS_ADDRESS(exception);
    passed.exception = address;
    passed.top = PS_ADDRESS(top);
    struct under_way *one = find(thread, address);
    for (uint32_t i = handled.count; !one && top && i-- > 0;) {
        /* except* leaves a part of a group, which is another object with the same traceback. */
        struct under_way *group = &handled.under_way[i];
        bool is = ps_address_equal(group->thread, PS_ADDRESS(thread)) &&
                  ps_address_equal(group->top, PS_ADDRESS(top));
        if (is && !group->passing) one = group;
    }
    struct seen *seen = seen_of(address);
    if (!one && ps_address_equal(seen->exception, address) && ps_row_of(&ps_exception_table, seen->rescued)) {
        one = add();
        *one = (struct under_way){.thread = PS_ADDRESS(thread),
                                  .top = seen->top,
                                  .entries = seen->entries,
                                  .depth = seen->entries,
                                  .row = seen->rescued,
                                  .counted = true};
    }
    if (!one) return;
    seen->rescued = (ps_row_ref){0};
    one->exception = address;
    one->passing = true;
    one->old = false;
    add_entries(one, top);
}

static void entered_handler(PyCodeObject *code, long offset, PyObject *exception, PyTracebackObject *top)
{
    PyThreadState *thread = ps_thread_state();
    ps_raise raise;
    if (ps_exceptions_is_noise(exception)) return;
    settle(thread);
    ps_address address = PS_ADDRESS(exception);
    struct under_way *known = find(thread, address), *one;
    /* If it comes from a handler that was suspended, it was raised on before. */
    if (!known && ps_address_equal(seen_of(address)->exception, address))
        seen_of(address)->rescued = (ps_row_ref){0};
    if (!is_statement(code, offset) || !ps_exceptions_whole(top, &raise)) return;
    passed.exception = PS_NO_ADDRESS;
    uint32_t entries = raise.depth;
    PyTracebackObject *last = raise.origin;
    const ps_site *rescuer = rescuer_at(code, offset);
    known = find(thread, address);
    if (known && came_on(known, top, entries, code, offset)) {
        struct under_way on = *known;
        take_out((uint32_t)(known - handled.under_way));
        on.depth += entries - on.entries;
        count_more(&on, entries - on.entries);
        on.passing = on.old = false;
        one = add();
        *one = on;
    } else {
        if (known) take_out((uint32_t)(known - handled.under_way));
        narrow_to_last(exception, top, &raise);
        ps_row *row = ps_raise_row(Py_TYPE(exception), top, &raise);
        ps_exceptions_raised(row, raise.depth, ps_raise_cost(raise.depth), ps_requests_counted());
        if (PS_ENABLED(EXCEPTION__DETAIL)) ps_raise_detail(row, exception, top, raise.depth);
        one = add();
        one->exception = address;
        one->thread = PS_ADDRESS(thread);
        one->row = ps_row_keep(&ps_exception_table, row);
        one->depth = raise.depth;
        one->passing = one->counted = one->old = false;
        one->first.code = PS_ADDRESS(code);
        one->first.offset = offset;
        one->first.entries = entries;
    }
    one->top = PS_ADDRESS(top);
    one->entries = entries;
    one->rescuer = rescuer;
    one->elapsed = (handled.wanted & PS_BIT(EXCEPTION__RESCUE)) ? since_raise(address, ps_ticks()) : 0;
    *seen_of(address) =
        (struct seen){address, PS_ADDRESS(top), PS_ADDRESS(last), entries, ++handled.seen_number, {0}};
}

/* At the first handler the span of the raise is still the current one. */
void ps_exceptions_span(ps_span *span, PyObject *exception, PyTracebackObject *first, uint32_t depth)
{
    ps_span_current(span, PS_BIT(EXCEPTION__DETAIL));
}

/*
 * Called by CPython on the thread that raises, with the GIL. CPython has put the raised exception
 * aside.
 */
static PyObject *tell(enum event event, PyObject *const *args, Py_ssize_t count)
{
    if (count < 3) return ps_monitoring_go_on();
    ps_look look = ps_look_begin(PS_LOOK_EXCEPTION);
    ps_turn turn;
    ps_turn_begin(&turn);
    /* Without a GIL an event may still arrive after the hooks were taken out. */
    if (PS_HAVE_GIL || handled.wanted) {
        PyTracebackObject *top = ps_traceback(args[2]);
        if (event == RAISED) raised(args[2], top);
        else if (event == RAISED_ON) raised_on(args[2], top);
        else entered_handler((PyCodeObject *)args[0], PyLong_AsLong(args[1]), args[2], top);
        Py_XDECREF((PyObject *)top);
    }
    ps_turn_end(&turn);
    ps_look_end(look);
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
/* NULL: the thread has ended. */
static PyThreadState *alive(ps_address thread)
{
    PyThreadState *one = ps_first_thread(PyInterpreterState_Main());
    while (one && !ps_address_equal(thread, PS_ADDRESS(one))) one = PyThreadState_Next(one);
    return one;
}

/* Is number i still passing, or in a handler that is open? */
static bool goes_on(uint32_t i, bool last)
{
    const struct under_way *one = &handled.under_way[i];
    PyThreadState *thread = alive(one->thread);
    if (!thread) return false;
    if (one->passing) return !one->old;
    /* Inner handlers of a thread come later in the list, and hide its outer ones. */
    for (uint32_t j = i + 1; j < handled.count; j++)
        if (ps_address_equal(handled.under_way[j].thread, one->thread) && !handled.under_way[j].passing)
            return true;
    return is_handled_now(thread, one->exception);
}

/* After a fork, what the parent's other threads had under way is left to the parent. */
static bool is_ours(const struct under_way *one, bool forked)
{
    return !forked || alive(one->thread);
}
#else
/*
 * Without a GIL no thread can see what another one handles. So some time after it began, a handler
 * counts as one that rescued.
 */
static bool goes_on(uint32_t i, bool last)
{
    const struct under_way *one = &handled.under_way[i];
    return ps_address_equal(one->thread, PS_ADDRESS(ps_thread_state())) || (!one->old && !last);
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
    ps_known_clear(&rescuers);
}

static unsigned events_for(ps_probe_set wanted)
{
    if (!wanted) return 0;
    bool raises = (wanted & (PS_BIT(EXCEPTION__RAISE) | PS_BIT(EXCEPTION__RESCUE))) != 0;
    return PS_ON_HANDLED | PS_ON_RERAISE | (raises ? PS_ON_RAISE : 0);
}

bool ps_exceptions_hook(ps_probe_set wanted)
{
    const char *reason = NULL;
    bool done = ps_monitoring_ask(PS_MONITORING_EXCEPTIONS, events_for(wanted), &reason);
    if (!handled.wanted || !wanted) memset(&handled, 0, sizeof(handled));
    handled.wanted = done ? wanted : 0;
    handled.process = getpid();
    if (!done) ps_info_states(wanted & ps_exceptions_feature.probes, PS_STATE_REFUSED, reason);
    return done && wanted;
}

#endif

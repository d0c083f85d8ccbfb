/*
 * Exceptions: a :raise TracePoint, which costs nothing in a program that does not raise.
 *
 * What a backtrace costs. The VM captures it before the :raise event, and the capture first
 * allocates a T_DATA. The time from that allocation to the event is the cost. If the exception's
 * "bt" is another object, the raise was a re-raise or had an explicit backtrace, and nothing was
 * captured. A NEWOBJ hook sees the allocation. So the hook and the event bracket the capture. The
 * hook would cost every allocation 20-40 ns, so a bracket is armed for one raise in 16, later one
 * in 64. The distances are random, so that no rhythm of the program meets them. A raise site that
 * has not been measured yet arms one as well. The other raises of a site are charged what its
 * measured ones cost for their depth. While none was measured, they are charged what frames cost
 * when the library was loaded.
 *
 * Freeing the memory costs too, later, in the sweep of a garbage collection: a quarter of the whole
 * in a parser whose heap is large. While a bracket is armed, a FREEOBJ hook is in as well. It times
 * the objects of that type, each from its event to the next one. Every captured backtrace is
 * charged its share of that, by its depth.
 *
 * The depth is read in O(1) from the size of that T_DATA. How the size depends on the depth is
 * found out when the library is loaded, by raises at known depths. If that fails, the frames are
 * counted.
 *
 * A program that allocates and does not raise pays for neither hook. A bracket without a raise ends
 * after DISARM_NS. The next bracket comes after nine times as long, and lasts twice as long, so
 * that even a raise a second is measured. Frees are watched once a backtrace was captured, for
 * FREES_NS after the last bracket began. All these times are CPU time of the process: hooks cost a
 * sleeping process nothing, and it takes none out before it wakes up.
 */
#include <ruby/ruby.h>
#include <ruby/debug.h>

#include <malloc.h>
#include <string.h>

#include "base/address.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/random.h"
#include "features/backtraces.h"
#include "features/exceptions.h"
#include "features/requests.h"
#include "table/flush.h"
#include "table/row_ref.h"
#include "table/table.h"
#include "usdt/info.h"
#include "usdt/looking.h"
#include "usdt/probe.h"
#include "compat.h"
#include "hooks.h"
#include "names.h"
#include "string_coverage.h"

enum {
    BRACKET_EVERY = 16,
    BRACKET_RARELY = 64,
    BRACKETS_FIRST = 1024,
    OUTLIER = 8,
    RECENT = 8, /* exceptions to remember: each look-up goes through all of them, so there are few */
    RESCUERS = 32,
    FRAMES_COUNTED = 2048,
    LOOK_NEAR = 6
};
#define DISARM_NS 50000000u
/* DISARM_NS is doubled after each bracket without a raise, at most so many times. */
#define EMPTY_MOST 5u
/* After a bracket without a raise none is armed for so many times as long. */
#define EMPTY_REST 9u
#define FREES_NS   250000000u
/* Once so many freed backtraces were timed, the hook of frees goes out with the bracket. */
#define FREES_FIRST 256u
/*
 * What a capture costs besides its frames, counted in frames. So sites of varying depth are charged
 * fairly.
 */
#define FIXED_FRAMES 64u

enum depth_method { BY_COUNTING, BY_DSIZE, BY_MALLOC };

/*
 * The place of a raise, to compare with the place of its rescue. The rescuing method is on the
 * stack since before the raise, so no other method had its address at the raise. Equal addresses
 * therefore mean one method (docs/decisions/157).
 */
struct place {
    ps_address frame;
    ps_address file; /* of code outside of methods, which has a frame for each block; else unset */
};

static struct {
    VALUE raise_hook, newobj_hook, free_hook, rescue_hook;
    bool on, rescue_on, armed, free_armed;
    uint64_t armed_ns;                    /* CPU time of the process, like all times of brackets */
    uint64_t rest_from_ns, rest_until_ns; /* no bracket between them */
    uint32_t empty;         /* brackets without a raise since the last measured one, or since the attach */
    uint32_t until_bracket; /* raises until the next bracket */
    uint32_t random;
    uint64_t brackets;    /* measured raises */
    uint64_t cost, depth; /* of all measured raises, for a site without one */
    struct {
        uint64_t ns;
        uint32_t depth;
    } at_load; /* what so many frames cost there; used until a raise is measured */
    struct {
        uint64_t cost, depth, count; /* of all measured frees */
        uint64_t began;              /* ticks; 0: no free is being timed */
        uint32_t of_depth;
        const rb_data_type_t *type; /* of a backtrace, once one was seen */
    } freeing;
    struct {
        ps_address object; /* the last T_DATA that was allocated while armed */
        uint64_t at;       /* ticks */
    } capture;
    /*
     * The last raises: to recognise a re-raise, and to time a rescue. Their objects are not kept
     * alive.
     */
    struct {
        ps_address exception, backtrace;
        struct place raised_in; /* unset when no rescue is hooked */
        ps_row_ref row, origin; /* origin: of the first raise, when this is a re-raise */
        uint64_t at;            /* ticks */
        uint32_t depth;
    } recent[RECENT];
    uint32_t next_recent;
    /*
     * Places where exceptions were rescued. Making a name takes longer than all else at a rescue,
     * and few places rescue most exceptions.
     */
    struct rescuer {
        ps_address path, klass, method_id;
        long line;
        const ps_site *site;
    } rescuers[RESCUERS];
} raises = {.raise_hook = Qnil, .newobj_hook = Qnil, .free_hook = Qnil, .rescue_hook = Qnil};

PS_KEPT(PS_HELD(raises.raise_hook), PS_HELD(raises.newobj_hook), PS_HELD(raises.free_hook),
        PS_HELD(raises.rescue_hook),
        /* The allocation just before a raise: a raise with another object compares unequal. */
        PS_LASTING(raises.capture),
        /*
     * An exception that is raised again or rescued is alive, so its entry is its own or an older
     * one. The method of a rescue: see struct place.
     */
        PS_LASTING(raises.recent), PS_COMPARED(raises.rescuers))

/* Class, path and line of a raise -> its row. */
static ps_known_table known_raises = PS_KNOWN_TABLE;

static struct {
    enum depth_method method;
    size_t base, frame; /* bytes: size = base + frame * depth */
} depths;

static ID id_bt, id_mesg;

/* ---- Depth ---- */

static size_t backtrace_size(VALUE backtrace, enum depth_method method)
{
    if (method == BY_DSIZE) {
        size_t (*dsize)(const void *) = RTYPEDDATA_TYPE(backtrace)->function.dsize;
        return dsize ? dsize(ps_typed_data(backtrace)) : 0;
    }
#ifdef HAVE_MALLOC_USABLE_SIZE
    if (!ps_data_embedded(backtrace)) return malloc_usable_size(RTYPEDDATA_DATA(backtrace));
#endif
    return 0;
}

static uint32_t count_frames(void)
{
    static VALUE frames[FRAMES_COUNTED];
    static int lines[FRAMES_COUNTED];
    int count = rb_profile_frames(0, FRAMES_COUNTED, frames, lines);
    return count > 0 ? (uint32_t)count : 0;
}

/* The number of frames in a backtrace, the exception's "bt": the VM's T_DATA, an Array, or nil. */
static uint32_t depth_of(VALUE backtrace)
{
    if (RB_TYPE_P(backtrace, T_ARRAY)) return (uint32_t)RARRAY_LEN(backtrace);
    if (!RB_TYPE_P(backtrace, T_DATA) || !RTYPEDDATA_P(backtrace)) return 0;
    size_t size = depths.method == BY_COUNTING ? 0 : backtrace_size(backtrace, depths.method);
    if (size <= depths.base) return count_frames();
    return (uint32_t)((size - depths.base + depths.frame / 2) / depths.frame);
}

/*
 * times: ns of each raise with its rescue in the same frame, so that the difference of two is that
 * of their backtraces.
 */
static void learn_at_load(VALUE known_depths, VALUE times)
{
    long last = RARRAY_LEN(times) - 1;
    long long ns = NUM2LL(RARRAY_AREF(times, last)) - NUM2LL(RARRAY_AREF(times, 0));
    long depth = NUM2LONG(RARRAY_AREF(known_depths, last)) - NUM2LONG(RARRAY_AREF(known_depths, 0));
    if (ns <= 0 || depth <= 0) return;
    raises.at_load.ns = (uint64_t)ns;
    raises.at_load.depth = (uint32_t)depth;
}

/* Does size = base + frame * depth hold for all raises, within `slack`? */
static bool fits(const size_t *size, const long *depth, long count, size_t slack)
{
    for (long i = 0; i < count; i++) {
        size_t expected = depths.base + depths.frame * (size_t)depth[i];
        size_t error = size[i] > expected ? size[i] - expected : expected - size[i];
        if (!size[i] || error > slack) return false;
    }
    return true;
}

VALUE ps_exceptions_calibrate(VALUE self, VALUE exceptions, VALUE known_depths, VALUE times)
{
    enum { MOST = 8 };
    size_t size[MOST];
    long depth[MOST], count = RARRAY_LEN(exceptions);
    depths.method = BY_COUNTING;
    learn_at_load(known_depths, times);
    if (count < 3 || count > MOST) return rb_id2sym(rb_intern("counted"));
    for (enum depth_method method = BY_DSIZE; method <= BY_MALLOC; method++) {
        for (long i = 0; i < count; i++) {
            VALUE backtrace = rb_attr_get(RARRAY_AREF(exceptions, i), id_bt);
            bool usable = RB_TYPE_P(backtrace, T_DATA) && RTYPEDDATA_P(backtrace);
            depth[i] = NUM2LONG(RARRAY_AREF(known_depths, i));
            size[i] = usable ? backtrace_size(backtrace, method) : 0;
        }
        if (size[count - 1] <= size[0] || depth[count - 1] <= depth[0]) continue;
        /* A frame is a multiple of 8 bytes. malloc rounds up to 16, which the slack allows for. */
        double slope = (double)(size[count - 1] - size[0]) / (double)(depth[count - 1] - depth[0]);
        depths.frame = (size_t)(slope / 8 + 0.5) * 8;
        if (!depths.frame || size[0] < depths.frame * (size_t)depth[0]) continue;
        depths.base = size[0] - depths.frame * (size_t)depth[0];
        if (fits(size, depth, count, method == BY_DSIZE ? 0 : depths.frame)) {
            depths.method = method;
            return rb_id2sym(rb_intern(method == BY_DSIZE ? "dsize" : "malloc"));
        }
    }
    return rb_id2sym(rb_intern("counted"));
}

/* ---- Cost ---- */

static void note_allocation(VALUE tracepoint, void *unused)
{
    VALUE object = rb_tracearg_object(rb_tracearg_from_tracepoint(tracepoint));
    if (RB_BUILTIN_TYPE(object) != RUBY_T_DATA) return;
    raises.capture.object = PS_ADDRESS(object);
    raises.capture.at = ps_ticks();
}

/*
 * Called by Ruby at each allocation while a bracket is armed. It neither allocates nor reads a
 * class.
 */
static void on_newobj(VALUE tracepoint, void *unused)
{
    ps_look look = ps_look_begin(PS_LOOK_BRACKET);
    note_allocation(tracepoint, unused);
    ps_look_end(look);
}

static uint64_t per_depth(uint64_t cost, uint64_t measured_depth, uint32_t depth)
{
    return measured_depth ? (uint64_t)((unsigned __int128)cost * (depth + FIXED_FRAMES) / measured_depth) : 0;
}

static void end_freeing(uint64_t now)
{
    uint64_t cost = now - raises.freeing.began;
    uint64_t expected = per_depth(raises.freeing.cost, raises.freeing.depth, raises.freeing.of_depth);
    raises.freeing.began = 0;
    /* As in learn(). Besides, other work of the collector may follow the last free of a step. */
    if (expected && cost > OUTLIER * expected) cost = expected;
    if (expected > OUTLIER * cost) raises.freeing.cost = raises.freeing.depth = 0;
    raises.freeing.cost += cost;
    raises.freeing.depth += raises.freeing.of_depth + FIXED_FRAMES;
    raises.freeing.count++;
}

static void note_free(VALUE tracepoint, void *unused)
{
    uint64_t now = ps_ticks();
    if (raises.freeing.began) end_freeing(now);
    rb_trace_arg_t *arg = rb_tracearg_from_tracepoint(tracepoint);
    if (rb_tracearg_event_flag(arg) != RUBY_INTERNAL_EVENT_FREEOBJ) return;
    VALUE object = rb_tracearg_object(arg);
    if (RB_BUILTIN_TYPE(object) != RUBY_T_DATA || !RTYPEDDATA_P(object)) return;
    if (RTYPEDDATA_TYPE(object) != raises.freeing.type) return;
    /* The first access to the object is part of what freeing costs, so the time began before it. */
    raises.freeing.of_depth = depth_of(object);
    raises.freeing.began = now;
}

/*
 * Called by Ruby inside the collector, before an object is freed and when a step of the collector
 * ends.
 */
static void on_free(VALUE tracepoint, void *unused)
{
    ps_look look = ps_look_begin(PS_LOOK_BRACKET);
    note_free(tracepoint, unused);
    ps_look_end(look);
}

static void watch_frees(bool on)
{
    if (on == raises.free_armed) return;
    raises.free_armed = on;
    raises.freeing.began = 0;
    if (on) rb_tracepoint_enable(raises.free_hook);
    else rb_tracepoint_disable(raises.free_hook);
}

static void arm(void)
{
    if (raises.armed || !ps_newobj_allowed()) return;
    uint64_t now = ps_process_cpu_ns();
    /* In a forked child this clock begins anew. */
    if (now >= raises.rest_from_ns && now < raises.rest_until_ns) return;
    raises.armed = true;
    raises.armed_ns = now;
    raises.capture.object = PS_NO_ADDRESS;
    rb_tracepoint_enable(raises.newobj_hook);
    if (raises.freeing.type) watch_frees(true);
}

static void disarm(void)
{
    if (!raises.armed) return;
    raises.armed = false;
    rb_tracepoint_disable(raises.newobj_hook);
    if (raises.freeing.count >= FREES_FIRST) watch_frees(false);
}

void ps_exceptions_forbid_newobj(void)
{
    disarm();
    watch_frees(false);
    ps_info_state(PS_PROBE_EXCEPTION__STATS, PS_STATE_DEGRADED, ps_newobj_reason());
}

static uint64_t longest_bracket(void)
{
    return (uint64_t)DISARM_NS << PS_READ(raises.empty);
}

/* Is a bracket armed to which no raise came? It costs every allocation and is to be taken out. */
static bool needs_disarm(void)
{
    if (!PS_READ(raises.armed) && !PS_READ(raises.free_armed)) return false;
    uint64_t since = ps_process_cpu_ns() - PS_READ(raises.armed_ns);
    return since > (PS_READ(raises.armed) ? longest_bracket() : FREES_NS);
}

/* No raise came: the hooks cost allocations and frees for nothing. */
static void disarm_unused(void)
{
    if (!needs_disarm()) return;
    if (raises.armed) {
        uint64_t now = ps_process_cpu_ns(), lasted = now - raises.armed_ns;
        raises.rest_from_ns = now;
        raises.rest_until_ns =
            now + EMPTY_REST * (lasted < 2 * longest_bracket() ? lasted : longest_bracket());
        if (raises.empty < EMPTY_MOST) raises.empty++;
        disarm();
    }
    watch_frees(false);
}

static uint32_t next_distance(void)
{
    uint32_t mean = raises.brackets < BRACKETS_FIRST ? BRACKET_EVERY : BRACKET_RARELY;
    return 1 + ps_random(&raises.random) % (2 * mean - 1);
}

/* By measured raises; 0: there are none. */
static uint64_t expected_cost(const ps_row *row, uint32_t depth)
{
    if (row->exception.depth) return per_depth(row->exception.cost, row->exception.depth, depth);
    return per_depth(raises.cost, raises.depth, depth);
}

static uint64_t estimate(const ps_row *row, uint32_t depth)
{
    if (row->exception.depth || raises.depth) return expected_cost(row, depth);
    return per_depth(ps_ns_to_ticks(raises.at_load.ns), raises.at_load.depth, depth);
}

/*
 * Learns from a measured raise. If the thread was descheduled or interrupted, the capture seems to
 * take microseconds to milliseconds. A cost so far above the expected one counts as the expected
 * one. If the first measured raise was such a one, the next one costs far less than expected, and
 * what was learnt is forgotten.
 */
static uint64_t learn(ps_row *row, uint64_t cost, uint32_t depth)
{
    uint64_t expected = expected_cost(row, depth);
    if (expected && cost > OUTLIER * expected) cost = expected;
    if (expected > OUTLIER * cost)
        row->exception.cost = row->exception.depth = raises.cost = raises.depth = 0;
    row->exception.cost += cost;
    row->exception.depth += depth + FIXED_FRAMES;
    raises.brackets++;
    raises.cost += cost;
    raises.depth += depth + FIXED_FRAMES;
    /* Halve the past, so that the cost follows a site that changes. */
    if (row->exception.depth > 512u * (depth + FIXED_FRAMES)) {
        row->exception.cost /= 2;
        row->exception.depth /= 2;
    }
    if (raises.depth > UINT32_MAX) {
        raises.cost /= 2;
        raises.depth /= 2;
    }
    return cost;
}

/*
 * The row of the first raise, if this exception with this backtrace is among the last raises; else
 * NULL.
 */
static ps_row *find_origin(VALUE exception, VALUE backtrace)
{
    for (int i = 0; i < RECENT; i++)
        if (ps_address_equal(raises.recent[i].exception, PS_ADDRESS(exception)) &&
            ps_address_equal(raises.recent[i].backtrace, PS_ADDRESS(backtrace)))
            return ps_row_of(&ps_exception_table, raises.recent[i].origin);
    return NULL;
}

/*
 * Ticks that this exception's backtrace costs: its capture, which ended at `now`, and the freeing
 * of its memory later.
 */
static uint64_t backtrace_cost(ps_row *row, VALUE exception, VALUE backtrace, uint32_t depth, uint64_t now)
{
    bool captured = RB_TYPE_P(backtrace, T_DATA);
    if (captured) raises.freeing.type = RTYPEDDATA_TYPE(backtrace);
    uint64_t cost = 0;
    if (raises.armed) {
        if (captured && ps_address_equal(PS_ADDRESS(backtrace), raises.capture.object))
            cost = learn(row, now - raises.capture.at, depth);
        disarm();
        raises.empty = 0;
        raises.until_bracket = next_distance();
    } else if (captured && !find_origin(exception, backtrace)) {
        /* An exception with an origin was raised again: nothing was captured now. */
        cost = estimate(row, depth);
    }
    if (captured && raises.until_bracket) raises.until_bracket--;
    if (captured && (!row->exception.depth || !raises.until_bracket)) arm();
    if (cost) cost += per_depth(raises.freeing.cost, raises.freeing.depth, depth);
    return cost;
}

/* ---- Raise ---- */

struct stack {
    VALUE frames[PS_LINES_LOOKED_AT];
    int lines[PS_LINES_LOOKED_AT], count;
};

static ps_line_kind kind_of_line(void *of, int number)
{
    const struct stack *stack = of;
    if (number >= stack->count) return PS_NO_LINE;
    return ps_is_own_path(rb_profile_frame_path(stack->frames[number])) ? PS_OWN_LINE : PS_OTHER_LINE;
}

/* The nearest line of the application's own code, or NULL. */
static const ps_site *find_app_site(void)
{
    struct stack stack;
    stack.count = rb_profile_frames(0, PS_LINES_LOOKED_AT, stack.frames, stack.lines);
    int own = ps_nearest_own_line(kind_of_line, &stack, NULL);
    if (own < 0) return NULL;
    return ps_ruby_site("", 0, rb_profile_frame_path(stack.frames[own]), stack.lines[own]);
}

static bool is_internal(VALUE path)
{
    static const char internal[] = "<internal:";
    return RB_TYPE_P(path, T_STRING) && RSTRING_LEN(path) >= (long)sizeof(internal) - 1 &&
           memcmp(RSTRING_PTR(path), internal, sizeof(internal) - 1) == 0;
}

/*
 * The nearest frame that is neither a C function, which has no path, nor a method that Ruby has in
 * Ruby, such as Integer() from 3.3 on in <internal:kernel>. 0: none of the nearest frames is.
 */
static VALUE nearest_frame(int *line)
{
    VALUE frames[LOOK_NEAR];
    int lines[LOOK_NEAR];
    int count = rb_profile_frames(0, LOOK_NEAR, frames, lines);
    for (int i = 0; i < count; i++) {
        VALUE path = rb_profile_frame_path(frames[i]);
        if (NIL_P(path) || is_internal(path)) continue;
        *line = lines[i];
        return frames[i];
    }
    return 0;
}

/* frame: returned by nearest_frame(). */
static struct place place_of(VALUE frame)
{
    if (!frame) return (struct place){PS_NO_ADDRESS, PS_NO_ADDRESS};
    bool in_method = !NIL_P(rb_profile_frame_method_name(frame));
    return (struct place){PS_ADDRESS(frame),
                          in_method ? PS_NO_ADDRESS : PS_ADDRESS(rb_profile_frame_path(frame))};
}

#if PS_HAVE_RESCUE_EVENT
/* Are both places in one method, blocks included? */
static bool is_same_method(struct place one, struct place other)
{
    if (!ps_address_known(one.frame) || !ps_address_known(other.frame)) return false;
    if (ps_address_equal(one.frame, other.frame)) return true;
    return ps_address_known(one.file) && ps_address_equal(one.file, other.file);
}
#endif

/* A raise at this place. */
struct raise {
    rb_trace_arg_t *arg;
    VALUE path;
    long line;
};

static void find_places(const void *of, const ps_site **function, const ps_site **app)
{
    const struct raise *raise = of;
    char name[PS_NAME_BUFFER];
    size_t size = ps_event_name(name, raise->arg);
    *app = find_app_site();
    *function = ps_ruby_site(name, size, raise->path, raise->line);
}

/* The row of a raise at this place. Classes of the same name that are raised there share it. */
static ps_row *row_of_raise(VALUE klass, const struct raise *raise)
{
    ps_key key = PS_KEY(klass, raise->path, raise->line);
    const ps_known *known = ps_known_find(&known_raises, key);
    if (PS_LIKELY(known && ps_known_is_current(known, key))) return known->what;
    char name[PS_NAME_BUFFER];
    size_t size = ps_class_name(name, klass);
    const ps_site *site = ps_ruby_site(name, size, raise->path, raise->line);
    ps_row *row = ps_exceptions_row(site, NULL, find_places, raise);
    /* The overflow row is looked up each time: ps_table_row() counts what goes there. */
    if (!ps_row_is_overflow(&ps_exception_table, row)) ps_known_put(&known_raises, key, row);
    return row;
}

static ps_row *find_row(rb_trace_arg_t *arg, VALUE exception, struct place *raised_in)
{
    struct raise raise = {arg, rb_tracearg_path(arg), NUM2LONG(rb_tracearg_lineno(arg))};
    bool internal = is_internal(raise.path);
    *raised_in = place_of(0);
    if (raises.rescue_on || internal) {
        int nearest_line;
        VALUE nearest = nearest_frame(&nearest_line);
        if (raises.rescue_on) *raised_in = place_of(nearest);
        if (nearest && internal) {
            raise.path = rb_profile_frame_path(nearest);
            raise.line = nearest_line;
        }
    }
    return row_of_raise(rb_obj_class(exception), &raise);
}

static void fire_detail(ps_row *row, VALUE exception, uint32_t depth, uint64_t cost)
{
    if (!ps_exceptions_detail_due(row)) return;
    /*
     * Only a String that is stored: `message` may be the application's method, and making a message
     * may call inspect.
     */
    VALUE stored = rb_attr_get(exception, id_mesg);
    char message[PS_MESSAGE_BUFFER] = "";
    if (RB_TYPE_P(stored, T_STRING))
        ps_copy_utf8(message, sizeof(message), RSTRING_PTR(stored), (size_t)RSTRING_LEN(stored));
    ps_span span;
    ps_span_current(&span, PS_BIT(EXCEPTION__DETAIL));
    ps_exceptions_fire_detail(row, depth, cost, message, &span);
}

static void remember(VALUE exception, VALUE backtrace, struct place raised_in, ps_row *row, uint64_t at,
                     uint32_t depth)
{
    ps_row *origin = find_origin(exception, backtrace);
    uint32_t i = raises.next_recent++ % RECENT;
    raises.recent[i].exception = PS_ADDRESS(exception);
    raises.recent[i].backtrace = PS_ADDRESS(backtrace);
    raises.recent[i].raised_in = raised_in;
    raises.recent[i].row = ps_row_keep(&ps_exception_table, row);
    raises.recent[i].origin = ps_row_keep(&ps_exception_table, origin ? origin : row);
    raises.recent[i].at = at;
    raises.recent[i].depth = depth;
}

static void count_raise(VALUE tracepoint, void *unused)
{
    uint64_t now = ps_ticks();
    if (PS_UNLIKELY(!ps_is_main_ractor())) return;
    rb_trace_arg_t *arg = rb_tracearg_from_tracepoint(tracepoint);
    VALUE exception = rb_tracearg_raised_exception(arg);
    if (RB_SPECIAL_CONST_P(exception)) return;
    VALUE backtrace = rb_attr_get(exception, id_bt);
    uint32_t depth = depth_of(backtrace);
    struct place raised_in;
    ps_row *row = find_row(arg, exception, &raised_in);
    uint64_t cost = backtrace_cost(row, exception, backtrace, depth, now);

    ps_exceptions_raised(row, depth, cost, ps_requests_counted());
    remember(exception, backtrace, raised_in, row, now, depth);
    if (PS_ENABLED(EXCEPTION__RAISE)) ps_exceptions_fire_raise(row, depth, cost);
    if (PS_ENABLED(EXCEPTION__DETAIL)) fire_detail(row, exception, depth, cost);
}

/* Called by Ruby on the raising thread, with the VM lock, after the backtrace was captured. */
static void on_raise(VALUE tracepoint, void *unused)
{
    ps_look look = ps_look_begin(PS_LOOK_EXCEPTION);
    count_raise(tracepoint, unused);
    ps_look_end(look);
}

/* ---- Strings ---- */

ps_row *ps_exceptions_origin(VALUE exception, VALUE backtrace)
{
    return raises.on ? find_origin(exception, backtrace) : NULL;
}

ps_row *ps_exceptions_unseen(const ps_site *raised)
{
    return raises.on ? ps_exceptions_row(raised, NULL, NULL, NULL) : NULL;
}

/* ---- Rescue ---- */

#if PS_HAVE_RESCUE_EVENT
static const ps_site *rescue_site(rb_trace_arg_t *arg, VALUE path)
{
    VALUE klass = rb_tracearg_defined_class(arg), method_id = rb_tracearg_method_id(arg);
    long line = NUM2LONG(rb_tracearg_lineno(arg));
    struct rescuer *kept = &raises.rescuers[(path / sizeof(VALUE) + (uintptr_t)line) % RESCUERS];
    bool known = ps_address_equal(kept->path, PS_ADDRESS(path)) &&
                 ps_address_equal(kept->klass, PS_ADDRESS(klass)) &&
                 ps_address_equal(kept->method_id, PS_ADDRESS(method_id)) && kept->line == line;
    if (!known) {
        char name[PS_NAME_BUFFER];
        size_t size = ps_event_name(name, arg);
        const ps_site *site = ps_ruby_site(name, size, path, line);
        *kept = (struct rescuer){PS_ADDRESS(path), PS_ADDRESS(klass), PS_ADDRESS(method_id), line, site};
    }
    return kept->site;
}

/*
 * The frames of the rescuing method and its callers. A `rescue` clause is a frame of its own, on top
 * of its method's. A rescue in C, whose frame has no path, has no clause.
 */
static uint32_t depth_of_rescue(void)
{
    VALUE top;
    int line;
    bool clause = rb_profile_frames(0, 1, &top, &line) == 1 && !NIL_P(rb_profile_frame_path(top));
    return count_frames() - clause;
}

static void count_rescue(VALUE tracepoint, void *unused)
{
    if (PS_UNLIKELY(!ps_is_main_ractor())) return;
    rb_trace_arg_t *arg = rb_tracearg_from_tracepoint(tracepoint);
    VALUE exception = rb_tracearg_raised_exception(arg), path = rb_tracearg_path(arg);
    /*
     * `loop` rescues its StopIteration in <internal:kernel>, which no code of the application does.
     */
    if (is_internal(path)) return;
    for (uint32_t back = 1; back <= RECENT; back++) {
        uint32_t i = (raises.next_recent - back) % RECENT;
        if (!ps_address_equal(raises.recent[i].exception, PS_ADDRESS(exception))) continue;
        ps_row *row = ps_row_of(&ps_exception_table, raises.recent[i].row);
        if (!row) return;
        const ps_site *site = rescue_site(arg, path);
        int unused;
        bool at_once = is_same_method(raises.recent[i].raised_in, place_of(nearest_frame(&unused)));
        ps_exceptions_rescued(row, site, at_once, ps_requests_counted());
        if (PS_ENABLED(EXCEPTION__RESCUE)) {
            uint32_t now_deep = depth_of_rescue(), raised_deep = raises.recent[i].depth;
            ps_exceptions_fire_rescue(row, site, ps_ticks() - raises.recent[i].at,
                                      raised_deep > now_deep ? raised_deep - now_deep : 0);
        }
        return;
    }
}

/*
 * Called by Ruby on the rescuing thread, with the VM lock, before the first line of the matching
 * clause.
 */
static void on_rescue(VALUE tracepoint, void *unused)
{
    ps_look look = ps_look_begin(PS_LOOK_EXCEPTION);
    count_rescue(tracepoint, unused);
    ps_look_end(look);
}

static bool rescue_wanted(ps_probe_set wanted)
{
    return (wanted & (PS_BIT(EXCEPTION__RESCUE) | PS_BIT(EXCEPTION__STATS))) != 0;
}

static void switch_rescue(bool on)
{
    if (on == raises.rescue_on) return;
    if (NIL_P(raises.rescue_hook))
        PS_KEEP(raises.rescue_hook, rb_tracepoint_new(0, RUBY_EVENT_RESCUE, on_rescue, NULL));
    if (on) rb_tracepoint_enable(raises.rescue_hook);
    else rb_tracepoint_disable(raises.rescue_hook);
    raises.rescue_on = on;
}
#endif

/* ---- On and off ---- */

void ps_exceptions_init(void)
{
    id_bt = rb_intern("bt");
    id_mesg = rb_intern("mesg");
    PS_KEEP(raises.newobj_hook, rb_tracepoint_new(0, RUBY_INTERNAL_EVENT_NEWOBJ, on_newobj, NULL));
    PS_KEEP(raises.free_hook,
            rb_tracepoint_new(0, RUBY_INTERNAL_EVENT_FREEOBJ | RUBY_INTERNAL_EVENT_GC_EXIT, on_free, NULL));
    PS_KEEP(raises.raise_hook, rb_tracepoint_new(0, RUBY_EVENT_RAISE, on_raise, NULL));
}

#if !PS_HAVE_RESCUE_EVENT
static const char *why_no_rescue(void)
{
    return "Ruby tells of rescues from 3.3 on";
}
#endif

static void forget(void)
{
    ps_known_clear(&known_raises);
}

static bool hook(ps_probe_set wanted)
{
    bool on = (wanted & ps_exceptions_feature.probes) != 0;
#if PS_HAVE_RESCUE_EVENT
    switch_rescue(rescue_wanted(wanted));
#endif
    if (on == raises.on) return true;
    if (on) {
        memset(raises.recent, 0, sizeof(raises.recent));
        memset(raises.rescuers, 0, sizeof(raises.rescuers));
        raises.random = (uint32_t)ps_monotonic_ns() | 1;
        raises.until_bracket = next_distance();
        raises.rest_from_ns = raises.rest_until_ns = raises.empty = 0;
        rb_tracepoint_enable(raises.raise_hook);
        arm();
    } else {
        rb_tracepoint_disable(raises.raise_hook);
        disarm();
        watch_frees(false);
        memset(&raises.freeing, 0, sizeof(raises.freeing));
    }
    raises.on = on;
    return true;
}

const ps_hooks ps_exceptions_hooks = {
    .feature = &ps_exceptions_feature,
    .hook = hook,
    .refused = ps_jit_refuses_raises,
#if !PS_HAVE_RESCUE_EVENT
    .unsupported = PS_BIT(EXCEPTION__RESCUE),
    .why = why_no_rescue,
#endif
    .forget = forget,
    .needs_upkeep = needs_disarm,
    .upkeep = disarm_unused,
};

/*
 * Waits, from Ruby's thread events (thread_events.h): neither calls nor the kernel are hooked.
 *
 *   SUSPENDED  reads the frames: the method that waits, and the line of the application
 *   READY      the time until now was blocked. Where another thread of the program made this one
 *              ready, such as by unlocking a Mutex, its line ended the wait.
 *   RESUMED    the time since READY was a wait for the VM lock. Counts the wait.
 *
 * No name is found in these events, because finding one may allocate. Known frames have names
 * already. A wait with an unknown frame is kept in `unnamed`, summed up with its like, until a job
 * names it: as a rule on the same thread, before the method that waited returns. The frames are
 * marked until then. If a flush comes first, its row is "(unnamed)" (features/waits.h).
 *
 * Only threads of the main Ractor have a place, because rows have one writer. The memory of places
 * is not freed while the process lives: READY may read a place without the VM lock.
 */
#include <ruby/ruby.h>
#include <ruby/debug.h>
#include <ruby/version.h>

#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/memory.h"
#include "features/waits.h"
#include "usdt/looking.h"
#include "hooks.h"
#include "names.h"
#include "string_coverage.h"
#include "thread_events.h"
#include "ticks.h"

#ifdef HAVE_RB_INTERNAL_THREAD_ADD_EVENT_HOOK

/* Exported, but in no header for extensions. */
int ruby_thread_has_gvl_p(void);
int ruby_native_thread_p(void);

enum { FRAMES = 16, PLACES_PER_CHUNK = 128, CHUNKS = 1024, FILES = 256 };
/* Of a token. They hold the number of each place, plus 1. */
enum { NUMBER_BITS = 20 };

/* A line of Ruby code; frame 0: none. */
struct line {
    VALUE frame;
    int line;
};

/* What is counted apart. */
struct wait {
    VALUE what;   /* frame of a method of the VM; 0: the innermost frame is Ruby code */
    VALUE around; /* frame of a method of the VM that called it; 0: Ruby code did */
    struct line at, holder;
};

/* A kind of waits whose names are not known yet. */
struct unnamed {
    struct wait wait;
    VALUE request; /* of the thread that waited; nil: none, or nobody listens to stats__by_request */
};

/* Of each Ruby thread that has waited since the hook came in. */
struct place {
    uint32_t next_free; /* if it is free: the number of another free place, plus 1; 0: none */
    bool waits;         /* it is between SUSPENDED and RESUMED */
    struct wait wait;
    uint64_t suspended_ns, ready_ns; /* ready_ns before suspended_ns: it is not ready yet */
};

static struct {
    bool on;
    struct place *chunk[CHUNKS];
    uint32_t places;      /* number of places that have had a thread */
    uint32_t free;        /* the number of a free one of them, plus 1; 0: none */
    uintptr_t generation; /* raised when all places become free */
    struct unnamed unnamed[PS_WAITS_KEPT];
    uint32_t unnamed_count;
    /* Is it a file of the application? By the address of its path. */
    struct {
        ps_address path;
        bool own;
    } files[FILES];
    ps_known_table sites; /* frames, and lines in frames -> ps_site */
} waits = {.sites = PS_KNOWN_TABLE};

static const char *missing;

/* ---- Places ---- */

/*
 * What is kept with a thread: the generation of its place, and in the lowest NUMBER_BITS the number
 * of the place, plus 1. 0: it has none. A thread that ends while no tracer listens does not give its
 * place back. All places become free when the hook goes out, so a token of an earlier generation
 * means no place.
 */
typedef uintptr_t token;

#ifdef HAVE_RB_INTERNAL_THREAD_SPECIFIC_KEY_CREATE
static rb_internal_thread_specific_key_t key_of_place;

static token token_of(const rb_internal_thread_event_data_t *data)
{
    return (token)rb_internal_thread_specific_get(data->thread, key_of_place);
}

static void set_token(const rb_internal_thread_event_data_t *data, token place)
{
    rb_internal_thread_specific_set(data->thread, key_of_place, (void *)place);
}
#else
/* In 3.2 each thread of the main Ractor has a native thread. */
static __thread token token_here;

static token token_of(const rb_internal_thread_event_data_t *data)
{
    return token_here;
}

static void set_token(const rb_internal_thread_event_data_t *data, token place)
{
    token_here = place;
}
#endif

static struct place *place_at(uint32_t number)
{
    return &PS_READ_ACQUIRE(waits.chunk[number / PLACES_PER_CHUNK])[number % PLACES_PER_CHUNK];
}

static uint32_t number_in(token place)
{
    return (uint32_t)(place & ((1u << NUMBER_BITS) - 1)) - 1;
}

/* NULL: the thread has none. */
static struct place *place_of(const rb_internal_thread_event_data_t *data)
{
    token place = token_of(data);
    return place && place >> NUMBER_BITS == PS_READ(waits.generation) ? place_at(number_in(place)) : NULL;
}

/* With the VM lock. NULL: there is no memory. */
static struct place *take_place(const rb_internal_thread_event_data_t *data)
{
    _Static_assert(PLACES_PER_CHUNK * CHUNKS < 1 << NUMBER_BITS, "a token holds each number");
    uint32_t number = waits.free ? waits.free - 1 : waits.places;
    if (number == PLACES_PER_CHUNK * CHUNKS) return NULL;
    struct place **chunk = &waits.chunk[number / PLACES_PER_CHUNK];
    if (!*chunk) PS_WRITE_RELEASE(*chunk, ps_memory_take(PLACES_PER_CHUNK * sizeof(**chunk)));
    if (!*chunk) return NULL;
    struct place *place = place_at(number);
    if (waits.free) waits.free = place->next_free;
    else waits.places++;
    set_token(data, waits.generation << NUMBER_BITS | (number + 1));
    return place;
}

static void end_wait(struct place *place)
{
    PS_WRITE(place->waits, false);
    place->wait = (struct wait){0};
}

/* With the VM lock. */
static void give_place(const rb_internal_thread_event_data_t *data, struct place *place)
{
    end_wait(place);
    place->next_free = waits.free;
    waits.free = number_in(token_of(data)) + 1;
    set_token(data, 0);
}

static void give_all_places(void)
{
    for (uint32_t i = 0; i < waits.places; i++) end_wait(place_at(i));
    waits.places = waits.free = 0;
    PS_WRITE(waits.generation, waits.generation + 1);
}

/* ---- Frames ---- */

/* A method of the VM: one written in C, which has no path, or in one of Ruby's own files. */
static bool is_of_the_vm(VALUE path)
{
    static const char internal[] = "<internal:";
    return !RB_TYPE_P(path, T_STRING) || strncmp(RSTRING_PTR(path), internal, sizeof(internal) - 1) == 0;
}

static bool is_own_file(VALUE path)
{
    ps_address address = PS_ADDRESS(path);
    uint32_t i = ps_address_hash(address, 8);
    if (!ps_address_equal(waits.files[i].path, address)) {
        waits.files[i].own = ps_is_own_path(path);
        waits.files[i].path = address;
    }
    return waits.files[i].own;
}

/*
 * The nearest line of the application, else the nearest line of Ruby code. *vm: the number of frames
 * of the VM below all Ruby code.
 */
static struct line nearest_line(const VALUE *frames, const int *lines, int count, int *vm)
{
    struct line nearest = {0};
    *vm = count > 0 ? count : 0;
    for (int i = 0; i < count; i++) {
        VALUE path = rb_profile_frame_path(frames[i]);
        if (is_of_the_vm(path)) continue;
        if (!nearest.frame) {
            *vm = i;
            nearest = (struct line){frames[i], lines[i]};
        }
        if (is_own_file(path)) return (struct line){frames[i], lines[i]};
    }
    return nearest;
}

/* Of the calling thread, which has the VM lock. False: it has no frames. */
static bool read_frames(struct wait *wait, struct line *at)
{
    VALUE frames[FRAMES];
    int lines[FRAMES], vm;
    if (!ps_has_frames()) return false;
    int count = rb_profile_frames(0, FRAMES, frames, lines);
    if (count <= 0) return false;
    *at = nearest_line(frames, lines, count, &vm);
    if (!wait) return true;
    wait->what = vm > 0 ? frames[0] : 0;
    wait->around = vm > 1 ? frames[1] : 0;
    return true;
}

/* ---- Counting ---- */

static ps_key key_of_line(struct line line)
{
    return PS_KEY(0, line.frame, line.line);
}

static ps_key key_of_what(const struct wait *wait)
{
    return PS_KEY(wait->around, wait->what, 0);
}

/* NULL: it is not known now. */
static const ps_site *known_site(ps_key key)
{
    const ps_known *known = ps_known_find(&waits.sites, key);
    return known && ps_known_is_current(known, key) ? known->what : NULL;
}

static const ps_site *known_line(struct line line)
{
    return line.frame ? known_site(key_of_line(line)) : &ps_site_none;
}

static bool is_same_line(struct line one, struct line other)
{
    return one.frame == other.frame && one.line == other.line;
}

static bool is_same_wait(const struct wait *one, const struct wait *other)
{
    return one->what == other->what && one->around == other->around && is_same_line(one->at, other->at) &&
           is_same_line(one->holder, other->holder);
}

static void keep_unnamed(const struct wait *wait, VALUE request, const ps_wait_times *times)
{
    uint32_t count = waits.unnamed_count, number = 0;
    while (number < count &&
           !(waits.unnamed[number].request == request && is_same_wait(&waits.unnamed[number].wait, wait)))
        number++;
    if (number == count && count < PS_WAITS_KEPT) {
        waits.unnamed[number] = (struct unnamed){*wait, request};
        PS_WRITE_RELEASE(waits.unnamed_count, count + 1);
    }
    ps_waits_keep(number, times);
    if (!count) ps_ask_for_upkeep_here();
}

static void count_wait(const struct wait *wait, VALUE request, const ps_wait_times *times)
{
    const ps_site *what = known_site(key_of_what(wait)), *at = known_line(wait->at),
                  *holder = known_line(wait->holder);
    if (PS_LIKELY(what && at && holder))
        ps_waits_add(what, at, holder, ps_requests_counted_in(request), times);
    else keep_unnamed(wait, request, times);
}

/* ---- Events ---- */

static void begin_wait(const rb_internal_thread_event_data_t *data)
{
    struct place *place = place_of(data);
    struct wait wait = {0};
    if (!place && !ps_is_main_ractor()) return;
    if (!read_frames(&wait, &wait.at)) { /* the thread ends */
        if (place) give_place(data, place);
        return;
    }
    if (PS_UNLIKELY(!place)) {
        place = take_place(data);
        if (!place) {
            ps_waits_add_untimed();
            return;
        }
    }
    place->wait = wait;
    place->suspended_ns = ps_monotonic_ns();
    PS_WRITE_RELEASE(place->waits, true);
}

/*
 * Is the calling thread another Ruby thread of the main Ractor than the one that is ready, and has it
 * the VM lock? In 3.2 it never is another one.
 */
static bool is_holder(const rb_internal_thread_event_data_t *data)
{
#ifdef HAVE_RB_INTERNAL_THREAD_SPECIFIC_KEY_CREATE
    return ruby_native_thread_p() && ruby_thread_has_gvl_p() && rb_thread_current() != data->thread &&
           ps_is_main_ractor();
#else
    return false;
#endif
}

static void note_ready(const rb_internal_thread_event_data_t *data)
{
    uint64_t now = ps_monotonic_ns();
    struct place *place = place_of(data);
    if (!place || !PS_READ_ACQUIRE(place->waits) || PS_READ(place->ready_ns) >= place->suspended_ns) return;
    if (is_holder(data)) read_frames(NULL, &place->wait.holder);
    PS_WRITE(place->ready_ns, now);
}

/*
 * The request of the thread that goes on. It has run no code since SUSPENDED, so its request is the
 * same, and needs no place that is marked meanwhile. Allocates nothing.
 */
static VALUE request_of(const rb_internal_thread_event_data_t *data)
{
    if (!PS_ENABLED(STATS__BY_REQUEST)) return Qnil;
#ifdef HAVE_RB_INTERNAL_THREAD_SPECIFIC_KEY_CREATE
    return ps_requests_of(data->thread);
#else
    return ps_requests_of(rb_thread_current());
#endif
}

static void resume(const rb_internal_thread_event_data_t *data)
{
    uint64_t now = ps_monotonic_ns();
    struct place *place = place_of(data);
    if (!place || !place->waits) return;
    uint64_t ready = PS_READ(place->ready_ns), began = place->suspended_ns;
    /* The lock was free: see thread_events.h. */
    if (ready < began) ready = now;
    ps_wait_times times = {
        .waits = 1, .blocked = ready - began, .vm_lock = now - ready, .longest = now - began};
    count_wait(&place->wait, request_of(data), &times);
    end_wait(place);
}

void ps_waits_on_thread_event(rb_event_flag_t event, const rb_internal_thread_event_data_t *data)
{
    if (!PS_READ(waits.on)) return;
    ps_look look = ps_look_begin(PS_LOOK_WAIT);
    switch (event) {
    case RUBY_INTERNAL_THREAD_EVENT_SUSPENDED: begin_wait(data); break;
    case RUBY_INTERNAL_THREAD_EVENT_READY: note_ready(data); break;
    case RUBY_INTERNAL_THREAD_EVENT_RESUMED: resume(data); break;
    default: break;
    }
    ps_look_end(look);
}

/* ---- Names ---- */

static const ps_site *name_line(struct line line)
{
    if (!line.frame) return &ps_site_none;
    ps_key key = key_of_line(line);
    const ps_site *site = known_site(key);
    if (site) return site;
    char name[PS_NAME_BUFFER];
    size_t size = ps_frame_name(name, line.frame);
    site = ps_ruby_site(name, size, rb_profile_frame_path(line.frame), line.line);
    ps_known_put(&waits.sites, key, (void *)site);
    return site;
}

/*
 * ConditionVariable#wait sleeps in Mutex#sleep. Other methods of the VM that call methods which wait,
 * such as Array#each, do not wait themselves.
 */
static size_t name_of_what(char *to, const struct wait *wait)
{
    static const char code[] = "(Ruby code)", sleep[] = "Thread::Mutex#sleep",
                      condition[] = "Thread::ConditionVariable#wait";
    if (!wait->what) {
        memcpy(to, code, sizeof(code));
        return sizeof(code) - 1;
    }
    size_t size = ps_frame_name(to, wait->what);
    if (!wait->around || size != sizeof(sleep) - 1 || memcmp(to, sleep, size) != 0) return size;
    char around[PS_NAME_BUFFER];
    size_t longer = ps_frame_name(around, wait->around);
    if (longer != sizeof(condition) - 1 || memcmp(around, condition, longer) != 0) return size;
    memcpy(to, around, longer + 1);
    return longer;
}

static const ps_site *name_what(const struct wait *wait)
{
    ps_key key = key_of_what(wait);
    const ps_site *site = known_site(key);
    if (site) return site;
    char name[PS_NAME_BUFFER];
    size_t size = name_of_what(name, wait);
    site = ps_ruby_site(name, size, Qnil, 0);
    ps_known_put(&waits.sites, key, (void *)site);
    return site;
}

static bool needs_upkeep(void)
{
    return PS_READ(waits.unnamed_count) > 0;
}

/*
 * The names stay known for the next waits, also if a flush has taken all of these. Ruby may run
 * another thread while a name is found, and that thread may keep more waits.
 */
void ps_waits_name(void)
{
    while (waits.unnamed_count) {
        uint32_t last = waits.unnamed_count - 1;
        const struct wait wait = waits.unnamed[last].wait;
        const ps_site *what = name_what(&wait), *at = name_line(wait.at), *holder = name_line(wait.holder);
        if (last != waits.unnamed_count - 1) continue;
        ps_wait_times times = ps_waits_take(last);
        ps_counted *request = ps_requests_counted_in(waits.unnamed[last].request);
        if (times.waits) ps_waits_add(what, at, holder, request, &times);
        PS_WRITE(waits.unnamed_count, last);
    }
}

/* ---- Switching ---- */

static void visit_wait(struct wait *wait, void (*visit)(void *place))
{
    visit(&wait->what);
    visit(&wait->around);
    visit(&wait->at.frame);
    visit(&wait->holder.frame);
}

static void each_object(void (*visit)(void *place))
{
    for (uint32_t i = 0; i < waits.places; i++) visit_wait(&place_at(i)->wait, visit);
    for (uint32_t i = 0; i < waits.unnamed_count; i++) {
        visit_wait(&waits.unnamed[i].wait, visit);
        visit(&waits.unnamed[i].request);
    }
}

PS_KEPT(PS_HELD_EACH(each_object), PS_COMPARED(waits.files))

void ps_waits_forget_files(void)
{
    memset(waits.files, 0, sizeof(waits.files));
}

static void forget(void)
{
    give_all_places();
    PS_WRITE(waits.unnamed_count, 0);
    ps_known_clear(&waits.sites);
}

/* The child has one thread, which does not wait. What the parent kept is the parent's. */
void ps_waits_after_fork(void)
{
    give_all_places();
    PS_WRITE(waits.unnamed_count, 0);
    ps_waits_drop();
}

void ps_waits_init(void)
{
    if (RUBY_API_VERSION_CODE >= 30500) missing = "waits were not tried on this version of Ruby";
    else if (!ps_has_frames()) missing = "stacks are not where this version of Ruby has them";
#ifdef HAVE_RB_INTERNAL_THREAD_SPECIFIC_KEY_CREATE
    else if (!ps_thread_events_key(&key_of_place)) missing = PS_NO_THREAD_KEY;
#endif
}

static const char *why(void)
{
    return missing;
}

static bool hook(ps_probe_set wanted)
{
    bool on = (wanted & ps_waits_feature.probes) && !missing;
    if (on == waits.on) return true;
    PS_WRITE(waits.on, on);
    ps_thread_events_use(PS_EVENTS_FOR_WAITS, on);
    return true;
}

const ps_hooks ps_waits_hooks = {
    .feature = &ps_waits_feature,
    .hook = hook,
    .unsupported = PS_BIT(WAIT__STATS),
    .why = why,
    .forget = forget,
    .needs_upkeep = needs_upkeep,
    .upkeep = ps_waits_name,
};

#else

void ps_waits_forget_files(void) {}

void ps_waits_name(void) {}

void ps_waits_after_fork(void) {}

void ps_waits_init(void) {}

static const char *why(void)
{
    return "Ruby tells of waits from 3.2 on";
}

static bool hook(ps_probe_set wanted)
{
    return true;
}

const ps_hooks ps_waits_hooks = {
    .feature = &ps_waits_feature,
    .hook = hook,
    .unsupported = PS_BIT(WAIT__STATS),
    .why = why,
};

#endif

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
 * names it. What is kept is marked until then.
 *
 * Only threads of the main Ractor have a place, because rows have one writer. Places are not freed
 * while the process lives: READY may read one without the VM lock.
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

enum { FRAMES = 16, PLACES_PER_CHUNK = 128, CHUNKS = 64, UNNAMED = 256, FILES = 256 };

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

/* Of each Ruby thread that has waited. */
struct place {
    bool used;
    bool waits; /* it is between SUSPENDED and RESUMED */
    struct wait wait;
    uint64_t suspended_ns, ready_ns; /* ready_ns 0: it is not ready yet */
};

struct unnamed {
    struct wait wait;
    ps_wait_times times;
};

static struct {
    bool on;
    struct place *chunk[CHUNKS];
    uint32_t next; /* number of the place that is looked at first for a free one */
    struct unnamed unnamed[UNNAMED];
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

#ifdef HAVE_RB_INTERNAL_THREAD_SPECIFIC_KEY_CREATE
static rb_internal_thread_specific_key_t key_of_place;

static struct place *place_of(const rb_internal_thread_event_data_t *data)
{
    return rb_internal_thread_specific_get(data->thread, key_of_place);
}

static void set_place(const rb_internal_thread_event_data_t *data, struct place *place)
{
    rb_internal_thread_specific_set(data->thread, key_of_place, place);
}

static struct place *own_place(void)
{
    return rb_internal_thread_specific_get(rb_thread_current(), key_of_place);
}
#else
/* In 3.2 each thread of the main Ractor has a native thread. */
static __thread struct place *place_here;

static struct place *place_of(const rb_internal_thread_event_data_t *data)
{
    return place_here;
}

static void set_place(const rb_internal_thread_event_data_t *data, struct place *place)
{
    place_here = place;
}

static struct place *own_place(void)
{
    return place_here;
}
#endif

/* With the VM lock. NULL: there is no memory, or there are too many threads. */
static struct place *take_place(void)
{
    for (uint32_t i = 0; i < PLACES_PER_CHUNK * CHUNKS; i++) {
        uint32_t number = (waits.next + i) % (PLACES_PER_CHUNK * CHUNKS);
        struct place **chunk = &waits.chunk[number / PLACES_PER_CHUNK];
        if (!*chunk) PS_WRITE_RELEASE(*chunk, ps_memory_take(PLACES_PER_CHUNK * sizeof(**chunk)));
        if (!*chunk) return NULL;
        struct place *place = &(*chunk)[number % PLACES_PER_CHUNK];
        if (PS_READ_ACQUIRE(place->used)) continue;
        PS_WRITE(place->used, true);
        waits.next = number + 1;
        return place;
    }
    return NULL;
}

static void end_wait(struct place *place)
{
    PS_WRITE(place->waits, false);
    place->wait = (struct wait){0};
}

static void give_place(struct place *place)
{
    end_wait(place);
    PS_WRITE_RELEASE(place->used, false);
}

/* Calls visit() with each place that was ever used. */
static void each_place(void (*visit)(struct place *place))
{
    for (uint32_t i = 0; i < CHUNKS && waits.chunk[i]; i++)
        for (uint32_t j = 0; j < PLACES_PER_CHUNK; j++) visit(&waits.chunk[i][j]);
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

static void keep_unnamed(const struct wait *wait, const ps_wait_times *times)
{
    uint32_t count = waits.unnamed_count;
    for (uint32_t i = 0; i < count; i++) {
        struct unnamed *like = &waits.unnamed[i];
        if (like->wait.what != wait->what || like->wait.around != wait->around ||
            !is_same_line(like->wait.at, wait->at) || !is_same_line(like->wait.holder, wait->holder))
            continue;
        ps_waits_sum(&like->times, times);
        return;
    }
    if (count == UNNAMED) {
        PS_ADD(ps_waits_lost, times->waits);
        return;
    }
    waits.unnamed[count] = (struct unnamed){*wait, *times};
    PS_WRITE_RELEASE(waits.unnamed_count, count + 1);
}

static void count_wait(const struct wait *wait, const ps_wait_times *times)
{
    const ps_site *what = known_site(key_of_what(wait)), *at = known_line(wait->at),
                  *holder = known_line(wait->holder);
    if (PS_LIKELY(what && at && holder)) ps_waits_add(what, at, holder, times);
    else keep_unnamed(wait, times);
}

/* ---- Events ---- */

static void begin_wait(const rb_internal_thread_event_data_t *data)
{
    struct place *place = place_of(data);
    struct wait wait = {0};
    if (!place && !ps_is_main_ractor()) return;
    if (!read_frames(&wait, &wait.at)) { /* the thread ends */
        if (!place) return;
        set_place(data, NULL);
        give_place(place);
        return;
    }
    if (PS_UNLIKELY(!place)) {
        place = take_place();
        if (!place) {
            PS_ADD(ps_waits_lost, 1);
            return;
        }
        set_place(data, place);
    }
    place->wait = wait;
    PS_WRITE(place->ready_ns, 0);
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
    if (!place || !PS_READ_ACQUIRE(place->waits) || PS_READ(place->ready_ns)) return;
    if (is_holder(data)) read_frames(NULL, &place->wait.holder);
    PS_WRITE(place->ready_ns, now);
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
    count_wait(&place->wait, &times);
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

static void drop_unnamed(void)
{
    PS_WRITE(waits.unnamed_count, 0);
}

static void name_all(void)
{
    for (uint32_t i = 0; i < waits.unnamed_count; i++) {
        const struct unnamed *one = &waits.unnamed[i];
        const ps_site *what = name_what(&one->wait), *at = name_line(one->wait.at);
        ps_waits_add(what, at, name_line(one->wait.holder), &one->times);
    }
    drop_unnamed();
}

/* ---- Switching ---- */

static void each_object(void (*visit)(void *place))
{
    for (uint32_t i = 0; i < CHUNKS && waits.chunk[i]; i++)
        for (uint32_t j = 0; j < PLACES_PER_CHUNK; j++) {
            struct wait *wait = &waits.chunk[i][j].wait;
            visit(&wait->what);
            visit(&wait->around);
            visit(&wait->at.frame);
            visit(&wait->holder.frame);
        }
    for (uint32_t i = 0; i < waits.unnamed_count; i++) {
        struct wait *wait = &waits.unnamed[i].wait;
        visit(&wait->what);
        visit(&wait->around);
        visit(&wait->at.frame);
        visit(&wait->holder.frame);
    }
}

PS_KEPT(PS_HELD_EACH(each_object), PS_COMPARED(waits.files))

void ps_waits_forget_files(void)
{
    memset(waits.files, 0, sizeof(waits.files));
}

static void forget(void)
{
    each_place(end_wait);
    drop_unnamed();
    ps_known_clear(&waits.sites);
}

/* The child has one thread, which does not wait. What the parent counted is the parent's. */
void ps_waits_after_fork(void)
{
    if (!waits.chunk[0]) return;
    struct place *own = ruby_native_thread_p() ? own_place() : NULL;
    each_place(give_place);
    if (own) own->used = true;
    drop_unnamed();
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

static bool hook(uint32_t wanted)
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
    .upkeep = name_all,
};

#else

void ps_waits_forget_files(void) {}

void ps_waits_after_fork(void) {}

void ps_waits_init(void) {}

static const char *why(void)
{
    return "Ruby tells of waits from 3.2 on";
}

static bool hook(uint32_t wanted)
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

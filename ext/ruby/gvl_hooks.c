/*
 * Waits for the VM lock, from Ruby's own thread events (3.2 and later): READY when a thread begins
 * to wait for the lock, RESUMED when it has the lock. gvl__wait fires in RESUMED alone, which runs
 * with the lock.
 *
 * From 3.3 on another thread can make a thread ready, so the time of READY is kept with the Ruby
 * thread; before 3.3 with the native thread. It is stored as a plain number in place of a pointer,
 * so there is nothing to free.
 */
#include <ruby/ruby.h>
#include <ruby/thread.h>
#include <ruby/version.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "features/gvl.h"
#include "usdt/info.h"
#include "usdt/looking.h"
#include "usdt/probe.h"
#include "hooks.h"
#include "thread_events.h"

#ifdef HAVE_RB_INTERNAL_THREAD_ADD_EVENT_HOOK

/*
 * From 3.3 on the events also come when the lock was free. Taking a free lock costs 30-500 ns, less
 * than reporting it.
 */
#define WAIT_NS 1000u

static struct {
    bool on;
    uint64_t since_ns; /* when the hook came in */
} gvl;

/* Is there READY before each RESUMED? Ruby 3.2 leaves READY out where the lock is free. */
static const bool always_ready = RUBY_API_VERSION_CODE >= 30300;

static const char *missing;

#ifdef HAVE_RB_INTERNAL_THREAD_SPECIFIC_KEY_CREATE
static rb_internal_thread_specific_key_t key_of_ready;

static void prepare(void)
{
    if (!ps_thread_events_key(&key_of_ready)) missing = PS_NO_THREAD_KEY;
}

static void keep_ready(const rb_internal_thread_event_data_t *data, uint64_t ns)
{
    rb_internal_thread_specific_set(data->thread, key_of_ready, (void *)(uintptr_t)ns);
}

static uint64_t take_ready(const rb_internal_thread_event_data_t *data)
{
    uint64_t ns = (uint64_t)(uintptr_t)rb_internal_thread_specific_get(data->thread, key_of_ready);
    if (ns) rb_internal_thread_specific_set(data->thread, key_of_ready, NULL);
    return ns;
}
#else
static __thread uint64_t ready_ns;

static void prepare(void) {}

static void keep_ready(const rb_internal_thread_event_data_t *data, uint64_t ns)
{
    ready_ns = ns;
}

static uint64_t take_ready(const rb_internal_thread_event_data_t *data)
{
    uint64_t ns = ready_ns;
    ready_ns = 0;
    return ns;
}
#endif

static void time_wait(rb_event_flag_t event, const rb_internal_thread_event_data_t *data)
{
    uint64_t now = ps_monotonic_ns();
    if (event == (RUBY_INTERNAL_THREAD_EVENT_READY)) {
        keep_ready(data, now);
        return;
    }
    uint64_t ready = take_ready(data), since = PS_READ(gvl.since_ns);
    if (ready < since) {
        if (!always_ready) return;
        ready = since; /* the thread waited already when the hook came in */
    }
    if (now - ready < WAIT_NS) return;
    if (PS_ENABLED(GVL__WAIT)) ps_fire_gvl__wait(ps_thread_id(), now - ready);
}

void ps_gvl_on_thread_event(rb_event_flag_t event, const rb_internal_thread_event_data_t *data)
{
    bool counts =
        event == (RUBY_INTERNAL_THREAD_EVENT_READY) || event == (RUBY_INTERNAL_THREAD_EVENT_RESUMED);
    if (!counts || !PS_READ(gvl.on)) return;
    ps_look look = ps_look_begin(PS_LOOK_LOCK);
    time_wait(event, data);
    ps_look_end(look);
}

void ps_gvl_init(void)
{
    prepare();
}

static const char *why(void)
{
    return missing;
}

static bool hook(ps_probe_set wanted)
{
    bool on = (wanted & ps_gvl_feature.probes) && !missing;
    if (on == gvl.on) return true;
    if (on) PS_WRITE(gvl.since_ns, ps_monotonic_ns());
    PS_WRITE(gvl.on, on);
    ps_thread_events_use(PS_EVENTS_FOR_GVL, on);
    return true;
}

#else

void ps_gvl_init(void) {}

static const char *why(void)
{
    return "Ruby tells of waits for the VM lock from 3.2 on";
}

static bool hook(ps_probe_set wanted)
{
    return true;
}

#endif

const ps_hooks ps_gvl_hooks = {
    .feature = &ps_gvl_feature,
    .hook = hook,
    .unsupported = PS_BIT(GVL__WAIT),
    .why = why,
};

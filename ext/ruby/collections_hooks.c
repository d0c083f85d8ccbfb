/*
 * Garbage collections. Ruby stops the program in several short steps between the start of a
 * collection and the end of its sweep. GC_ENTER and GC_EXIT bracket each step, and gc__done reports
 * the sum. Inside these hooks nothing may be allocated.
 */
#include <ruby/ruby.h>
#include <ruby/debug.h>

#include "base/clock.h"
#include "features/collections.h"
#include "usdt/info.h"
#include "usdt/looking.h"
#include "usdt/probe.h"
#include "compat.h"
#include "hooks.h"

static struct {
    VALUE hook;
    bool on, under_way, inside;
    const char *kind;
    uint64_t generation, entered, elapsed; /* entered, elapsed: ticks */
} collection = {.hook = Qnil};

PS_KEPT(PS_HELD(collection.hook))
static VALUE major_by, live_slots;

static void begin(void)
{
    collection.kind = NIL_P(rb_gc_latest_gc_info(major_by)) ? "minor" : "major";
    collection.generation = rb_gc_count();
    collection.elapsed = 0;
    collection.under_way = true;
    if (PS_ENABLED(GC__START)) ps_fire_gc__start(collection.kind, collection.generation);
}

static void leave(void)
{
    if (collection.inside) collection.elapsed += ps_ticks() - collection.entered;
    collection.inside = false;
}

static void finish(void)
{
    if (!collection.under_way) return;
    /* The last step is still under way: count it up to now. */
    if (collection.inside) {
        uint64_t now = ps_ticks();
        collection.elapsed += now - collection.entered;
        collection.entered = now;
    }
    collection.under_way = false;
    if (PS_ENABLED(GC__DONE))
        ps_fire_gc__done(collection.kind, collection.generation, ps_ticks_to_ns(collection.elapsed),
                         rb_gc_stat(live_slots));
}

static void time_collection(VALUE tracepoint, void *unused)
{
    switch (rb_tracearg_event_flag(rb_tracearg_from_tracepoint(tracepoint))) {
    case RUBY_INTERNAL_EVENT_GC_ENTER:
        collection.entered = ps_ticks();
        collection.inside = true;
        break;
    case RUBY_INTERNAL_EVENT_GC_START: begin(); break;
    case RUBY_INTERNAL_EVENT_GC_END_SWEEP: finish(); break;
    case RUBY_INTERNAL_EVENT_GC_EXIT: leave(); break;
    default: break;
    }
}

/* Called by Ruby inside the collector, on any thread, with the VM lock. */
static void on_gc(VALUE tracepoint, void *unused)
{
    ps_look look = ps_look_begin_rare(PS_LOOK_COLLECTION);
    time_collection(tracepoint, unused);
    ps_look_end(look);
}

void ps_collections_init(void)
{
    major_by = rb_id2sym(rb_intern("major_by"));
    live_slots = rb_id2sym(rb_intern("heap_live_slots"));
    /*
     * At its first call each function makes its symbols, which crashes inside a collection. So the
     * first call is here.
     */
    rb_gc_latest_gc_info(major_by);
    rb_gc_stat(live_slots);
    PS_KEEP(collection.hook,
            rb_tracepoint_new(0,
                              RUBY_INTERNAL_EVENT_GC_START | RUBY_INTERNAL_EVENT_GC_END_SWEEP |
                                  RUBY_INTERNAL_EVENT_GC_ENTER | RUBY_INTERNAL_EVENT_GC_EXIT,
                              on_gc, NULL));
}

static void refuse(void)
{
    ps_info_states(ps_collections_feature.probes, PS_STATE_REFUSED, ps_gc_hooks_reason());
}

void ps_collections_forbid(void)
{
    if (collection.on) rb_tracepoint_disable(collection.hook);
    collection.on = false;
    refuse();
}

static bool hook(ps_probe_set wanted)
{
    bool on = (wanted & ps_collections_feature.probes) && ps_gc_hooks_allowed();
    if (!ps_gc_hooks_allowed()) refuse();
    if (on == collection.on) return true;
    collection.under_way = collection.inside = false;
    if (on) rb_tracepoint_enable(collection.hook);
    else rb_tracepoint_disable(collection.hook);
    collection.on = on;
    return true;
}

const ps_hooks ps_collections_hooks = {
    .feature = &ps_collections_feature,
    .hook = hook,
};

/*
 * Ruby before 3.1.4 starts the thread of a new Ractor without a stack for its frames and allocates
 * three objects there. It crashes when that allocation, or a collection that the allocation begins,
 * is hooked (Bug #18464; with ObjectSpace.trace_object_allocations as well). Ruby 4.0 has one list
 * of allocation hooks for all Ractors, and takes a hook out while another Ractor may read that list
 * (seen on 4.0.5: freed twice). So the first Ractor.new takes hooks of ours out for good: on both
 * versions those of allocations, before 3.1.4 those of collections and frees as well. From then on
 * allocations are refused, and backtraces are counted without their cost. Debian 12 has such a
 * Ruby.
 *
 * A prepended module wraps Ractor.new, from the start: a call hook on it would leave YJIT of 3.1
 * slow for good. On other versions nothing is prepended.
 */
#include <ruby/ruby.h>
#include <ruby/debug.h>
#include <ruby/version.h>

#include <string.h>

#include "compat.h"
#include "usdt/info.h"
#include "hooks.h"
#include "methods.h"
#include "vm_words.h"

static bool seen; /* a Ractor was created, on a version that crashes */
static bool starts_without_a_stack;

bool ps_newobj_allowed(void)
{
    return !seen;
}

const char *ps_newobj_reason(void)
{
    return "this version of Ruby crashes when allocations are hooked and Ractors exist";
}

bool ps_gc_hooks_allowed(void)
{
    return !seen || !starts_without_a_stack;
}

const char *ps_gc_hooks_reason(void)
{
    return "this version of Ruby crashes when collections are hooked and Ractors exist";
}

/*
 * struct rb_event_hook_struct and, with its list of hooks, struct rb_ractor_pub of Ruby 3.1.0 to
 * 3.1.3.
 */
struct event_hook {
    uint32_t flags, events;
    void *function;
    VALUE data;
    struct event_hook *next;
};

struct ractor {
    VALUE self;
    uint32_t id;
    struct event_hook *hooks;
    uint32_t events, running;
};

enum {
    OF_THE_HEAP = RUBY_INTERNAL_EVENT_NEWOBJ | RUBY_INTERNAL_EVENT_FREEOBJ | RUBY_INTERNAL_EVENT_GC_START |
                  RUBY_INTERNAL_EVENT_GC_END_MARK | RUBY_INTERNAL_EVENT_GC_END_SWEEP |
                  RUBY_INTERNAL_EVENT_GC_ENTER | RUBY_INTERNAL_EVENT_GC_EXIT
};

/* The heap events of the hooks that are in. */
static uint32_t hooked_events(const struct ractor *ractor)
{
    uint32_t events = 0;
    for (const struct event_hook *hook = ractor->hooks; hook; hook = hook->next)
        if (!(hook->flags & RUBY_EVENT_HOOK_FLAG_DELETED)) events |= hook->events & OF_THE_HEAP;
    return events;
}

/*
 * While a thread is inside a TracePoint's block, of a debugger for example, Ruby takes no hook out
 * of its list, and the events of disabled hooks stay on. So the list's events are corrected here.
 * Ruby passes them on to the collector when the next hook comes in.
 */
static void turn_events_off(void)
{
    void **thread = RTYPEDDATA_DATA(rb_thread_current());
    struct ractor *ractor = thread[THREAD_RACTOR];
    if (ractor->self != rb_funcall(rb_path2class("Ractor"), rb_intern("current"), 0)) return;
    ractor->events &= ~(uint32_t)OF_THE_HEAP | hooked_events(ractor);
    ps_add_up_hooks();
}

static void forbid(void)
{
    seen = true;
    ps_exceptions_forbid_newobj();
    ps_objects_forbid_newobj();
    if (!starts_without_a_stack) return;
    ps_collections_forbid();
    ps_ticks_forbid();
    turn_events_off();
}

/* Called instead of Ractor.new, in any Ractor. */
static VALUE guarded_new(int argc, VALUE *argv, VALUE self)
{
    if (!seen) forbid();
    return rb_call_super_kw(argc, argv, RB_PASS_CALLED_KEYWORDS);
}

void ps_ractors_init(void)
{
    const char *without[] = {"3.1.0", "3.1.1", "3.1.2", "3.1.3"};
    for (size_t i = 0; i < sizeof(without) / sizeof(without[0]); i++)
        starts_without_a_stack |= strcmp(ruby_version, without[i]) == 0;
    if (!starts_without_a_stack && ruby_api_version[0] < 4) return;
    if (!rb_const_defined(rb_cObject, rb_intern("Ractor"))) return;
    VALUE ractor = rb_const_get(rb_cObject, rb_intern("Ractor"));
    VALUE guard = rb_define_module_under(rb_path2class("Probescope::Native"), "RactorGuard");
    if (NUM2LONG(rb_funcall(ractor, rb_intern("count"), 0)) > 1) seen = true;
    /* Ractors may create Ractors: methods defined here are safe in them. */
    rb_ext_ractor_safe(true);
    rb_define_method(guard, "new", guarded_new, -1);
    rb_ext_ractor_safe(false);
    rb_prepend_module(rb_singleton_class(ractor), guard);
}

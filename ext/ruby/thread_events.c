#include "thread_events.h"

#include <unistd.h>

#ifdef HAVE_RB_INTERNAL_THREAD_ADD_EVENT_HOOK

static struct {
    rb_internal_thread_event_hook_t *hook; /* NULL when it is not in */
    pid_t hooked_in;                       /* the process that put it in */
    unsigned users;
} events;

static void on_event(rb_event_flag_t event, const rb_internal_thread_event_data_t *data, void *unused)
{
    ps_gvl_on_thread_event(event, data);
    ps_waits_on_thread_event(event, data);
#ifdef HAVE_RB_INTERNAL_THREAD_SPECIFIC_KEY_CREATE
    ps_ticks_on_thread_event(event, data);
    ps_current_stack_on_thread_event(event, data);
#endif
}

void ps_thread_events_use(enum ps_thread_events_user user, bool on)
{
    events.users = on ? events.users | user : events.users & ~(unsigned)user;
    if (events.users && !events.hook) {
        events.hook = rb_internal_thread_add_event_hook(
            on_event,
            (RUBY_INTERNAL_THREAD_EVENT_READY) | (RUBY_INTERNAL_THREAD_EVENT_RESUMED) |
                (RUBY_INTERNAL_THREAD_EVENT_SUSPENDED) | (RUBY_INTERNAL_THREAD_EVENT_EXITED),
            NULL);
        events.hooked_in = getpid();
    } else if (!events.users && events.hook && events.hooked_in == getpid()) {
        rb_internal_thread_remove_event_hook(events.hook);
        events.hook = NULL;
    }
}

#ifdef HAVE_RB_INTERNAL_THREAD_SPECIFIC_KEY_CREATE
static VALUE create_key(VALUE key)
{
    rb_internal_thread_specific_key_t made = rb_internal_thread_specific_key_create();
    *(rb_internal_thread_specific_key_t *)key = made;
    /* Ruby 3.3 hands out one key more than a thread has room for. */
    return made < RB_INTERNAL_THREAD_SPECIFIC_KEY_MAX ? Qtrue : Qfalse;
}

/* Ruby raises when its keys are used up. */
static VALUE no_key(VALUE unused, VALUE error)
{
    return Qfalse;
}

bool ps_thread_events_key(rb_internal_thread_specific_key_t *key)
{
    return RTEST(rb_rescue2(create_key, (VALUE)key, no_key, Qnil, rb_eThreadError, (VALUE)0));
}
#endif

#endif

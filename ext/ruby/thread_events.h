/*
 * The hook of Ruby's thread events (3.2 and later), which gvl_hooks.c, waits_hooks.c and, from 3.3
 * on, ticks.c and current_stack.c share.
 *
 *   SUSPENDED  on the thread itself, with the VM lock: it is about to give the lock up. Also while a
 *              thread ends: then it has no frames any more.
 *   READY      the thread can go on and waits for the VM lock. From 3.3 on, on whatever thread made it
 *              ready, with or without the VM lock; in 3.2 on the thread itself, and not if the lock
 *              is free.
 *   RESUMED    on the thread itself, with the VM lock
 *   EXITED     on the thread itself, from 3.3 on
 *
 * Ruby calls the hook with locks of its scheduler held, so it must not allocate objects.
 *
 * The list of hooks has a lock that Ruby does not initialise anew in a forked child (up to 4.0;
 * ruby/ruby#18125). If a thread ran a hook at the moment of the fork, that lock stays locked in the
 * child, and changing the list hangs. So a child that inherited the hook keeps it and only stops
 * listening: calls that return at once for each switch of threads.
 */
#ifndef PS_RUBY_THREAD_EVENTS_H
#define PS_RUBY_THREAD_EVENTS_H

#include <ruby/ruby.h>
#include <ruby/thread.h>

#include <stdbool.h>

#ifdef HAVE_RB_INTERNAL_THREAD_ADD_EVENT_HOOK

enum ps_thread_events_user {
    PS_EVENTS_FOR_GVL = 1,
    PS_EVENTS_FOR_WAITS = 2,
    PS_EVENTS_FOR_TICKS = 4,
    PS_EVENTS_FOR_HERE = 8,
};

/* Puts the hook in while it has a user. With the VM lock. */
void ps_thread_events_use(enum ps_thread_events_user user, bool on);

/* The users. Each returns at once while it is off. In 3.2, data is NULL. */
void ps_gvl_on_thread_event(rb_event_flag_t event, const rb_internal_thread_event_data_t *data);
void ps_waits_on_thread_event(rb_event_flag_t event, const rb_internal_thread_event_data_t *data);
#ifdef HAVE_RB_INTERNAL_THREAD_SPECIFIC_KEY_CREATE
void ps_ticks_on_thread_event(rb_event_flag_t event, const rb_internal_thread_event_data_t *data);
void ps_current_stack_on_thread_event(rb_event_flag_t event, const rb_internal_thread_event_data_t *data);
#endif

/*
 * From 3.3 on the data of a thread are kept with the Ruby thread. Creates a key for that. False: there
 * is none, as Ruby has eight keys for all extensions together.
 */
#ifdef HAVE_RB_INTERNAL_THREAD_SPECIFIC_KEY_CREATE
bool ps_thread_events_key(rb_internal_thread_specific_key_t *key);
#define PS_NO_THREAD_KEY "other extensions use all of Ruby's keys for thread data"
#endif

#endif
#endif

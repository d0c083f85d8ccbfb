/*
 * For gvl_spec.rb: a thread is inside a hook of Ruby's thread events at the moment of a fork, and so
 * holds the lock of the list of hooks.
 *
 *   HeldEvent.hold     the next thread that can go on after a wait stays in its hook
 *   HeldEvent.held?    is it there?
 *   HeldEvent.release  lets it go on; it goes on by itself after 20 s
 */
#include <ruby/ruby.h>
#include <ruby/thread.h>

#include <time.h>

enum { LET_GO, TO_HOLD, HELD };
static int state;

static void on_ready(rb_event_flag_t event, const rb_internal_thread_event_data_t *data, void *unused)
{
    int before = TO_HOLD;
    if (!__atomic_compare_exchange_n(&state, &before, HELD, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return;
    struct timespec moment = {0, 1000000};
    for (int i = 0; i < 20000 && __atomic_load_n(&state, __ATOMIC_SEQ_CST) == HELD; i++)
        nanosleep(&moment, NULL);
}

static VALUE hold(VALUE self)
{
    __atomic_store_n(&state, TO_HOLD, __ATOMIC_SEQ_CST);
    return Qnil;
}

static VALUE is_held(VALUE self)
{
    return __atomic_load_n(&state, __ATOMIC_SEQ_CST) == HELD ? Qtrue : Qfalse;
}

static VALUE release(VALUE self)
{
    __atomic_store_n(&state, LET_GO, __ATOMIC_SEQ_CST);
    return Qnil;
}

void Init_held_event(void)
{
    VALUE held = rb_define_module("HeldEvent");
    rb_define_singleton_method(held, "hold", hold, 0);
    rb_define_singleton_method(held, "held?", is_held, 0);
    rb_define_singleton_method(held, "release", release, 0);
    rb_internal_thread_add_event_hook(on_ready, RUBY_INTERNAL_THREAD_EVENT_READY, NULL);
}

/*
 * Publishes the current span of each thread for profilers outside of the process
 * (core/context/thread_context.h), if the application asks for it. It publishes after each change
 * of the context, which Ruby code reports, and after each fiber switch, because each fiber has its
 * own context. Each Ruby thread has its own native thread, and so its own record.
 */
#include "hooks.h"

#include "context/process_context.h"
#include "context/thread_context.h"

static void fiber_switched(rb_event_flag_t event, VALUE data, VALUE self, ID id, VALUE class)
{
    ps_thread_context_publish();
}

static VALUE native_publish_thread_context(VALUE self)
{
    ps_thread_context_publish();
    return Qnil;
}

static VALUE native_follow_fibers(VALUE self)
{
    static bool following;
    if (!following) rb_add_event_hook(fiber_switched, RUBY_EVENT_FIBER_SWITCH, Qnil);
    following = true;
    return Qnil;
}

/* payload: an encoded message. False when the mapping cannot be made. */
static VALUE native_publish_process_context(VALUE self, VALUE payload)
{
    Check_Type(payload, T_STRING);
    return ps_process_context_publish(RSTRING_PTR(payload), (size_t)RSTRING_LEN(payload)) ? Qtrue : Qfalse;
}

void ps_thread_context_init(VALUE native)
{
    rb_define_singleton_method(native, "publish_thread_context", native_publish_thread_context, 0);
    rb_define_singleton_method(native, "follow_fibers", native_follow_fibers, 0);
    rb_define_singleton_method(native, "publish_process_context", native_publish_process_context, 1);
}

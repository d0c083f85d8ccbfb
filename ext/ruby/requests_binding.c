/*
 * Requests for lib/probescope/rack.rb and the hooks of job libraries: Probescope::Native::Request,
 * and the current request of each fiber. Slow calls and details of exceptions carry the trace
 * context of the current request.
 *
 * The methods check the type of every value that comes from the application.
 */
#include <ruby/ruby.h>

#include "hooks.h"
#include "calls/here.h"
#include "context/vm.h"
#include "features/requests.h"
#include "ticks.h"

static void free_request(void *request)
{
    ps_request_forget(request);
    ruby_xfree(request);
}

static void mark_nothing(void *request) {}

/*
 * A request that is never reported as done counts when it is freed. Its samples keep it alive
 * through several collections. It must not become old in these: it would then stay until the next
 * major collection. Objects without write barriers do not become old. From Ruby 3.3 on a type
 * without a mark function counts as one with write barriers, hence mark_nothing().
 */
static const rb_data_type_t request_type = {
    "probescope/request", {mark_nothing, free_request, NULL}, 0, 0, RUBY_TYPED_FREE_IMMEDIATELY};
static VALUE request_class;
PS_KEPT(PS_HELD(request_class))
static ID key_of_request;

/* The value of a header may be any object. */
static ps_text text_of(VALUE value)
{
    if (!RB_TYPE_P(value, T_STRING)) return (ps_text){NULL, 0};
    return (ps_text){RSTRING_PTR(value), (size_t)RSTRING_LEN(value)};
}

static VALUE requests_wanted(VALUE self)
{
    return ps_requests_wanted() ? Qtrue : Qfalse;
}

static VALUE requests_told(VALUE self)
{
    ps_requests_told();
    return Qnil;
}

/*
 * start(method, path, traceparent, scheme): fires request__start. A malformed traceparent is left
 * out. scheme may be nil.
 */
static VALUE request_start(VALUE self, VALUE method, VALUE path, VALUE header, VALUE scheme)
{
    ps_request *request;
    VALUE made = TypedData_Make_Struct(request_class, ps_request, &request_type, request);
    ps_request_start(request, text_of(method), text_of(path), text_of(scheme), text_of(header));
    return made;
}

/* start_job(name, traceparent, system, queue): the same for a job. queue may be nil. */
static VALUE request_start_job(VALUE self, VALUE name, VALUE header, VALUE system, VALUE queue)
{
    ps_request *request;
    VALUE made = TypedData_Make_Struct(request_class, ps_request, &request_type, request);
    ps_request_start_job(request, text_of(name), text_of(header), text_of(system), text_of(queue));
    return made;
}

/* done(status, template): fires request__done, once. template: that of the route, or nil. */
static VALUE request_done(VALUE self, VALUE status, VALUE template)
{
    ps_request_done(RTYPEDDATA_DATA(self), text_of(template),
                    FIXNUM_P(status) && FIX2LONG(status) > 0 ? (uint64_t)FIX2LONG(status) : 0);
    RB_GC_GUARD(template);
    return Qnil;
}

static bool is_request(VALUE value)
{
    return !RB_SPECIAL_CONST_P(value) && rb_typeddata_is_kind_of(value, &request_type);
}

/*
 * enter_request(request): makes it the current request of this fiber; nil for none. Returns the one
 * before.
 */
static VALUE enter_request(VALUE self, VALUE request)
{
    VALUE thread = rb_thread_current(), outer = rb_thread_local_aref(thread, key_of_request);
    if (RB_OBJ_FROZEN(thread)) return outer;
    rb_thread_local_aset(thread, key_of_request, request);
    ps_ticks_enter(request);
    if (PS_UNLIKELY(PS_READ(ps_here_requests))) {
        ps_stack *stack = ps_current_stack();
        if (stack) ps_request_here(stack, NULL);
    }
    return outer;
}

VALUE ps_requests_of(VALUE thread)
{
    return rb_thread_local_aref(thread, key_of_request);
}

ps_request *ps_vm_request(void)
{
    VALUE request = ps_requests_of(rb_thread_current());
    return is_request(request) ? RTYPEDDATA_DATA(request) : NULL;
}

ps_counted *ps_requests_counted_now(void)
{
    ps_request *request = ps_vm_request();
    return request ? &request->counted : NULL;
}

ps_counted *ps_requests_counted_in(VALUE request)
{
    if (!PS_ENABLED(STATS__BY_REQUEST) || !is_request(request)) return NULL;
    return &((ps_request *)RTYPEDDATA_DATA(request))->counted;
}

void ps_requests_init(VALUE native)
{
    key_of_request = rb_intern("__probescope_request__");
    PS_KEEP(request_class, rb_define_class_under(native, "Request", rb_cObject));
    rb_undef_alloc_func(request_class);
    rb_undef_method(CLASS_OF(request_class), "new");
    rb_define_singleton_method(request_class, "start", request_start, 4);
    rb_define_singleton_method(request_class, "start_job", request_start_job, 4);
    rb_define_method(request_class, "done", request_done, 2);
    rb_define_singleton_method(native, "requests?", requests_wanted, 0);
    rb_define_singleton_method(native, "requests_told", requests_told, 0);
    rb_define_singleton_method(native, "enter_request", enter_request, 1);
}

/*
 * The application's current OpenTelemetry span, read from where the opentelemetry-api gem keeps it.
 * No method of the gem is called: bytecode that runs in a hook loses what other threads send
 * (Timeout, Thread#raise, signals). Only instance variables, arrays and one hash are read, each
 * after a check of its type.
 *
 *   API 1.0 to 1.4   Thread.current[:__opentelemetry_context_storage__], which is the fiber's
 *   API 1.5 to 1.11  @opentelemetry_context of Fiber.current
 *     -> Array of Contexts, the current one last
 *     -> Context: @entries, a Hash; the key of the span is
 *        OpenTelemetry::Trace::CURRENT_SPAN_KEY, compared by identity
 *     -> Span (the SDK's too): @context, a SpanContext:
 *        @trace_id, 16 bytes; @span_id, 8 bytes; @trace_flags: @flags
 *
 * Any other layout makes the probe "degraded" until the detach.
 */
#include <ruby/ruby.h>

#include <string.h>

#include "context/vm.h"
#include "hooks.h"

/* Where the context is; filled in once the gem is loaded. */
static struct {
    VALUE span_key; /* Qnil until then */
    bool in_fiber;
    ID in_thread;
} layout = {.span_key = Qnil};

static VALUE fiber_class;
PS_KEPT(PS_HELD(layout.span_key), PS_HELD(fiber_class))
static ID id_OpenTelemetry, id_Context, id_Trace, id_CURRENT_SPAN_KEY, id_STACK_KEY, id_tracer_provider,
    id_at_tracer_provider, id_Internal, id_ProxyTracerProvider, id_opentelemetry_context,
    id_at_opentelemetry_context, id_entries, id_context, id_trace_id, id_span_id, id_trace_flags, id_flags;

void ps_trace_context_init(void)
{
    PS_KEEP(fiber_class, rb_path2class("Fiber"));
    id_OpenTelemetry = rb_intern("OpenTelemetry");
    id_Context = rb_intern("Context");
    id_Trace = rb_intern("Trace");
    id_CURRENT_SPAN_KEY = rb_intern("CURRENT_SPAN_KEY");
    id_STACK_KEY = rb_intern("STACK_KEY");
    id_tracer_provider = rb_intern("tracer_provider");
    id_at_tracer_provider = rb_intern("@tracer_provider");
    id_Internal = rb_intern("Internal");
    id_ProxyTracerProvider = rb_intern("ProxyTracerProvider");
    id_opentelemetry_context = rb_intern("opentelemetry_context");
    id_at_opentelemetry_context = rb_intern("@opentelemetry_context");
    id_entries = rb_intern("@entries");
    id_context = rb_intern("@context");
    id_trace_id = rb_intern("@trace_id");
    id_span_id = rb_intern("@span_id");
    id_trace_flags = rb_intern("@trace_flags");
    id_flags = rb_intern("@flags");
}

/*
 * A constant of a module, or nil. nil also for a constant that is still to be autoloaded: reading
 * it would run the file.
 */
static VALUE constant(VALUE module, ID name)
{
    bool is_module = RB_TYPE_P(module, T_MODULE) || RB_TYPE_P(module, T_CLASS);
    if (!is_module || !rb_const_defined_at(module, name) || !NIL_P(rb_autoload_p(module, name))) return Qnil;
    return rb_const_get_at(module, name);
}

/* Looks for the gem. PS_NO_SPAN: not loaded, or not completely; PS_A_SPAN: the layout is known. */
static enum ps_span_found find_layout(void)
{
    VALUE otel = constant(rb_cObject, id_OpenTelemetry);
    /* The gem's last file defines this method. */
    if (!RB_TYPE_P(otel, T_MODULE) || !rb_method_boundp(CLASS_OF(otel), id_tracer_provider, 0))
        return PS_NO_SPAN;
    VALUE stack_key = constant(constant(otel, id_Context), id_STACK_KEY);
    VALUE span_key = constant(constant(otel, id_Trace), id_CURRENT_SPAN_KEY);
    layout.in_fiber = rb_method_boundp(fiber_class, id_opentelemetry_context, 0);
    if (NIL_P(span_key) || !(layout.in_fiber || RB_SYMBOL_P(stack_key))) return PS_SPAN_UNKNOWN;
    if (!layout.in_fiber) layout.in_thread = rb_sym2id(stack_key);
    PS_KEEP(layout.span_key, span_key);
    return PS_A_SPAN;
}

struct search {
    VALUE key, value;
};

static int find_key(VALUE key, VALUE value, VALUE pointer)
{
    struct search *search = (struct search *)pointer;
    if (key != search->key) return ST_CONTINUE;
    search->value = value;
    return ST_STOP;
}

static bool is_id(VALUE string, size_t size)
{
    return RB_TYPE_P(string, T_STRING) && (size_t)RSTRING_LEN(string) == size;
}

static bool is_zero(VALUE string)
{
    for (long i = 0; i < RSTRING_LEN(string); i++)
        if (RSTRING_PTR(string)[i]) return false;
    return true;
}

/* An instance variable of an ordinary object; else undef. */
static VALUE of_object(VALUE object, ID name)
{
    return RB_TYPE_P(object, T_OBJECT) ? rb_attr_get(object, name) : Qundef;
}

static enum ps_span_found read_span(ps_span *to, VALUE span)
{
    VALUE context = of_object(span, id_context);
    VALUE trace_id = of_object(context, id_trace_id), span_id = of_object(context, id_span_id);
    VALUE number = of_object(of_object(context, id_trace_flags), id_flags);
    if (!is_id(trace_id, sizeof(to->trace_id)) || !is_id(span_id, sizeof(to->span_id)) ||
        !RB_FIXNUM_P(number))
        return PS_SPAN_UNKNOWN;
    if (is_zero(trace_id) || is_zero(span_id)) return PS_NO_SPAN; /* Span::INVALID */
    memcpy(to->trace_id, RSTRING_PTR(trace_id), sizeof(to->trace_id));
    memcpy(to->span_id, RSTRING_PTR(span_id), sizeof(to->span_id));
    to->flags = (uint8_t)FIX2LONG(number);
    to->known = true;
    return PS_A_SPAN;
}

enum ps_span_found ps_vm_span(ps_span *span)
{
    *span = (ps_span){.known = false};
    if (NIL_P(layout.span_key)) {
        enum ps_span_found found = find_layout();
        if (found != PS_A_SPAN) return found;
    }
    VALUE stack = layout.in_fiber ? rb_attr_get(rb_fiber_current(), id_at_opentelemetry_context)
                                  : rb_thread_local_aref(rb_thread_current(), layout.in_thread);
    if (NIL_P(stack)) return PS_NO_SPAN;
    if (!RB_TYPE_P(stack, T_ARRAY)) return PS_SPAN_UNKNOWN;
    if (!RARRAY_LEN(stack)) return PS_NO_SPAN;
    VALUE entries = of_object(RARRAY_AREF(stack, RARRAY_LEN(stack) - 1), id_entries);
    if (!RB_TYPE_P(entries, T_HASH)) return PS_SPAN_UNKNOWN;
    /* No hash look-up: it would call `hash` of the keys, which may be the application's. */
    struct search search = {layout.span_key, Qnil};
    rb_hash_foreach(entries, find_key, (VALUE)&search);
    return NIL_P(search.value) ? PS_NO_SPAN : read_span(span, search.value);
}

bool ps_vm_sends_spans(void)
{
    VALUE otel = constant(rb_cObject, id_OpenTelemetry);
    if (!RB_TYPE_P(otel, T_MODULE)) return false;
    /* Until an SDK is configured, the provider is a proxy, which makes spans of nothing. */
    VALUE provider = rb_attr_get(otel, id_at_tracer_provider);
    return !NIL_P(provider) &&
           CLASS_OF(provider) != constant(constant(otel, id_Internal), id_ProxyTracerProvider);
}

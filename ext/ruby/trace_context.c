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
 * Any other layout gives an empty string and makes the probe "degraded" until the detach. Without a
 * span, or without OpenTelemetry, the string is empty and the probe is not degraded.
 */
#include <ruby/ruby.h>

#include <string.h>

#include "hooks.h"
#include "features/requests.h"

enum { TRACE_ID = 16, SPAN_ID = 8 };

enum reading { NO_SPAN, A_SPAN, UNKNOWN };

/* Where the context is; filled in once the gem is loaded. */
static struct {
    VALUE span_key; /* Qnil until then */
    bool in_fiber;
    ID in_thread;
} layout = {.span_key = Qnil};

static VALUE fiber_class;
const ps_kept ps_trace_context_kept[] = {PS_HELD(layout.span_key), PS_HELD(fiber_class), PS_KEPT_END};
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

/* Looks for the gem. NO_SPAN: not loaded, or not completely; A_SPAN: the layout is known. */
static enum reading find_layout(void)
{
    VALUE otel = constant(rb_cObject, id_OpenTelemetry);
    /* The gem's last file defines this method. */
    if (!RB_TYPE_P(otel, T_MODULE) || !rb_method_boundp(CLASS_OF(otel), id_tracer_provider, 0))
        return NO_SPAN;
    VALUE stack_key = constant(constant(otel, id_Context), id_STACK_KEY);
    VALUE span_key = constant(constant(otel, id_Trace), id_CURRENT_SPAN_KEY);
    layout.in_fiber = rb_method_boundp(fiber_class, id_opentelemetry_context, 0);
    if (NIL_P(span_key) || !(layout.in_fiber || RB_SYMBOL_P(stack_key))) return UNKNOWN;
    if (!layout.in_fiber) layout.in_thread = rb_sym2id(stack_key);
    PS_KEEP(layout.span_key, span_key);
    return A_SPAN;
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

/* Writes hexadecimal digits. */
static char *hex(char *to, const unsigned char *bytes, int count)
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < count; i++) {
        *to++ = digits[bytes[i] >> 4];
        *to++ = digits[bytes[i] & 15];
    }
    return to;
}

static bool is_id(VALUE string, long size)
{
    return RB_TYPE_P(string, T_STRING) && RSTRING_LEN(string) == size;
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

static enum reading read_span(char *to, VALUE span)
{
    VALUE context = of_object(span, id_context);
    VALUE trace_id = of_object(context, id_trace_id), span_id = of_object(context, id_span_id);
    VALUE number = of_object(of_object(context, id_trace_flags), id_flags);
    if (!is_id(trace_id, TRACE_ID) || !is_id(span_id, SPAN_ID) || !RB_FIXNUM_P(number)) return UNKNOWN;
    if (is_zero(trace_id) || is_zero(span_id)) return NO_SPAN; /* Span::INVALID */
    unsigned char flags = (unsigned char)FIX2LONG(number);
    memcpy(to, "00-", 3);
    char *end = hex(to + 3, (const unsigned char *)RSTRING_PTR(trace_id), TRACE_ID);
    *end++ = '-';
    end = hex(end, (const unsigned char *)RSTRING_PTR(span_id), SPAN_ID);
    *end++ = '-';
    *hex(end, &flags, 1) = '\0';
    return A_SPAN;
}

static enum reading read_current(char *to)
{
    if (NIL_P(layout.span_key)) {
        enum reading found = find_layout();
        if (found != A_SPAN) return found;
    }
    VALUE stack = layout.in_fiber ? rb_attr_get(rb_fiber_current(), id_at_opentelemetry_context)
                                  : rb_thread_local_aref(rb_thread_current(), layout.in_thread);
    if (NIL_P(stack)) return NO_SPAN;
    if (!RB_TYPE_P(stack, T_ARRAY)) return UNKNOWN;
    if (!RARRAY_LEN(stack)) return NO_SPAN;
    VALUE entries = of_object(RARRAY_AREF(stack, RARRAY_LEN(stack) - 1), id_entries);
    if (!RB_TYPE_P(entries, T_HASH)) return UNKNOWN;
    /* No hash look-up: it would call `hash` of the keys, which may be the application's. */
    struct search search = {layout.span_key, Qnil};
    rb_hash_foreach(entries, find_key, (VALUE)&search);
    return NIL_P(search.value) ? NO_SPAN : read_span(to, search.value);
}

void ps_trace_context_of_span(char *to, uint32_t probes)
{
    to[0] = '\0';
    if (read_current(to) == UNKNOWN) ps_traceparent_is_unknown(probes);
}

void ps_trace_context(char *to, uint32_t probes)
{
    const ps_request *request = ps_requests_current();
    to[0] = '\0';
    /*
     * Without an SDK the current span is only what somebody took from a header: nobody will send
     * it.
     */
    if (!request || !request->own || ps_trace_context_is_kept()) ps_trace_context_of_span(to, probes);
    if (request && !to[0]) memcpy(to, request->traceparent, PS_TRACEPARENT_BUFFER);
}

bool ps_trace_context_is_kept(void)
{
    VALUE otel = constant(rb_cObject, id_OpenTelemetry);
    if (!RB_TYPE_P(otel, T_MODULE)) return false;
    /* Until an SDK is configured, the provider is a proxy, which makes spans of nothing. */
    VALUE provider = rb_attr_get(otel, id_at_tracer_provider);
    return !NIL_P(provider) &&
           CLASS_OF(provider) != constant(constant(otel, id_Internal), id_ProxyTracerProvider);
}

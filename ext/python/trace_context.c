/*
 * The application's current OpenTelemetry span, read from where the opentelemetry-api package keeps
 * it. No function of the package is called: other threads and signals can interrupt bytecode that
 * runs in a hook. Only dicts, a context variable and plain attributes are read, each after a check
 * of its type.
 *
 *   opentelemetry.context._RUNTIME_CONTEXT       a ContextVarsRuntimeContext, unless
 *                                                OTEL_PYTHON_CONTEXT names another
 *     ._current_context                          a ContextVar
 *   -> Context, a dict; the key of the span is opentelemetry.trace.propagation._SPAN_KEY,
 *      compared by identity
 *   -> Span (the SDK's too): ._context, a SpanContext: a tuple of trace id, span id, is remote,
 *      flags, state, is valid
 *
 * It has been so from 1.0 to 1.45 at least. Any other layout gives an empty string and makes the
 * probe "degraded" until the detach. Without a span, or without OpenTelemetry, the string is empty
 * and the probe is not degraded. Nothing is kept: a fresh look takes less than a microsecond, and
 * the events that carry a span are rare.
 */
#include "hooks.h"

#include <string.h>

#include "features/requests.h"

enum reading { NO_SPAN, A_SPAN, UNKNOWN };
/* The fields of a SpanContext. */
enum { TRACE_ID, SPAN_ID, IS_REMOTE, FLAGS, STATE, IS_VALID, FIELDS };

/*
 * What a loaded module has under this name: a new reference. NULL: the module is not loaded, is no
 * ordinary module, or does not have the name (yet).
 */
static PyObject *of_module(const char *module_name, const char *name)
{
    PyObject *modules = PyImport_GetModuleDict();
    PyObject *module = modules && PyDict_CheckExact(modules) ? ps_dict_get(modules, module_name) : NULL;
    PyObject *found = module && PyModule_Check(module) ? ps_dict_get(PyModule_GetDict(module), name) : NULL;
    Py_XDECREF(module);
    return found;
}

/*
 * An attribute of the instance itself: a new reference. NULL if its class has anything under that
 * name, even a property.
 */
static PyObject *of_object(PyObject *object, const char *name)
{
    PyObject *key = object ? PyUnicode_InternFromString(name) : NULL;
    if (!key) return NULL;
    PyObject *of_class = _PyType_Lookup(Py_TYPE(object), key); /* borrowed */
    PyObject *found = of_class ? NULL : PyObject_GenericGetAttr(object, key);
    Py_DECREF(key);
    return found;
}

/* Writes hexadecimal digits. */
static char *hex(char *to, unsigned long long number, int digits)
{
    for (int i = digits - 1; i >= 0; i--) *to++ = "0123456789abcdef"[number >> (4 * i) & 15];
    return to;
}

static enum reading read_span_context(char *to, PyObject *context)
{
    if (!context || !PyTuple_Check(context) || PyTuple_GET_SIZE(context) != FIELDS) return UNKNOWN;
    PyObject *trace_id = PyTuple_GET_ITEM(context, TRACE_ID), *span_id = PyTuple_GET_ITEM(context, SPAN_ID);
    PyObject *flags = PyTuple_GET_ITEM(context, FLAGS), *valid = PyTuple_GET_ITEM(context, IS_VALID);
    if (!PyLong_CheckExact(trace_id) || !PyLong_CheckExact(span_id) || !PyLong_Check(flags) ||
        !PyBool_Check(valid))
        return UNKNOWN;
    if (valid == Py_False) return NO_SPAN; /* INVALID_SPAN */
    PyObject *bits = PyLong_FromLong(64);
    PyObject *high = bits ? PyNumber_Rshift(trace_id, bits) : NULL;
    Py_XDECREF(bits);
    if (!high) return UNKNOWN;
    memcpy(to, "00-", 3);
    char *end = hex(to + 3, PyLong_AsUnsignedLongLongMask(high), 16);
    Py_DECREF(high);
    end = hex(end, PyLong_AsUnsignedLongLongMask(trace_id), 16);
    *end++ = '-';
    end = hex(end, PyLong_AsUnsignedLongLongMask(span_id), 16);
    *end++ = '-';
    *hex(end, PyLong_AsUnsignedLongLongMask(flags), 2) = '\0';
    return A_SPAN;
}

static enum reading read_context(char *to, PyObject *context, const PyObject *span_key)
{
    if (!context || !PyDict_Check(context)) return UNKNOWN;
    /* No look-up: it could compare keys of the application's, which may run its code. */
    PyObject *key, *value, *span = NULL;
    ps_section section;
    ps_section_begin(&section, context);
    for (Py_ssize_t at = 0; !span && PyDict_Next(context, &at, &key, &value);)
        if (key == span_key) span = value;
    Py_XINCREF(span);
    ps_section_end(&section);
    if (!span) return NO_SPAN;
    PyObject *span_context = of_object(span, "_context");
    enum reading found = read_span_context(to, span_context);
    Py_XDECREF(span_context);
    Py_DECREF(span);
    return found;
}

static enum reading read_runtime(char *to, PyObject *runtime, const PyObject *span_key)
{
    if (!span_key || !runtime) return UNKNOWN;
    if (runtime == Py_None) return NO_SPAN; /* up to 1.21: not used yet */
    PyObject *variable = of_object(runtime, "_current_context"), *context = NULL;
    bool read =
        variable && PyContextVar_CheckExact(variable) && PyContextVar_Get(variable, NULL, &context) == 0;
    enum reading found = !read ? UNKNOWN : context ? read_context(to, context, span_key) : NO_SPAN;
    Py_XDECREF(variable);
    Py_XDECREF(context);
    return found;
}

static enum reading read_current(char *to)
{
    /* The module defines this last, so all that is needed exists. */
    PyObject *last = of_module("opentelemetry.trace", "get_tracer_provider");
    if (!last) return NO_SPAN;
    PyObject *span_key = of_module("opentelemetry.trace.propagation", "_SPAN_KEY");
    PyObject *runtime = of_module("opentelemetry.context", "_RUNTIME_CONTEXT");
    enum reading found = read_runtime(to, runtime, span_key);
    Py_DECREF(last);
    Py_XDECREF(span_key);
    Py_XDECREF(runtime);
    return found;
}

void ps_trace_context_of_span(char *to, uint32_t probes)
{
    ps_error error = ps_error_save();
    to[0] = '\0';
    enum reading found = read_current(to);
    ps_error_restore(error);
    if (found == UNKNOWN) ps_traceparent_is_unknown(probes);
}

void ps_trace_context(char *to, uint32_t probes)
{
    ps_error error = ps_error_save();
    PyObject *request = ps_requests_current();
    to[0] = '\0';
    /*
     * Without an SDK the current span is only what somebody took from a header: nobody will send
     * it.
     */
    if (!request || !ps_requests_of(request)->own || ps_trace_context_is_kept())
        ps_trace_context_of_span(to, probes);
    if (request && !to[0]) memcpy(to, ps_requests_of(request)->traceparent, PS_TRACEPARENT_BUFFER);
    Py_XDECREF(request);
    ps_error_restore(error);
}

bool ps_trace_context_is_kept(void)
{
    /* The provider is None until an SDK is configured. */
    PyObject *provider = of_module("opentelemetry.trace", "_TRACER_PROVIDER");
    bool kept = provider && provider != Py_None;
    Py_XDECREF(provider);
    return kept;
}

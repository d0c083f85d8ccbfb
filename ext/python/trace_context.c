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
 * It has been so from 1.0 to 1.45 at least. Any other layout makes the probe "degraded" until the
 * detach. Nothing is kept: a fresh look takes less than a microsecond, and the events that carry a
 * span are rare.
 */
#include "hooks.h"

#include "context/vm.h"

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

static enum ps_span_found read_span_context(ps_span *to, PyObject *context)
{
    if (!context || !PyTuple_Check(context) || PyTuple_GET_SIZE(context) != FIELDS) return PS_SPAN_UNKNOWN;
    PyObject *trace_id = PyTuple_GET_ITEM(context, TRACE_ID), *span_id = PyTuple_GET_ITEM(context, SPAN_ID);
    PyObject *flags = PyTuple_GET_ITEM(context, FLAGS), *valid = PyTuple_GET_ITEM(context, IS_VALID);
    if (!PyLong_CheckExact(trace_id) || !PyLong_CheckExact(span_id) || !PyLong_Check(flags) ||
        !PyBool_Check(valid))
        return PS_SPAN_UNKNOWN;
    if (valid == Py_False) return PS_NO_SPAN; /* INVALID_SPAN */
    if (!ps_int_bytes(to->trace_id, trace_id)) return PS_SPAN_UNKNOWN;
    ps_span_set_number(to->span_id, PyLong_AsUnsignedLongLongMask(span_id));
    to->flags = (uint8_t)PyLong_AsUnsignedLongLongMask(flags);
    to->known = true;
    return PS_A_SPAN;
}

static enum ps_span_found read_context(ps_span *to, PyObject *context, const PyObject *span_key)
{
    if (!context || !PyDict_Check(context)) return PS_SPAN_UNKNOWN;
    /* No look-up: it could compare keys of the application's, which may run its code. */
    PyObject *key, *value, *span = NULL;
    ps_section section;
    ps_section_begin(&section, context);
    for (Py_ssize_t at = 0; !span && PyDict_Next(context, &at, &key, &value);)
        if (key == span_key) span = value;
    Py_XINCREF(span);
    ps_section_end(&section);
    if (!span) return PS_NO_SPAN;
    PyObject *span_context = of_object(span, "_context");
    enum ps_span_found found = read_span_context(to, span_context);
    Py_XDECREF(span_context);
    Py_DECREF(span);
    return found;
}

static enum ps_span_found read_runtime(ps_span *to, PyObject *runtime, const PyObject *span_key)
{
    if (!span_key || !runtime) return PS_SPAN_UNKNOWN;
    if (runtime == Py_None) return PS_NO_SPAN; /* up to 1.21: not used yet */
    PyObject *variable = of_object(runtime, "_current_context"), *context = NULL;
    bool read =
        variable && PyContextVar_CheckExact(variable) && PyContextVar_Get(variable, NULL, &context) == 0;
    enum ps_span_found found = !read     ? PS_SPAN_UNKNOWN
                               : context ? read_context(to, context, span_key)
                                         : PS_NO_SPAN;
    Py_XDECREF(variable);
    Py_XDECREF(context);
    return found;
}

static enum ps_span_found read_current(ps_span *to)
{
    /* The module defines this last, so all that is needed exists. */
    PyObject *last = of_module("opentelemetry.trace", "get_tracer_provider");
    if (!last) return PS_NO_SPAN;
    PyObject *span_key = of_module("opentelemetry.trace.propagation", "_SPAN_KEY");
    PyObject *runtime = of_module("opentelemetry.context", "_RUNTIME_CONTEXT");
    enum ps_span_found found = read_runtime(to, runtime, span_key);
    Py_DECREF(last);
    Py_XDECREF(span_key);
    Py_XDECREF(runtime);
    return found;
}

enum ps_span_found ps_vm_span(ps_span *span)
{
    ps_error error = ps_error_save();
    *span = (ps_span){.known = false};
    enum ps_span_found found = read_current(span);
    ps_error_restore(error);
    return found;
}

bool ps_vm_sends_spans(void)
{
    ps_error error = ps_error_save();
    /* The provider is None until an SDK is configured. */
    PyObject *provider = of_module("opentelemetry.trace", "_TRACER_PROVIDER");
    bool sends = provider && provider != Py_None;
    Py_XDECREF(provider);
    ps_error_restore(error);
    return sends;
}

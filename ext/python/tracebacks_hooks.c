/*
 * Which functions format tracebacks, and how calls of them reach us: their `vectorcall` is swapped,
 * so it does not matter to which names they are bound. On 3.11 calls from Python ignore the
 * vectorcall, unless the function has another type. There it gets a type that differs from the type
 * of functions only in its address.
 *
 * A function is only hooked if it is the module's own. What the application has put in its place
 * stays as it is, and the states of the probes say so; formatters that it calls are seen. Modules
 * are searched again each second, for functions that were imported or reloaded.
 */
#include "tracebacks.h"

#include <stdio.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "features/backtraces.h"
#include "usdt/info.h"

enum { HOOKED = 128 };
#define LOOK_NS 1000000000u

static const ps_formatter formatters[] = {
    {"traceback", NULL, "format_exception", "traceback.format_exception", PS_AN_EXCEPTION},
    {"traceback", NULL, "format_exc", "traceback.format_exc", PS_AN_EXCEPTION},
    {"traceback", NULL, "print_exception", "traceback.print_exception", PS_AN_EXCEPTION},
    {"traceback", NULL, "print_exc", "traceback.print_exc", PS_AN_EXCEPTION},
    {"traceback", NULL, "print_last", "traceback.print_last", PS_AN_EXCEPTION},
    {"traceback", NULL, "format_exception_only", "traceback.format_exception_only", PS_AN_EXCEPTION},
    {"traceback", NULL, "extract_tb", "traceback.extract_tb", PS_AN_EXCEPTION},
    {"traceback", NULL, "format_tb", "traceback.format_tb", PS_AN_EXCEPTION},
    {"traceback", NULL, "print_tb", "traceback.print_tb", PS_AN_EXCEPTION},
    {"traceback", NULL, "format_list", "traceback.format_list", PS_AN_EXCEPTION},
    {"traceback", NULL, "print_list", "traceback.print_list", PS_AN_EXCEPTION},
    {"traceback", NULL, "extract_stack", "traceback.extract_stack", PS_A_STACK},
    {"traceback", NULL, "format_stack", "traceback.format_stack", PS_A_STACK},
    {"traceback", NULL, "print_stack", "traceback.print_stack", PS_A_STACK},
    {"traceback", "TracebackException", "__init__", "traceback.TracebackException", PS_MAKES},
    {"traceback", "TracebackException", "from_exception", "traceback.TracebackException", PS_MAKES},
    {"traceback", "TracebackException", "format", "traceback.TracebackException.format", PS_MADE},
    {"traceback", "TracebackException", "print", "traceback.TracebackException.print", PS_MADE},
    {"traceback", "TracebackException", "format_exception_only",
     "traceback.TracebackException.format_exception_only", PS_MADE},
    {"traceback", "StackSummary", "extract", "traceback.StackSummary.extract", PS_AN_EXCEPTION},
    {"traceback", "StackSummary", "format", "traceback.StackSummary.format", PS_AN_EXCEPTION},
    /*
     * From 3.13 on the interpreter calls this to report an exception that nobody handles. Before,
     * it does so in C.
     */
    {"traceback", NULL, "_print_exception_bltin", "sys.excepthook", PS_AN_EXCEPTION},
    {"logging", "Formatter", "formatException", "logging.Formatter.formatException", PS_AN_EXCEPTION},
};
enum { FORMATTERS = sizeof(formatters) / sizeof(formatters[0]) };

static struct {
    bool on, ready;
    ps_probe_set wanted;
    uint64_t looked_ns; /* written by the worker, read by the watcher */
    struct {
        PyObject *function;
        const ps_formatter *formatter;
    } hooked[HOOKED];
    unsigned count;
    char reason[120]; /* why some are not; empty when all are */
} hooks;

PS_KEPT(PS_HELD_FIELD(hooks.hooked, function))

bool ps_tracebacks_on(void)
{
    return PS_READ(hooks.on);
}

const ps_formatter *ps_tracebacks_hooked(PyObject *function)
{
    for (unsigned i = 0; i < hooks.count; i++)
        if (hooks.hooked[i].function == function) return hooks.hooked[i].formatter;
    return NULL;
}

/* ---- A function ---- */

#if PS_CALLS_ARE_INLINED
/*
 * A function is pickled and copied by its name. An object of another type needs a method for that.
 */
static PyObject *reduce(PyObject *function, PyObject *protocol)
{
    return PyObject_GetAttrString(function, "__qualname__");
}

static PyMethodDef function_methods[] = {{"__reduce_ex__", reduce, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static PyTypeObject hooked_function = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "function",
    .tp_base = &PyFunction_Type,
    .tp_flags = Py_TPFLAGS_DEFAULT, /* the rest comes with the slots that it inherits */
    .tp_methods = function_methods,
};
#endif

static bool is_hooked(PyObject *function)
{
    return ((PyFunctionObject *)function)->vectorcall == ps_traceback_call;
}

static void hook(PyObject *function, const ps_formatter *formatter)
{
    PS_KEEP(hooks.hooked[hooks.count].function, function);
    hooks.hooked[hooks.count++].formatter = formatter;
    ps_function_set_call(function, ps_traceback_call);
#if PS_CALLS_ARE_INLINED
    Py_SET_TYPE(function, &hooked_function);
#endif
}

static void unhook_last(void)
{
    PyObject *function = hooks.hooked[--hooks.count].function;
#if PS_CALLS_ARE_INLINED
    Py_SET_TYPE(function, &PyFunction_Type);
#endif
    /*
     * Code that swapped the vectorcall in the meantime calls ours for good, which only passes on
     * then.
     */
    if (is_hooked(function)) ps_function_set_call(function, ps_traceback_original);
    PS_KEEP(hooks.hooked[hooks.count].function, NULL);
}

#if PS_CALLS_ARE_INLINED && defined(Py_DEBUG)
/*
 * Runs the function under its own type, which debug builds assert. Meanwhile its calls from Python
 * go unseen.
 */
PyObject *ps_traceback_run(PyObject *function, PyObject *const *args, size_t flags, PyObject *names)
{
    Py_SET_TYPE(function, &PyFunction_Type);
    PyObject *result = ps_traceback_original(function, args, flags, names);
    if (ps_tracebacks_hooked(function)) Py_SET_TYPE(function, &hooked_function);
    return result;
}
#else
PyObject *ps_traceback_run(PyObject *function, PyObject *const *args, size_t flags, PyObject *names)
{
    return ps_traceback_original(function, args, flags, names);
}
#endif

/* ---- All of them ---- */

/* A new reference, or NULL. */
static PyObject *of_dict(PyObject *dict, const char *name)
{
    return dict && PyDict_CheckExact(dict) ? ps_dict_get(dict, name) : NULL;
}

/* A new reference; NULL if this version has no such function, or its module is not loaded. */
static PyObject *find(const ps_formatter *formatter, PyObject *globals)
{
    PyObject *klass = formatter->klass ? of_dict(globals, formatter->klass) : NULL;
    PyObject *dict =
        formatter->klass ? (klass && PyType_Check(klass) ? ((PyTypeObject *)klass)->tp_dict : NULL) : globals;
    PyObject *found = of_dict(dict, formatter->name);
    Py_XDECREF(klass);
    if (!found || Py_TYPE(found) != &PyClassMethod_Type) return found;
    PyObject *function = PyObject_GetAttrString(found, "__func__");
    Py_DECREF(found);
    return function;
}

static bool has_no_hook(PyObject *function, PyObject *globals)
{
    return PyFunction_Check(function) && ((PyFunctionObject *)function)->func_globals == globals &&
           ((PyFunctionObject *)function)->vectorcall == ps_traceback_original;
}

static void look(void)
{
    PS_WRITE(hooks.looked_ns, ps_monotonic_ns());
    for (int i = 0; i < FORMATTERS; i++) {
        PyObject *module = of_dict(PyImport_GetModuleDict(), formatters[i].module);
        PyObject *globals = module && PyModule_Check(module) ? PyModule_GetDict(module) : NULL;
        PyObject *found = find(&formatters[i], globals);
        bool known = found && ps_tracebacks_hooked(found);
        if (found && !known && has_no_hook(found, globals) && hooks.count < HOOKED)
            hook(found, &formatters[i]);
        else if (found && !known && !hooks.reason[0])
            snprintf(hooks.reason, sizeof(hooks.reason),
                     "the application has replaced %s%s%s.%s: it is left alone", formatters[i].module,
                     formatters[i].klass ? "." : "", formatters[i].klass ? formatters[i].klass : "",
                     formatters[i].name);
        Py_XDECREF(found);
        Py_XDECREF(module);
    }
    PyErr_Clear();
    if (hooks.reason[0]) ps_info_degrade(hooks.wanted & ps_backtraces_feature.probes, hooks.reason);
}

static bool needs_upkeep(void)
{
    return PS_READ(hooks.on) && ps_monotonic_ns() - PS_READ(hooks.looked_ns) >= LOOK_NS;
}

static void upkeep(void)
{
    if (hooks.on) look();
}

/* ---- On and off ---- */

/* A new function has the vectorcall of all functions, which is no public symbol from 3.13 on. */
static bool find_original(void)
{
    PyObject *globals = PyDict_New();
    PyCodeObject *code = globals ? PyCode_NewEmpty("", "", 1) : NULL;
    PyObject *function = code ? PyFunction_New((PyObject *)code, globals) : NULL;
    if (function) ps_traceback_original = ((PyFunctionObject *)function)->vectorcall;
    Py_XDECREF(function);
    Py_XDECREF(code);
    Py_XDECREF(globals);
    return function != NULL;
}

static bool get_ready(void)
{
    if (hooks.ready) return true;
    hooks.ready = find_original() && ps_tracebacks_ready();
#if PS_CALLS_ARE_INLINED
    hooks.ready = hooks.ready && PyType_Ready(&hooked_function) == 0;
#endif
    PyErr_Clear();
    return hooks.ready;
}

static bool switch_hooks(ps_probe_set wanted)
{
    bool on = (wanted & ps_backtraces_feature.probes) != 0;
    bool more = (wanted & ~hooks.wanted & ps_backtraces_feature.probes) != 0;
    hooks.wanted = wanted;
    if (on && more && get_ready()) {
        PS_WRITE(hooks.on, true);
        look();
    } else if (!on && hooks.on) {
        PS_WRITE(hooks.on, false);
        while (hooks.count) unhook_last();
        hooks.reason[0] = '\0';
        ps_tracebacks_forget();
    }
    return true;
}

const ps_hooks ps_backtraces_hooks = {
    .feature = &ps_backtraces_feature,
    .hook = switch_hooks,
    .needs_upkeep = needs_upkeep,
    .upkeep = upkeep,
};

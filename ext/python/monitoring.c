#include "hooks.h"

#if PS_HAVE_MONITORING

#include <stdio.h>
#include <string.h>

#include "base/atomic.h"

/*
 * sys.monitoring has six tool ids: 0 is for debuggers, 1 for coverage, 2 for profilers, 5 for
 * optimizers. The ids without a purpose come first.
 */
static const int preferred_ids[] = {3, 4, 2, 5, 1, 0};

static const struct {
    const char *event;
    PyObject *(*function)(PyObject *self, PyObject *const *args, Py_ssize_t count);
} callbacks[] = {
    {"PY_START", ps_on_start},  {"PY_RESUME", ps_on_resume},
    {"PY_THROW", ps_on_throw},  {"PY_RETURN", ps_on_return},
    {"PY_YIELD", ps_on_yield},  {"PY_UNWIND", ps_on_unwind},
    {"RAISE", ps_on_raise},     {"EXCEPTION_HANDLED", ps_on_handled},
    {"RERAISE", ps_on_reraise}, {"LINE", ps_on_line},
};
enum { CALLBACKS = sizeof(callbacks) / sizeof(callbacks[0]), OWNER_BUFFER = 12 };

static struct {
    PyObject *module, *disable;     /* sys.monitoring and its DISABLE, once they are needed */
    PyObject *functions[CALLBACKS]; /* kept: without a GIL one may be running when it is taken out */
    int id;                         /* -1: none */
    unsigned asked[PS_MONITORING_PARTS];
    unsigned taken_out; /* disabled for now, until the part asks for something else */
    bool disabled;      /* a callback disabled something since the last restart */
    char refusal[120];  /* why there are no events */
} monitoring = {.id = -1};

PS_KEPT(PS_HELD(monitoring.module), PS_HELD(monitoring.disable), PS_HELD_ALL(monitoring.functions))

/*
 * The interpreter calls these. A built-in function would do, but its call fails at the limit of
 * recursion. If the call reports an exception that is handled, the failure is an exception for the
 * same handler, and so on for ever (3.12).
 */
typedef struct {
    PyObject_HEAD vectorcallfunc call;
    int number;
} Callback;

static PyObject *call_callback(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    return callbacks[((Callback *)self)->number].function(self, args, PyVectorcall_NARGS(count));
}

static PyTypeObject callback_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "probescope._native.Callback",
    .tp_basicsize = sizeof(Callback),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_vectorcall_offset = offsetof(Callback, call),
    .tp_call = PyVectorcall_Call,
};

/* A new reference, or NULL with an exception. */
static PyObject *new_callback(int number)
{
    Callback *callback = PyType_Ready(&callback_type) == 0 ? PyObject_New(Callback, &callback_type) : NULL;
    if (!callback) return NULL;
    callback->call = call_callback;
    callback->number = number;
    return (PyObject *)callback;
}

PyObject *ps_monitoring_go_on(void)
{
    Py_RETURN_NONE;
}

PyObject *ps_monitoring_disable(void)
{
    PS_WRITE(monitoring.disabled, true);
    return Py_NewRef(monitoring.disable);
}

static bool find_module(void)
{
    if (monitoring.module) return true;
    PyObject *module = PySys_GetObject("monitoring"); /* borrowed */
    PyObject *disable = module ? PyObject_GetAttrString(module, "DISABLE") : NULL;
    if (!disable) {
        PyErr_Clear();
        snprintf(monitoring.refusal, sizeof(monitoring.refusal), "sys.monitoring is missing");
        return false;
    }
    PS_KEEP_NEW(monitoring.disable, disable);
    PS_KEEP(monitoring.module, module);
    return true;
}

/* Calls a function of sys.monitoring and drops its result. False when it raised. */
static bool call(const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    PyObject *function = PyObject_GetAttrString(monitoring.module, name);
    PyObject *tuple = Py_VaBuildValue(format, arguments);
    PyObject *result = function && tuple ? PyObject_Call(function, tuple, NULL) : NULL;
    va_end(arguments);
    Py_XDECREF(function);
    Py_XDECREF(tuple);
    if (!result) PyErr_Clear();
    Py_XDECREF(result);
    return result != NULL;
}

/* The bit of an event, which differs between versions. 0: the module has no such event. */
static int event_of(const char *name)
{
    PyObject *events = PyObject_GetAttrString(monitoring.module, "events");
    PyObject *event = events ? PyObject_GetAttrString(events, name) : NULL;
    int value = event && PyLong_Check(event) ? (int)PyLong_AsLong(event) : 0;
    Py_XDECREF(events);
    Py_XDECREF(event);
    PyErr_Clear();
    return value;
}

/* Lists the holders of the ids. Each name is cut, so that all of them have room in a reason. */
static void find_owners(void)
{
    char *to = stpcpy(monitoring.refusal, "all sys.monitoring tool ids are taken: ");
    for (int id = 0; id < 6; id++) {
        PyObject *owner = PyObject_CallMethod(monitoring.module, "get_tool", "i", id);
        Py_ssize_t size = 1;
        const char *name = owner && PyUnicode_Check(owner) ? PyUnicode_AsUTF8AndSize(owner, &size) : NULL;
        if (id) to = stpcpy(to, ", ");
        to += ps_copy_utf8(to, OWNER_BUFFER, name ? name : "?", name ? (size_t)size : 1);
        Py_XDECREF(owner);
        PyErr_Clear();
    }
}

/*
 * Registers these callbacks; NULL: removes ours. False: an audit hook objected, or the module was
 * changed.
 */
static bool register_all(PyObject *const *functions)
{
    bool done = true;
    for (int i = 0; i < CALLBACKS; i++) {
        PyObject *function = functions ? functions[i] : Py_None;
        int event = function ? event_of(callbacks[i].event) : 0;
        done &= event && call("register_callback", "(iiO)", monitoring.id, event, function);
    }
    return done;
}

/*
 * Restarts first: events that were disabled under the id would stay disabled for the next tool that
 * takes it (seen on 3.12 and 3.13).
 */
static void release(void)
{
    ps_monitoring_restart();
    register_all(NULL);
    call("free_tool_id", "(i)", monitoring.id);
    monitoring.id = -1;
}

static bool claim(void)
{
    for (size_t i = 0; monitoring.id < 0 && i < sizeof(preferred_ids) / sizeof(preferred_ids[0]); i++)
        if (call("use_tool_id", "(is)", preferred_ids[i], "probescope")) monitoring.id = preferred_ids[i];
    if (monitoring.id < 0) {
        find_owners();
        return false;
    }
    for (int i = 0; i < CALLBACKS; i++)
        if (!monitoring.functions[i]) PS_KEEP_NEW(monitoring.functions[i], new_callback(i));
    PyErr_Clear();
    if (register_all(monitoring.functions)) return true;
    release();
    snprintf(monitoring.refusal, sizeof(monitoring.refusal),
             "sys.monitoring does not take callbacks (audit hooks?)");
    return false;
}

/* Enables what the parts ask for, and gives the id back when that is nothing. */
static bool set_events(void)
{
    unsigned asked = 0;
    int set = 0;
    for (int i = 0; i < PS_MONITORING_PARTS; i++) asked |= monitoring.asked[i];
    for (int i = 0; i < CALLBACKS; i++)
        if (((asked & ~monitoring.taken_out) >> i) & 1) set |= event_of(callbacks[i].event);
    bool done = call("set_events", "(ii)", monitoring.id, set);
    if (!asked) release();
    return done;
}

bool ps_monitoring_ask(enum ps_monitoring_part part, unsigned events, const char **reason)
{
    unsigned before = monitoring.asked[part];
    if (before == events) return true;
    monitoring.taken_out &= ~(before | events);
    if (find_module() && (monitoring.id >= 0 || claim())) {
        monitoring.asked[part] = events;
        if (set_events() || !events) return true;
        monitoring.asked[part] = before;
        set_events();
        snprintf(monitoring.refusal, sizeof(monitoring.refusal), "sys.monitoring does not take events");
    }
    *reason = monitoring.refusal;
    return false;
}

void ps_monitoring_take_out(unsigned events)
{
    monitoring.taken_out |= events;
    if (monitoring.id >= 0) set_events();
}

void ps_monitoring_listen_to(PyCodeObject *code, bool on)
{
    if (monitoring.id < 0) return;
    int events = on ? event_of("PY_START") | event_of("PY_RETURN") : 0;
    call("set_local_events", "(iOi)", monitoring.id, code, events);
    if (on) ps_monitoring_restart(); /* what functions_hooks.c disabled in it */
}

void ps_monitoring_restart(void)
{
    if (PS_EXCHANGE(monitoring.disabled, false)) call("restart_events", "()");
}

#endif

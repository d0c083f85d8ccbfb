#include "hooks.h"

#if PS_HAVE_MONITORING

#include <stdio.h>
#include <string.h>

#include "atomic.h"

/*
 * sys.monitoring has six tool ids; 0 is for debuggers, 1 for coverage, 2 for profilers, 5 for optimizers. Those that nobody has a
 * name for come first, and the others only when they are free.
 */
static const int preferred_ids[] = {3, 4, 2, 5, 1, 0};

static PyMethodDef callbacks[] = {
    {"PY_START", (PyCFunction)(void (*)(void))ps_on_start, METH_FASTCALL, NULL},
    {"PY_RESUME", (PyCFunction)(void (*)(void))ps_on_resume, METH_FASTCALL, NULL},
    {"PY_THROW", (PyCFunction)(void (*)(void))ps_on_throw, METH_FASTCALL, NULL},
    {"PY_RETURN", (PyCFunction)(void (*)(void))ps_on_return, METH_FASTCALL, NULL},
    {"PY_YIELD", (PyCFunction)(void (*)(void))ps_on_yield, METH_FASTCALL, NULL},
    {"PY_UNWIND", (PyCFunction)(void (*)(void))ps_on_unwind, METH_FASTCALL, NULL},
    {"RAISE", (PyCFunction)(void (*)(void))ps_on_raise, METH_FASTCALL, NULL},
    {"EXCEPTION_HANDLED", (PyCFunction)(void (*)(void))ps_on_handled, METH_FASTCALL, NULL},
    {"RERAISE", (PyCFunction)(void (*)(void))ps_on_reraise, METH_FASTCALL, NULL},
    {"LINE", (PyCFunction)(void (*)(void))ps_on_line, METH_FASTCALL, NULL},
};
#define ALL "all sys.monitoring "
enum { CALLBACKS = sizeof(callbacks) / sizeof(callbacks[0]), OWNER_BUFFER = 12 };

static struct {
    PyObject *module, *disable;     /* sys.monitoring and its DISABLE, once they are needed */
    PyObject *functions[CALLBACKS]; /* kept: without a GIL one may be on its way when it is taken out */
    int id;                         /* -1: none */
    unsigned asked[PS_MONITORING_PARTS];
    bool disabled;     /* a callback disabled something since the last restart */
    char refusal[120]; /* why there is none of it */
} monitoring = {.id = -1};

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
    monitoring.disable = disable;
    monitoring.module = Py_NewRef(module);
    return true;
}

/* Calls a function of sys.monitoring; false when it raised. Its result is of no interest. */
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

/* The bit of an event: they differ from version to version. 0: the module has none of that name. */
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

/* Who holds the ids, each name cut to what leaves room for all of them in a reason. */
static void find_owners(void)
{
    char *to = stpcpy(monitoring.refusal, ALL "tool ids are taken: ");
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

/* Puts these in, or takes them out where they are NULL. False: an audit hook objected, or the module is not as it was. */
static bool register_all(PyObject *const *functions)
{
    bool done = true;
    for (int i = 0; i < CALLBACKS; i++) {
        PyObject *function = functions ? functions[i] : Py_None;
        int event = function ? event_of(callbacks[i].ml_name) : 0;
        done &= event && call("register_callback", "(iiO)", monitoring.id, event, function);
    }
    return done;
}

/* What was disabled under the id would stay so for the tool that takes it next (seen on 3.12 and 3.13). */
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
        if (!monitoring.functions[i]) monitoring.functions[i] = PyCFunction_New(&callbacks[i], NULL);
    PyErr_Clear();
    if (register_all(monitoring.functions)) return true;
    release();
    snprintf(monitoring.refusal, sizeof(monitoring.refusal), "sys.monitoring does not take callbacks (audit hooks?)");
    return false;
}

/* Has the module tell what is asked for, and gives the id back when that is nothing. */
static bool set_events(void)
{
    unsigned asked = 0;
    int set = 0;
    for (int i = 0; i < PS_MONITORING_PARTS; i++) asked |= monitoring.asked[i];
    for (int i = 0; i < CALLBACKS; i++)
        if ((asked >> i) & 1) set |= event_of(callbacks[i].ml_name);
    bool done = call("set_events", "(ii)", monitoring.id, set);
    if (!asked) release();
    return done;
}

bool ps_monitoring_ask(enum ps_monitoring_part part, unsigned events, const char **reason)
{
    unsigned before = monitoring.asked[part];
    if (before == events) return true;
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

const char *ps_monitoring_refusal(void)
{
    size_t skip = strlen(ALL);
    return monitoring.refusal + (strncmp(monitoring.refusal, ALL, skip) == 0 ? skip : 0);
}

void ps_monitoring_listen_to(PyCodeObject *code, bool on)
{
    if (monitoring.id < 0) return;
    int events = on ? event_of("PY_START") | event_of("PY_RETURN") : 0;
    call("set_local_events", "(iOi)", monitoring.id, code, events);
    if (on) ps_monitoring_restart(); /* what functions.c disabled in it */
}

void ps_monitoring_restart(void)
{
    if (PS_EXCHANGE(monitoring.disabled, false)) call("restart_events", "()");
}

#endif

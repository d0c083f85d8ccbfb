/*
 * Latency probes: the calls of functions that the application named, hooked only while somebody
 * listens to their probes. Events come for code objects, so functions that share a code object get
 * one of their own (python/probescope/_latency.py).
 *
 * From 3.12 on sys.monitoring reports the starts and returns of these code objects. It reports
 * exceptions that leave a function only for all code. Before 3.12 the profile hook reports all
 * functions. An open call is identified by its frame, which stays where it is while a generator or
 * a coroutine waits. So such a call is one call, from its first step to its end.
 */
#include "hooks.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "calls/suspended_calls.h"
#include "features/latency.h"

struct traced {
    PyCodeObject *code; /* NULL: no longer traced */
    ps_latency *latency;
};

static struct {
    Py_ssize_t index; /* of the probe that is kept in code objects */
    struct traced *list;
    size_t count, capacity;
    ps_suspended_table open; /* all open calls; only `frame` and `first`, in ns, are used */
    bool on;                 /* somebody listens to one of them */
} traced;

static void each_code(void (*visit)(void *place))
{
    for (size_t i = 0; i < traced.count; i++) visit(&traced.list[i].code);
}

PS_KEPT(PS_HELD_EACH(each_code))

void ps_latency_init(void)
{
    traced.index = PyUnstable_Eval_RequestCodeExtraIndex(NULL);
}

bool ps_latency_on(void)
{
    return traced.on;
}

/* NULL: the code has no probe. */
static ps_latency *latency_of(PyCodeObject *code)
{
    void *kept = NULL;
    if (PyUnstable_Code_GetExtra((PyObject *)code, traced.index, &kept) < 0) PyErr_Clear();
    return kept;
}

/* ---- Calls ---- */

bool ps_latency_enter(PyCodeObject *code, ps_address frame, bool resumed)
{
    ps_latency *latency = latency_of(code);
    if (!latency) return false;
    ps_suspended call = {.frame = frame};
    if (resumed) return true;
    /* An entry of this frame is left from a generator that was dropped, which no event reported. */
    if (!ps_latency_listened(latency)) {
        ps_suspended_take(&traced.open, frame, &call);
        return true;
    }
    call.first = ps_monotonic_ns();
    ps_suspended_put(&traced.open, &call);
    return true;
}

bool ps_latency_leave(PyCodeObject *code, ps_address frame, int outcome)
{
    uint64_t now = ps_monotonic_ns();
    ps_suspended call;
    const ps_latency *latency = latency_of(code);
    if (!latency) return false;
    if (outcome != PS_OUTCOME_SUSPENDED && ps_suspended_take(&traced.open, frame, &call))
        ps_latency_fire(latency, now - call.first, outcome);
    return true;
}

/* ---- On and off ---- */

/* Switches the events of all that is listened to; *reason: why that failed. */
static void ask(bool on, const char **reason)
{
#if PS_HAVE_MONITORING
    ps_monitoring_ask(PS_MONITORING_LATENCY, on ? PS_ON_UNWIND : 0, reason);
#else
    ps_profile(PS_PROFILE_LATENCY, on);
#endif
}

static void listen_to(const ps_latency *latency, bool on)
{
#if PS_HAVE_MONITORING
    for (size_t i = 0; i < traced.count; i++)
        if (traced.list[i].code && traced.list[i].latency == latency)
            ps_monitoring_listen_to(traced.list[i].code, on);
#endif
}

static bool hook(ps_probe_set wanted)
{
    bool installed = ps_features_installed(), on = false;
    const char *reason = NULL;
    if (ps_latency_is_switched(installed)) return true;
    for (const ps_latency *latency = ps_latency_first(); installed && latency; latency = latency->next)
        on |= ps_latency_listened(latency);
    if (on) ask(true, &reason);
    traced.on = on;
    for (ps_latency *latency = ps_latency_first(); latency; latency = latency->next) {
        bool listened = on && ps_latency_listened(latency), was_refused = latency->reason != NULL;
        latency->reason = listened ? reason : NULL;
        if (listened != latency->hooked || was_refused) listen_to(latency, listened && !reason);
        ps_latency_hooked(latency, listened);
    }
    if (on) return true;
    ask(false, &reason);
    ps_suspended_clear(&traced.open);
    return true;
}

const ps_hooks ps_latency_hooks = {.hook = hook};

/* ---- What python/probescope/_latency.py asks for ---- */

static bool add(PyCodeObject *code, ps_latency *latency)
{
    for (size_t i = 0; i < traced.count; i++)
        if (traced.list[i].code == code) return true;
    if (traced.count == traced.capacity) {
        size_t capacity = traced.capacity ? traced.capacity * 2 : 16;
        struct traced *list = PyMem_Realloc(traced.list, capacity * sizeof(*list));
        if (!list) {
            PyErr_NoMemory();
            return false;
        }
        traced.list = list;
        traced.capacity = capacity;
    }
    if (PyUnstable_Code_SetExtra((PyObject *)code, traced.index, latency) < 0) return false;
    traced.list[traced.count++] = (struct traced){NULL, latency};
    PS_KEEP(traced.list[traced.count - 1].code, code);
    return true;
}

PyObject *ps_latency_trace(PyObject *module, PyObject *arguments)
{
    PyCodeObject *code;
    const char *name, *error;
    if (!PyArg_ParseTuple(arguments, "O!s", &PyCode_Type, &code, &name)) return NULL;
    ps_turn turn;
    ps_turn_begin(&turn);
    ps_latency *latency = ps_latency_define(name, &error);
    bool added = latency && add(code, latency);
    /* If somebody listens already, the watcher has it hooked. */
    if (added) ps_latency_hooked(latency, false);
    ps_turn_end(&turn);
    if (!latency) return PyUnicode_FromString(error);
    if (!added) return NULL;
    Py_RETURN_NONE;
}

PyObject *ps_latency_untrace(PyObject *module, PyObject *code)
{
    ps_turn turn;
    ps_turn_begin(&turn);
    bool found = false, left = false;
    ps_latency *latency = PyCode_Check(code) ? latency_of((PyCodeObject *)code) : NULL;
    for (size_t i = 0; latency && i < traced.count; i++) {
        if ((PyObject *)traced.list[i].code == code) {
#if PS_HAVE_MONITORING
            if (latency->hooked) ps_monitoring_listen_to(traced.list[i].code, false);
#endif
            /* The last one takes the place. The caller holds `code`, so it is not freed here. */
            struct traced *last = &traced.list[traced.count - 1];
            PS_KEEP(traced.list[i].code, last->code);
            PS_KEEP(last->code, NULL);
            traced.list[i--].latency = last->latency;
            traced.count--;
            found = true;
        } else {
            left |= traced.list[i].latency == latency;
        }
    }
    if (found && PyUnstable_Code_SetExtra(code, traced.index, NULL) < 0) PyErr_Clear();
    if (found && !left) ps_latency_close(latency);
    ps_turn_end(&turn);
    return PyBool_FromLong(found);
}

PyObject *ps_latency_probes(PyObject *module, PyObject *unused)
{
    PyObject *probes = PyList_New(0);
    const ps_latency *latency = NULL;
    while (probes && (latency = ps_latency_next_shown(latency)) != NULL) {
        PyObject *listened = latency->hooked ? Py_True : Py_False;
        PyObject *one =
            Py_BuildValue("(szOz)", latency->name, ps_latency_path(latency), listened, latency->reason);
        if (!one || PyList_Append(probes, one) < 0) Py_CLEAR(probes);
        Py_XDECREF(one);
    }
    return probes;
}

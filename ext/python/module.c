/*
 * The CPython extension: probescope._native is defined here. What an application calls is in
 * python/probescope/__init__.py.
 */
#include "hooks.h"

#include <string.h>

#include "agent/status.h"
#include "base/clock.h"
#include "base/fork.h"
#include "base/memory.h"
#include "calls/here.h"
#include "features/call_paths.h"
#include "features/coverage.h"
#include "features/gvl.h"
#include "features/requests.h"
#include "features/waits.h"
#include "usdt/info.h"
#include "gil_wait.h"

static bool forced;

bool ps_forced(void)
{
    return forced;
}

static const char *why_no_waits(void)
{
    return "CPython tells nobody which threads wait for the GIL";
}

static const ps_hooks requests_hooks = {.feature = &ps_requests_feature};
static const ps_hooks call_paths_hooks = {.feature = &ps_call_paths_feature,
                                          .refused = ps_sampling_refused,
                                          .needs_upkeep = ps_paths_need_upkeep,
                                          .upkeep = ps_paths_upkeep};
static const ps_hooks gvl_hooks = {
    .feature = &ps_gvl_feature, .unsupported = PS_BIT(GVL__WAIT), .why = why_no_waits};

static const char *why_no_wait_rows(void)
{
    return "CPython tells nobody when a thread begins to wait";
}

static const ps_hooks waits_hooks = {
    .feature = &ps_waits_feature, .unsupported = PS_BIT(WAIT__STATS), .why = why_no_wait_rows};

const ps_vm ps_the_vm = {
    .hooks =
        {
            &ps_exceptions_hooks,
            &ps_functions_hooks,
            &ps_greenlets_hooks,
            &ps_latency_hooks,
            &ps_lines_hooks,
            &ps_samples_hooks,
            &ps_objects_hooks,
            &ps_collections_hooks,
            &ps_backtraces_hooks,
            &requests_hooks,
            &gvl_hooks,
            &waits_hooks,
            &call_paths_hooks,
#if !PS_HAVE_MONITORING
            &ps_per_thread_hooks,
#endif
        },
    .request = ps_worker_request,
    .may_clear = ps_no_other_turn,
    .sample = ps_sampling_tick,
    .leaves_out_late_ticks = true,
    .step = ps_gil_wait_step,
    .cover_again = ps_functions_restart,
};

PyDoc_STRVAR(
    start_doc,
    "start(memory_limit, force=False)\n--\n\nStarts the watcher, which looks for tracers. memory_limit: "
    "bytes; 0 keeps the default. force: permits costly probes from now on. Raises OSError.");
static PyObject *native_start(PyObject *self, PyObject *args)
{
    Py_ssize_t limit;
    int force = 0;
    if (!PyArg_ParseTuple(args, "n|p", &limit, &force)) return NULL;
    if (force) forced = true;
    int error = ps_install((size_t)limit);
    if (error) {
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(stop_doc,
             "stop()\n--\n\nFlushes, ends the watcher and removes all hooks. Returns False when nothing was "
             "installed.");
static PyObject *native_stop(PyObject *self, PyObject *unused)
{
    return PyBool_FromLong(ps_uninstall());
}

/*
 * The interpreter ends and nobody called stop(): atexit._clear() was called. A row may keep a class
 * alive, and with it the variables of the class's module. Their __del__ would print too late to be
 * seen. Only sys.modules holds this module, so it goes before any of those. The worker is not
 * waited for: no other thread gets the GIL any more.
 */
static void end_unasked(void *unused)
{
    if (ps_is_finalizing()) ps_uninstall_at_end();
}

static struct PyModuleDef end_definition = {PyModuleDef_HEAD_INIT, "probescope._end",
                                            "Empty: the end of this module is the end of the interpreter.",
                                            .m_free = end_unasked};

static bool prepare_end(void)
{
    PyObject *module = PyModule_Create(&end_definition);
    bool done = module && PyDict_SetItemString(PyImport_GetModuleDict(), "probescope._end", module) == 0;
    Py_XDECREF(module);
    return done;
}

static const char *text_at(const void *list, size_t i)
{
    return PyBytes_AS_STRING(PyList_GET_ITEM((PyObject *)list, (Py_ssize_t)i));
}

/*
 * A copy of an iterable of str as UTF-8 (undecodable bytes of paths as they were). NULL with an
 * exception; for None NULL without one.
 */
static ps_strings copy_strings(PyObject *iterable)
{
    PyObject *list = iterable == Py_None ? NULL : PySequence_List(iterable);
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
        PyObject *bytes = PyUnicode_EncodeFSDefault(PyList_GET_ITEM(list, i));
        if (!bytes || PyList_SetItem(list, i, bytes) < 0) Py_CLEAR(list);
    }
    if (!list) return NULL;
    ps_strings strings = ps_strings_copy(list, (size_t)PyList_GET_SIZE(list), text_at);
    Py_DECREF(list);
    if (!strings) PyErr_NoMemory();
    return strings;
}

PyDoc_STRVAR(cover_doc, "cover(roots, outside, ours, patterns)\n--\n\nSets which functions are covered: see "
                        "probescope._coverage.");
static PyObject *native_cover(PyObject *self, PyObject *args)
{
    PyObject *lists[4];
    if (!PyArg_ParseTuple(args, "OOOO", &lists[0], &lists[1], &lists[2], &lists[3])) return NULL;
    ps_strings strings[4] = {NULL};
    for (int i = 0; i < 4 && !PyErr_Occurred(); i++) strings[i] = copy_strings(lists[i]);
    if (PyErr_Occurred()) {
        for (int i = 0; i < 4; i++) ps_strings_free(strings[i]);
        return NULL;
    }
    ps_turn turn;
    ps_turn_begin(&turn);
    ps_coverage_set(strings[0], strings[1], strings[2], strings[3], ".py");
    ps_functions_restart();
    ps_tracebacks_forget();
    ps_turn_end(&turn);
    Py_RETURN_NONE;
}

/* Sets the item and releases the value. False with an exception. */
static bool set(PyObject *dict, const char *key, PyObject *value)
{
    bool done = value && PyDict_SetItemString(dict, key, value) == 0;
    Py_XDECREF(value);
    return done;
}

/* {name: (state, reason or None)} */
static PyObject *states_of_probes(void)
{
    PyObject *probes = PyDict_New();
    for (int i = 0; probes && i < PS_PROBE_COUNT; i++) {
        const char *reason = probescope_info.probes[i].reason, *state = ps_state_names[ps_info_state_of(i)];
        if (!set(probes, ps_probe_names[i], Py_BuildValue("(sz)", state, *reason ? reason : NULL)))
            Py_CLEAR(probes);
    }
    return probes;
}

PyDoc_STRVAR(status_doc,
             "status()\n--\n\nReturns the states of the probes and the counters of probescope_info.");
static PyObject *native_status(PyObject *self, PyObject *unused)
{
    PyObject *status = PyDict_New();
    bool done = status != NULL;
#define FLAG(name, value)   done = done && set(status, name, PyBool_FromLong(value));
#define PROBES(name)        done = done && set(status, name, states_of_probes());
#define TEXT(name, value)   done = done && set(status, name, PyUnicode_FromString(value));
#define NUMBER(name, value) done = done && set(status, name, PyLong_FromUnsignedLongLong(value));
    PS_STATUS(FLAG, PROBES, TEXT, NUMBER)
    if (!done) Py_CLEAR(status);
    return status;
}

static PyMethodDef methods[] = {
    {"start", native_start, METH_VARARGS, start_doc},
    {"stop", native_stop, METH_NOARGS, stop_doc},
    {"cover", native_cover, METH_VARARGS, cover_doc},
    {"status", native_status, METH_NOARGS, status_doc},
    {"publish_thread_context", ps_publish_thread_context, METH_NOARGS,
     "publish_thread_context()\n--\n\nPublishes the current span of this thread (OTEP 4947)."},
    {"follow_contexts", ps_follow_contexts, METH_NOARGS,
     "follow_contexts()\n--\n\nPublishes the span at each switch of contexts as well. Returns False when "
     "the interpreter does not report switches."},
    {"publish_process_context", ps_publish_process_context, METH_O,
     "publish_process_context(payload, /)\n--\n\nPublishes an encoded ProcessContext (OTEP 4719). "
     "Returns False on failure."},
    {"set_strict", ps_set_strict, METH_O,
     "set_strict(value, /)\n--\n\nSets whether wrong arguments of a Probe raise TypeError in its caller."},
    {"nothing", ps_nothing, METH_O,
     "nothing(value, /)\n--\n\nReturns False. For benchmarks: the minimum cost of a call into C."},
    {"requests_told", ps_tell_of_requests, METH_NOARGS,
     "requests_told()\n--\n\nRecords that this process reports requests or jobs from now on."},
    {"requests_wanted", ps_requests_are_wanted, METH_NOARGS,
     "requests_wanted()\n--\n\nReturns whether a tracer listens to a probe that needs a Request."},
    {"enter_request", ps_enter_request, METH_O,
     "enter_request(request, /)\n--\n\nMakes a request, or None, the current one of this context. Returns "
     "the previous one."},
    {"trace_latency", ps_latency_trace, METH_VARARGS,
     "trace_latency(code, name, /)\n--\n\nGives a code object a latency probe. Returns None, or a str that "
     "says why the name is not possible."},
    {"untrace_latency", ps_latency_untrace, METH_O,
     "untrace_latency(code, /)\n--\n\nRemoves the latency probe of a code object. Returns False when it had "
     "none."},
    {"latency_probes", ps_latency_probes, METH_NOARGS,
     "latency_probes()\n--\n\nReturns a list of (name, path or None, whether a tracer listens, the reason "
     "why calls are not reported or None)."},
    {NULL, NULL, 0, NULL},
};

static void retain(uintptr_t object)
{
    Py_INCREF((PyObject *)object);
}

static void release(uintptr_t object)
{
    Py_DECREF((PyObject *)object);
}

/* Once for each process: only the main interpreter is hooked. */
static int execute(PyObject *module)
{
    static bool executed;
    if (!ps_is_main_interpreter()) {
        PyErr_SetString(PyExc_ImportError,
                        "probes are in the main interpreter alone, and this is a subinterpreter");
        return -1;
    }
    ps_kept_init(retain, release);
    if (PyModule_AddStringConstant(module, "VERSION", PROBESCOPE_VERSION) < 0 ||
        ps_run_time_probes_init(module) < 0 || ps_requests_init(module) < 0)
        return -1;
    if (executed) return 0;
    executed = true;
    ps_clock_start();
    ps_looking_besides(PS_LOOK_FUNCTION, PS_HAVE_MONITORING ? 12 : 27);
    ps_looking_usual(PS_LOOK_FUNCTION, PS_HAVE_MONITORING ? 17 : 20);
    ps_looking_besides(PS_LOOK_LINE, PS_HAVE_MONITORING ? 20 : 44);
    ps_looking_besides(PS_LOOK_EXCEPTION, 40);
    ps_looking_besides(PS_LOOK_OBJECT, PS_HAVE_MONITORING ? 15 : 9);
    ps_names_init();
    ps_freed_codes_init();
    ps_functions_init();
    ps_here_lines_are(PS_VM_CODE, PS_VM_LINES, PS_VM_OBJECT);
    ps_latency_init();
    ps_collections_init();
    char version[32];
    snprintf(version, sizeof(version), "%s", Py_GetVersion());
    version[strcspn(version, " ")] = '\0';
    ps_info_start("python", version, PROBESCOPE_VERSION);
    ps_features_init();
    if (ps_os_fork_init() < 0 || !prepare_end()) return -1;
    if (ps_fork_init() != 0) {
        PyErr_SetString(PyExc_ImportError, "no memory for a handler of forks");
        return -1;
    }
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#if PS_CAN_SAY_NO_GIL
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                        "probescope._native",
                                        "Probes: the part of probescope that is written in C.",
                                        0,
                                        methods,
                                        slots,
                                        NULL,
                                        NULL,
                                        NULL};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}

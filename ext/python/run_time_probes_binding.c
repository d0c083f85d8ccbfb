/*
 * Run-time probes: probescope._native.Probe and .Provider, for python/probescope/provider.py.
 *
 * fire() runs on any thread. Its arguments are examined without running bytecode. The callable,
 * which is the application's, is called only while a tracer listens.
 */
#include "features/run_time_probes.h"

#include "hooks.h"

#include <string.h>

#include "base/atomic.h"

typedef struct {
    PyObject_HEAD SDTProvider_t *sdt;
} Provider;

typedef struct {
    PyObject_HEAD ps_run_time_probe base;
    PyObject *provider, *name;
} Probe;

/* What one call encodes; kept until the call has fired. */
typedef struct {
    PyObject *texts[SDT_MAX_ARGUMENTS];
    int count;
} Encoded;

static bool integer_of(ArgType_t type, PyObject *value, uint64_t *to)
{
    int overflow;
    if (!PyLong_Check(value)) return false;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    *to = (uint64_t)number;
    if (overflow == 0) return ps_type_holds(type, *to, number < 0);
    if (overflow < 0) return false;
    *to = PyLong_AsUnsignedLongLong(value);
    return !PyErr_Occurred() && ps_type_holds(type, *to, false);
}

/*
 * As UTF-8, with "?" for what cannot be encoded (lone surrogates, as in file names that are no
 * UTF-8).
 */
static const char *utf8_of(PyObject *value, Encoded *encoded)
{
    const char *text = PyUnicode_AsUTF8(value);
    if (text) return text;
    PyErr_Clear();
    PyObject *bytes = PyUnicode_AsEncodedString(value, "utf-8", "replace");
    if (bytes) encoded->texts[encoded->count++] = bytes;
    return bytes ? PyBytes_AS_STRING(bytes) : NULL;
}

static bool text_of(PyObject *value, uint64_t *to, Encoded *encoded)
{
    const char *text = NULL;
    if (PyUnicode_Check(value)) text = utf8_of(value, encoded);
    else if (PyBytes_Check(value)) text = PyBytes_AS_STRING(value);
    *to = (uintptr_t)text;
    return text || value == Py_None;
}

/* False: the value has another type. */
static bool convert(ArgType_t type, PyObject *value, uint64_t *to, Encoded *encoded)
{
    if ((int)type == sdtString) return text_of(value, to, encoded);
    if ((int)type != sdtDouble) return integer_of(type, value, to);
    if (!PyFloat_Check(value) && !PyLong_Check(value)) return false;
    double number = PyFloat_Check(value) ? PyFloat_AS_DOUBLE(value) : PyLong_AsDouble(value);
    memcpy(to, &number, sizeof(number));
    return !PyErr_Occurred();
}

/*
 * Describes a value without calling a method of its class, and of an int no more than can be read.
 */
static PyObject *described(PyObject *value)
{
    int overflow = 0;
    if (PyLong_CheckExact(value)) {
        PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow > 0 && PyLong_AsUnsignedLongLong(value) != (unsigned long long)-1) overflow = 0;
        PyErr_Clear();
        if (overflow != 0) return PyUnicode_FromString("an int of more than 64 bits");
        return PyObject_Repr(value);
    }
    if (value == Py_None || PyBool_Check(value) || PyFloat_CheckExact(value)) return PyObject_Repr(value);
    return PyUnicode_FromFormat("an instance of %.200s", Py_TYPE(value)->tp_name);
}

static PyObject *raise_type_error(const Probe *probe, int wrong, PyObject *given)
{
    static const ps_type_names names = {"a str, bytes or None", "a float", "an int"};
    char wanted[PS_TYPE_BUFFER];
    PyObject *text = described(given);
    if (text)
        PyErr_Format(PyExc_TypeError, "argument %d of probe %U has to be %s, not %U", wrong, probe->name,
                     ps_run_time_wanted(wanted, probe->base.types[wrong], &names), text);
    Py_XDECREF(text);
    return NULL;
}

/* Counts the event as dropped; raises as well while Probes are strict, in development. */
static PyObject *refuse(Probe *probe, Py_ssize_t count, int wrong, PyObject *const *given)
{
    bool raises = ps_run_time_refuse(&probe->base);
    PyErr_Clear(); /* of the conversion */
    if (!raises) Py_RETURN_FALSE;
    if (count != probe->base.count)
        return PyErr_Format(PyExc_TypeError, "probe %U takes %d arguments, not %zd", probe->name,
                            probe->base.count, count);
    return raise_type_error(probe, wrong, given[wrong]);
}

/* Returns the index of the first argument that cannot be converted, or the count. */
static int convert_all(const Probe *probe, PyObject *const *given, uint64_t *values, Encoded *encoded)
{
    int i = 0;
    while (i < probe->base.count && convert(probe->base.types[i], given[i], &values[i], encoded)) i++;
    return i;
}

static PyObject *fire(Probe *probe, PyObject *const *given, Py_ssize_t count)
{
    uint64_t values[SDT_MAX_ARGUMENTS] = {0};
    Encoded encoded = {.count = 0};
    if (count != probe->base.count) return refuse(probe, count, 0, given);
    int converted = convert_all(probe, given, values, &encoded);
    bool fired = converted == count && ps_run_time_fire(&probe->base, values);
    while (encoded.count > 0) Py_DECREF(encoded.texts[--encoded.count]);
    return converted == count ? PyBool_FromLong(fired) : refuse(probe, count, converted, given);
}

static PyObject *refuse_names(Probe *probe)
{
    if (!ps_run_time_refuse(&probe->base)) Py_RETURN_FALSE;
    return PyErr_Format(PyExc_TypeError, "arguments of probe %U have no names", probe->name);
}

static PyObject *probe_fire(PyObject *self, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    Probe *probe = (Probe *)self;
    if (PS_LIKELY(!probeIsEnabled(probe->base.sdt)) && !PS_READ(ps_run_time_strict)) Py_RETURN_FALSE;
    return PS_UNLIKELY(names && PyTuple_GET_SIZE(names) > 0) ? refuse_names(probe)
                                                             : fire(probe, given, count);
}

static PyObject *fire_what(Probe *probe, PyObject *arguments)
{
    if (!PyTuple_Check(arguments)) return fire(probe, &arguments, 1);
    return fire(probe, &PyTuple_GET_ITEM(arguments, 0), PyTuple_GET_SIZE(arguments));
}

static PyObject *probe_call(PyObject *self, PyObject *given, PyObject *named)
{
    Probe *probe = (Probe *)self;
    if (PyTuple_GET_SIZE(given) != 1 || named || !PyCallable_Check(PyTuple_GET_ITEM(given, 0))) {
        if (!ps_run_time_refuse(&probe->base)) Py_RETURN_FALSE;
        return PyErr_Format(PyExc_TypeError,
                            "probe %U is called with one callable, which returns its arguments", probe->name);
    }
    if (PS_LIKELY(!probeIsEnabled(probe->base.sdt))) Py_RETURN_FALSE;
    PyObject *arguments = PyObject_CallObject(PyTuple_GET_ITEM(given, 0), NULL);
    PyObject *fired = arguments ? fire_what(probe, arguments) : NULL;
    Py_XDECREF(arguments);
    return fired;
}

static PyObject *probe_enabled(PyObject *self, void *unused)
{
    return PyBool_FromLong(probeIsEnabled(((Probe *)self)->base.sdt));
}

static PyObject *probe_dropped(PyObject *self, void *unused)
{
    return PyLong_FromUnsignedLongLong(PS_READ(((Probe *)self)->base.dropped));
}

static PyObject *probe_name(PyObject *self, void *unused)
{
    Py_INCREF(((Probe *)self)->name);
    return ((Probe *)self)->name;
}

static void probe_dealloc(PyObject *self)
{
    Py_XDECREF(((Probe *)self)->provider);
    Py_XDECREF(((Probe *)self)->name);
    PyObject_Free(self);
}

static PyMethodDef probe_methods[] = {
    {"fire", (PyCFunction)(void (*)(void))probe_fire, METH_FASTCALL | METH_KEYWORDS,
     "Fires the probe. Returns whether a tracer listens.\n\nWrong arguments are counted, and raise "
     "TypeError in development."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef probe_fields[] = {
    {"enabled", probe_enabled, NULL, "Whether a tracer listens.", NULL},
    {"dropped", probe_dropped, NULL, "The number of calls with wrong arguments.", NULL},
    {"name", probe_name, NULL, "The name of the probe.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject probe_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "probescope._native.Probe",
    .tp_basicsize = sizeof(Probe),
    .tp_dealloc = probe_dealloc,
    .tp_call = probe_call,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A probe of a Provider.\n\nA call takes a callable that returns the arguments. The callable "
              "runs only while a tracer listens.",
    .tp_methods = probe_methods,
    .tp_getset = probe_fields,
};

static PyObject *provider_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    const char *name;
    if (!PyArg_ParseTuple(given, "s", &name)) return NULL;
    Provider *provider = PyObject_New(Provider, type);
    if (!provider) return NULL;
    provider->sdt = providerInit(name);
    if (provider->sdt) return (PyObject *)provider;
    Py_DECREF(provider);
    return PyErr_NoMemory();
}

static void provider_dealloc(PyObject *self)
{
    SDTProvider_t *provider = ((Provider *)self)->sdt;
    if (provider) ps_run_time_free(provider);
    PyObject_Free(self);
}

static PyObject *add(PyObject *self, PyObject *name, PyObject *types)
{
    SDTProvider_t *provider = ((Provider *)self)->sdt;
    Py_ssize_t count = PyTuple_GET_SIZE(types);
    const char *text = PyUnicode_AsUTF8(name);
    if (!text) return NULL;
    if (count > PS_MOST_ARGUMENTS)
        return PyUnicode_FromFormat("%zd arguments: at most %d are possible", count, PS_MOST_ARGUMENTS);
    Probe *probe = PyObject_New(Probe, &probe_type);
    if (!probe) return NULL;
    Py_INCREF(probe->provider = self);
    Py_INCREF(probe->name = name);
    probe->base = (ps_run_time_probe){.count = (int)count};
    for (Py_ssize_t i = 0; i < count; i++)
        probe->base.types[i] = (ArgType_t)PyLong_AsLong(PyTuple_GET_ITEM(types, i));
    const char *wrong = PyErr_Occurred() ? NULL : ps_run_time_add(&probe->base, provider, text);
    if (probe->base.sdt) return (PyObject *)probe;
    Py_DECREF(probe);
    return wrong ? PyUnicode_FromString(wrong) : NULL;
}

/* add(name, types): a Probe, or a str that says what is wrong. */
static PyObject *provider_add(PyObject *self, PyObject *arguments)
{
    PyObject *name, *types;
    if (!PyArg_ParseTuple(arguments, "UO!", &name, &PyTuple_Type, &types)) return NULL;
    ps_section section; /* for the library's text about an error */
    ps_section_begin(&section, self);
    PyObject *added = add(self, name, types);
    ps_section_end(&section);
    return added;
}

/* load(): None, or a str that says what is wrong. */
static PyObject *provider_load(PyObject *self, PyObject *unused)
{
    ps_section section;
    ps_section_begin(&section, self);
    const char *wrong = ps_run_time_load(((Provider *)self)->sdt);
    PyObject *text = wrong ? PyUnicode_FromString(wrong) : NULL;
    ps_section_end(&section);
    if (wrong) return text;
    Py_RETURN_NONE;
}

static PyObject *provider_unload(PyObject *self, PyObject *unused)
{
    ps_section section;
    ps_section_begin(&section, self);
    bool unloaded = providerUnload(((Provider *)self)->sdt) == 0;
    ps_section_end(&section);
    return PyBool_FromLong(unloaded);
}

static PyObject *provider_path(PyObject *self, PyObject *unused)
{
#ifdef LIBSTAPSDT_PROBESCOPE
    PyObject *decoded = NULL;
    ps_section section; /* the path is overwritten when the provider is loaded again */
    ps_section_begin(&section, self);
    const char *path = providerPath(((Provider *)self)->sdt);
    if (path) decoded = PyUnicode_DecodeFSDefault(path);
    ps_section_end(&section);
    if (path) return decoded;
#endif
    Py_RETURN_NONE;
}

static PyMethodDef provider_methods[] = {
    {"add", provider_add, METH_VARARGS,
     "Adds a probe, by its name and a tuple of type numbers. Returns the probe, or an error as a str."},
    {"load", provider_load, METH_NOARGS, "Shows the probes to tracers. Returns None, or an error as a str."},
    {"unload", provider_unload, METH_NOARGS, "Hides the probes from tracers. Returns False on failure."},
    {"path", provider_path, METH_NOARGS,
     "Returns the path of the probe file, which tracers accept, or None."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject provider_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "probescope._native.Provider",
    .tp_basicsize = sizeof(Provider),
    .tp_dealloc = provider_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "The implementation of probescope.Provider.",
    .tp_methods = provider_methods,
    .tp_new = provider_new,
};

PyObject *ps_set_strict(PyObject *module, PyObject *value)
{
    int truth = PyObject_IsTrue(value);
    if (truth < 0) return NULL;
    PS_WRITE(ps_run_time_strict, truth);
    Py_RETURN_NONE;
}

PyObject *ps_nothing(PyObject *module, PyObject *value)
{
    Py_RETURN_FALSE;
}

int ps_add_type(PyObject *module, const char *name, PyTypeObject *type)
{
    if (PyType_Ready(type) < 0) return -1;
    Py_INCREF(type);
    if (PyModule_AddObject(module, name, (PyObject *)type) == 0) return 0;
    Py_DECREF(type);
    return -1;
}

int ps_run_time_probes_init(PyObject *module)
{
    if (ps_add_type(module, "Provider", &provider_type) < 0 || ps_add_type(module, "Probe", &probe_type) < 0)
        return -1;
    if (PyModule_AddIntConstant(module, "MOST_ARGUMENTS", PS_MOST_ARGUMENTS) < 0) return -1;
    return PyModule_AddStringConstant(module, "PROVIDERS", ps_provider_library());
}

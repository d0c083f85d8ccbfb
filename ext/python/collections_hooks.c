/*
 * Garbage collections, by gc.callbacks, the one public way. While somebody listens the application
 * can see our callback there: a C function that returns at once. The list is the collector's own,
 * taken when the extension is loaded. So an application that binds another list to the name changes
 * nothing. If it empties the list, our callback is back within a second.
 *
 * While stacks are sampled the callback is there, too: it notes in which frame a collection runs.
 *
 * The number of a collection is the sum of those that gc.get_stats() counts.
 */
#include "hooks.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "features/collections.h"
#include "features/samples.h"
#include "usdt/probe.h"

/* From one check of the list to the next. */
enum { CHECK_NS = 1000000000 };

static struct {
    PyObject *callbacks, *get_stats; /* of the module gc */
    PyObject *callback;              /* ours */
    PyObject *generation, *collected;
    bool on, under_way;
    ps_address frame;         /* the frame in which a collection runs; unset: none does */
    uint64_t number, started; /* of the collection; started: ticks */
    uint64_t checked_ns;
} collection;

PS_KEPT(PS_HELD(collection.callbacks), PS_HELD(collection.get_stats), PS_HELD(collection.callback),
        PS_HELD(collection.generation), PS_HELD(collection.collected))

static const char *const kinds[] = {"generation 0", "generation 1", "generation 2"};

/*
 * The number in a dict that the collector makes anew for each collection; 0 if the key is missing.
 */
static uint64_t number_of(PyObject *info, PyObject *key)
{
    PyObject *value = PyDict_CheckExact(info) ? PyDict_GetItemWithError(info, key) : NULL;
    uint64_t number = value && PyLong_CheckExact(value) ? (uint64_t)PyLong_AsLongLong(value) : 0;
    PyErr_Clear();
    return number;
}

static const char *kind_of(PyObject *info)
{
    uint64_t generation = number_of(info, collection.generation);
    return kinds[generation < 3 ? generation : 2];
}

/*
 * Called by the collector with ("start" or "stop", info), on any thread, with the GIL and no error
 * set.
 */
static PyObject *on_collection(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !collection.on || !PyUnicode_Check(args[0])) Py_RETURN_NONE;
    ps_look look = ps_look_begin_rare(PS_LOOK_COLLECTION);
    uint64_t now = look.began;
    if (PyUnicode_CompareWithASCIIString(args[0], "start") == 0) {
        collection.number++;
        collection.under_way = true;
        PS_WRITE(collection.frame.value, ps_current_frame().value);
        if (PS_ENABLED(GC__START)) ps_fire_gc__start(kind_of(args[1]), collection.number);
        collection.started = ps_ticks();
    } else if (collection.under_way) {
        collection.under_way = false;
        PS_WRITE(collection.frame.value, 0);
        if (PS_ENABLED(GC__DONE))
            ps_fire_gc__done(kind_of(args[1]), collection.number, ps_ticks_to_ns(now - collection.started),
                             number_of(args[1], collection.collected));
    }
    ps_look_end(look);
    Py_RETURN_NONE;
}

static PyMethodDef method = {"probescope", (PyCFunction)(void (*)(void))on_collection, METH_FASTCALL,
                             "Reports garbage collections to a tracer that listens."};

void ps_collections_init(void)
{
    PyObject *gc = PyImport_ImportModule("gc");
    PyObject *callbacks = gc ? PyObject_GetAttrString(gc, "callbacks") : NULL;
    if (callbacks && PyList_CheckExact(callbacks)) PS_KEEP(collection.callbacks, callbacks);
    Py_XDECREF(callbacks);
    PS_KEEP_NEW(collection.get_stats, gc ? PyObject_GetAttrString(gc, "get_stats") : NULL);
    Py_XDECREF(gc);
    PS_KEEP_NEW(collection.callback, PyCFunction_New(&method, NULL));
    PS_KEEP_NEW(collection.generation, PyUnicode_InternFromString("generation"));
    PS_KEEP_NEW(collection.collected, PyUnicode_InternFromString("collected"));
    PyErr_Clear();
}

/* The number of collections so far. */
static uint64_t collections(void)
{
    PyObject *stats = PyObject_CallObject(collection.get_stats, NULL);
    uint64_t sum = 0;
    for (Py_ssize_t i = 0; stats && PyList_CheckExact(stats) && i < PyList_GET_SIZE(stats); i++) {
        PyObject *count = PyDict_GetItemString(PyList_GET_ITEM(stats, i), "collections");
        if (count) sum += PyLong_AsUnsignedLongLong(count);
    }
    Py_XDECREF(stats);
    PyErr_Clear();
    return sum;
}

/* Our place in the list, or -1. */
static Py_ssize_t place(void)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(collection.callbacks); i++)
        if (PyList_GET_ITEM(collection.callbacks, i) == collection.callback) return i;
    return -1;
}

/* If our callback is taken out during a collection, the end of the collection is not reported. */
static void forget_collection(void)
{
    collection.under_way = false;
    PS_WRITE(collection.frame.value, 0);
}

static void put_in(void)
{
    if (place() >= 0) return;
    forget_collection();
    collection.number = collections();
    if (PyList_Append(collection.callbacks, collection.callback) != 0) PyErr_Clear();
}

static void take_out(void)
{
    for (Py_ssize_t i; (i = place()) >= 0;)
        if (PyList_SetSlice(collection.callbacks, i, i + 1, NULL) != 0) break;
    PyErr_Clear();
    forget_collection();
}

bool ps_collections_in(uintptr_t frame)
{
    return frame && PS_READ(collection.frame.value) == frame;
}

static bool needs_upkeep(void)
{
    return PS_READ(collection.on) && ps_monotonic_ns() - PS_READ(collection.checked_ns) >= CHECK_NS;
}

static void upkeep(void)
{
    if (collection.on) put_in();
    PS_WRITE(collection.checked_ns, ps_monotonic_ns());
}

static const char *refused(void)
{
    bool found = collection.callbacks && collection.get_stats && collection.callback;
    return found ? NULL : "gc.callbacks or gc.get_stats was missing when probescope was imported";
}

static bool hook(ps_probe_set wanted)
{
    bool on = (wanted & (ps_collections_feature.probes | ps_samples_feature.probes)) != 0 && !refused();
    if (on == collection.on) return true;
    PS_WRITE(collection.on, on);
    if (on) put_in();
    else take_out();
    return true;
}

const ps_hooks ps_collections_hooks = {
    .feature = &ps_collections_feature,
    .hook = hook,
    .refused = refused,
    .needs_upkeep = needs_upkeep,
    .upkeep = upkeep,
};

/*
 * Greenlets (gevent, eventlet) switch in C, and no hook of CPython reports that. greenlet has its
 * own hook: a function for each thread, which is called after each switch. While somebody listens
 * to functions, each thread gets a function of ours at its first call, which calls the one that was
 * there. Only the thread itself can take the function out. It does so at its first switch after the
 * tracer has left.
 */
#include "hooks.h"

#include "base/atomic.h"
#include "base/clock.h"

/* From one look for the module to the next. */
enum { LOOK_NS = 1000000000 };

static struct {
    PyObject *settrace, *gettrace; /* greenlet's, once it is imported */
    bool on;
    uint64_t looked_ns;
} greenlets;

PS_KEPT(PS_HELD(greenlets.settrace), PS_HELD(greenlets.gettrace))

static PyObject *on_switch(PyObject *previous, PyObject *args);
static PyMethodDef definition = {"probescope", on_switch, METH_VARARGS, NULL};

/* Is this thread's function ours? */
static bool is_in(void)
{
    PyObject *function = PyObject_CallObject(greenlets.gettrace, NULL);
    bool ours = function && PyCFunction_Check(function) && PyCFunction_GET_FUNCTION(function) == on_switch;
    Py_XDECREF(function);
    return ours;
}

/* Returns the function that was there: a new reference. */
static PyObject *put_in(PyObject *function)
{
    return PyObject_CallFunctionObjArgs(greenlets.settrace, function, NULL);
}

/* Called by greenlet after each switch, with "switch" or "throw" and (left, entered). */
static PyObject *on_switch(PyObject *previous, PyObject *args)
{
    PyObject *pair = PyTuple_GET_SIZE(args) == 2 ? PyTuple_GET_ITEM(args, 1) : NULL;
    if (greenlets.on && pair && PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2) {
        ps_turn turn;
        ps_turn_begin(&turn);
        ps_current_stack_switched(PS_ADDRESS(PyTuple_GET_ITEM(pair, 0)),
                                  PS_ADDRESS(PyTuple_GET_ITEM(pair, 1)));
        ps_turn_end(&turn);
    } else if (!greenlets.on && is_in()) {
        Py_XDECREF(put_in(previous));
    }
    PyErr_Clear();
    if (previous != Py_None) return PyObject_Call(previous, args, NULL);
    Py_RETURN_NONE;
}

void ps_greenlets_follow(void)
{
    if (!greenlets.on || !greenlets.settrace || is_in()) return;
    /* The earlier function has to be known when ours is made. */
    PyObject *previous = put_in(Py_None);
    PyObject *ours = previous ? PyCFunction_New(&definition, previous) : NULL;
    PyObject *none = previous ? put_in(ours ? ours : previous) : NULL;
    Py_XDECREF(none);
    Py_XDECREF(ours);
    Py_XDECREF(previous);
    PyErr_Clear();
}

/* Both or none: a module that only pretends to be greenlet's has neither. */
static void find_functions(void)
{
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed, like all below */
    PyObject *module =
        PyDict_CheckExact(modules) ? PyDict_GetItemString(modules, "greenlet._greenlet") : NULL;
    PyObject *names = module && PyModule_CheckExact(module) ? PyModule_GetDict(module) : NULL;
    PyObject *settrace = names ? PyDict_GetItemString(names, "settrace") : NULL;
    PyObject *gettrace = names ? PyDict_GetItemString(names, "gettrace") : NULL;
    if (!settrace || !gettrace || !PyCFunction_Check(settrace) || !PyCFunction_Check(gettrace)) return;
    PS_KEEP(greenlets.gettrace, gettrace);
    PS_KEEP(greenlets.settrace, settrace);
}

/* A program may import greenlet late. */
static bool needs_upkeep(void)
{
    return PS_READ(greenlets.on) && !PS_READ(greenlets.settrace) &&
           ps_monotonic_ns() - PS_READ(greenlets.looked_ns) >= LOOK_NS;
}

static void upkeep(void)
{
    PS_WRITE(greenlets.looked_ns, ps_monotonic_ns());
    if (greenlets.settrace) return; /* found since somebody asked whether this is needed */
    find_functions();
    if (greenlets.settrace) ps_current_stack_begin();
}

void ps_greenlets_switch(bool on)
{
    PS_WRITE(greenlets.on, on);
    if (!on) ps_current_stack_end();
    else if (greenlets.settrace) ps_current_stack_begin();
    else upkeep();
}

const ps_hooks ps_greenlets_hooks = {
    .needs_upkeep = needs_upkeep,
    .upkeep = upkeep,
};

#include "atomic.h"
#include "hooks.h"

/* A shadow stack for each thread. It ends with the thread: the interpreter keeps a capsule that frees it, with the GIL. */
static __thread ps_stack *current;

static void free_stack(PyObject *capsule)
{
    ps_stack_free(PyCapsule_GetPointer(capsule, NULL));
    current = NULL; /* of the thread that ends, which is the one that runs this; for another it finds its own again */
}

static const char key_name[] = "probescope.stack";

static ps_stack *find_stack(void)
{
    PyObject *key = PyUnicode_InternFromString(key_name), *kept = PyThreadState_GetDict();
    if (!key || !kept) {
        PyErr_Clear();
        Py_XDECREF(key);
        return NULL;
    }
    PyObject *capsule = PyDict_GetItemWithError(kept, key);
    if (capsule) {
        current = PyCapsule_GetPointer(capsule, NULL);
    } else {
        ps_stack *stack = ps_stack_new();
        capsule = stack ? PyCapsule_New(stack, NULL, free_stack) : NULL;
        if (capsule && PyDict_SetItem(kept, key, capsule) == 0) current = stack;
        Py_XDECREF(capsule);
    }
    Py_DECREF(key);
    PyErr_Clear();
    return current;
}

ps_stack *ps_contexts_current(void)
{
    return PS_LIKELY(current != NULL) ? current : find_stack();
}

void ps_contexts_forget(PyThreadState *thread)
{
    PyObject *capsule = thread->dict ? PyDict_GetItemString(thread->dict, key_name) : NULL; /* borrowed */
    if (capsule) ps_stack_abandon(PyCapsule_GetPointer(capsule, NULL));
}

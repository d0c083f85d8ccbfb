/*
 * Publishes the current span of each thread for profilers outside of the process
 * (core/context/thread_context.h), if the application asks for it. It publishes after each change
 * of the context, which the package reports. From 3.14 on the interpreter itself reports when a
 * thread goes from one context to another, as from task to task.
 */
#include "hooks.h"

#include "context/process_context.h"
#include "context/thread_context.h"

PyObject *ps_publish_thread_context(PyObject *module, PyObject *unused)
{
    ps_thread_context_publish();
    Py_RETURN_NONE;
}

#if PS_HAVE_CONTEXT_WATCHERS
static int switched(PyContextEvent event, PyObject *context)
{
    ps_thread_context_publish();
    return 0;
}
#endif

PyObject *ps_follow_contexts(PyObject *module, PyObject *unused)
{
#if PS_HAVE_CONTEXT_WATCHERS
    static bool following;
    if (!following && PyContext_AddWatcher(switched) < 0) return NULL;
    following = true;
    Py_RETURN_TRUE;
#else
    Py_RETURN_FALSE;
#endif
}

PyObject *ps_publish_process_context(PyObject *module, PyObject *payload)
{
    if (!PyBytes_Check(payload)) return PyErr_Format(PyExc_TypeError, "payload must be bytes");
    return PyBool_FromLong(
        ps_process_context_publish(PyBytes_AS_STRING(payload), (size_t)PyBytes_GET_SIZE(payload)));
}

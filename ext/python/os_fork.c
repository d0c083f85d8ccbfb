/*
 * os.fork(). The library has one handler of the C library's fork() (base/fork.h), which starts the
 * watcher again in the child. CPython needs two more things, for which os.register_at_fork() calls
 * the handlers of this file, with the GIL:
 *
 * - os.fork() initialises the GIL and the list of threads anew only after the C library's handlers
 *   ran. Until then no thread may ask for the GIL: it would wait for a GIL that is thrown away.
 * - From 3.12 on os.fork() reads the number of threads in /proc/self/stat and warns if there is
 *   more than one. If our threads are the only others, they end before the fork. They are started
 *   again when os.fork() has returned, by a pending call at the main thread's next step: in a
 *   process without other threads it is the main thread that forks.
 *
 * The order of one os.fork():
 *
 *   before()            here: our threads end, or do not ask for the GIL from now on
 *   the steps' before   base/fork.h: the worker does not use the GIL, reads of stacks are over
 *   the C library       forks
 *   the other steps     in the parent and in the child, where a new watcher may already run
 *   CPython             initialises the GIL in the child
 *   after_in_parent(),  here: our threads may ask for the GIL again
 *   after_in_child()
 *
 * A server that forks in C (uWSGI) runs the steps alone. It needs neither of the two things.
 */
#include "hooks.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/thread_record.h"

/*
 * The kernel counts a thread that has ended until it has buried the thread. For so long after the
 * end of one of ours that may be the case.
 */
#define BURIAL_NS 20000000u
/*
 * For so long at most the fork waits for the burial of threads that were joined, if nothing else
 * can be in the way.
 */
#define BURIALS_NS 1000000000u
/* After a fork the watcher waits for so much CPU time of others' handlers at most. */
#define HANDLERS_NS 20000000u

static struct {
    int under_way; /* os.fork() calls between their first handler and their last */
    bool paused;
    ps_address caller;        /* the frame that calls os.fork() */
    uint64_t returned_cpu_ns; /* the parent's CPU time when our handler after the fork ran */
} forks;

bool ps_os_fork_under_way(void)
{
    return PS_READ(forks.under_way) != 0;
}

#if PS_FORK_WARNS_OF_THREADS
#include <fcntl.h>
#include <unistd.h>

/* How many threads the kernel counts; 0 when it does not say. */
static int count_threads(void)
{
    char text[1024], *field;
    int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? -1 : read(file, text, sizeof(text) - 1);
    if (file >= 0) close(file);
    if (size <= 0) return 0;
    text[size] = '\0';
    field = strrchr(text, ')'); /* the second field is the name, which may hold anything */
    for (int i = 2; field && i < 20; i++) field = strchr(field + 1, ' ');
    return field ? atoi(field) : 0;
}

/* Waits until the kernel counts so many threads. False at the deadline. */
static bool await_threads(int threads, uint64_t deadline_ns)
{
    int counted;
    while ((counted = count_threads()) > threads && ps_monotonic_ns() < deadline_ns) sched_yield();
    return counted == threads;
}

/*
 * Has os.fork() returned? Then the code runs that called it, or one of its callers. In somebody's
 * handler the frame that called os.fork() is further down on the stack.
 */
static bool has_returned(void)
{
    PyFrameObject *frame = PyEval_GetFrame();
    if (!ps_address_known(forks.caller) || !frame || ps_address_equal(forks.caller, PS_ADDRESS(frame)))
        return true;
    Py_INCREF(frame);
    while (frame && !ps_address_equal(forks.caller, PS_ADDRESS(frame))) {
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    bool inside = frame != NULL;
    Py_XDECREF(frame);
    return !inside;
}

/*
 * A pending call. Handlers that others registered after ours run bytecode too, and os.fork() counts
 * the threads after them (3.13).
 */
static int resume(void *unused)
{
    (void)unused;
    if (!forks.paused || forks.under_way) return 0;
    bool at_last = ps_process_cpu_ns() - forks.returned_cpu_ns > HANDLERS_NS;
    if (!at_last && !has_returned() && Py_AddPendingCall(resume, NULL) == 0) return 0;
    forks.paused = false;
    bool ours = ps_ours_begin();
    /* Another thread may be in the middle of uninstall(). */
    if (ps_features_installed()) ps_threads_resume();
    ps_ours_end(ours);
    return 0;
}

static void pause_threads(void)
{
    uint64_t ended_ns;
    int ours = ps_threads_count(&ended_ns);
    if (!ours || !await_threads(ours + 1, ended_ns + BURIAL_NS)) return;
    forks.paused = true;
    forks.caller = PS_ADDRESS(PyEval_GetFrame());
    /* The worker may be waiting for the GIL. No other Python thread could take it. */
    Py_BEGIN_ALLOW_THREADS ps_threads_pause();
    await_threads(1, ps_monotonic_ns() + BURIALS_NS);
    Py_END_ALLOW_THREADS
}

static void resume_threads(void)
{
    forks.returned_cpu_ns = ps_process_cpu_ns();
    if (forks.paused && Py_AddPendingCall(resume, NULL) != 0) resume(NULL);
}
#else
static void pause_threads(void) {}
static void resume_threads(void) {}
#endif

static PyObject *before(PyObject *self, PyObject *unused)
{
    PS_WRITE(forks.under_way, forks.under_way + 1);
    bool ours = ps_ours_begin();
    pause_threads();
    ps_ours_end(ours);
    Py_RETURN_NONE;
}

static PyObject *after_in_parent(PyObject *self, PyObject *unused)
{
    PS_WRITE(forks.under_way, forks.under_way - 1);
    bool ours = ps_ours_begin();
    resume_threads();
    ps_ours_end(ours);
    Py_RETURN_NONE;
}

static PyObject *after_in_child(PyObject *self, PyObject *unused)
{
    PS_WRITE(forks.under_way, 0);
    forks.paused = false;
    Py_RETURN_NONE;
}

static PyMethodDef handlers[] = {
    {"before", before, METH_NOARGS, NULL},
    {"after_in_parent", after_in_parent, METH_NOARGS, NULL},
    {"after_in_child", after_in_child, METH_NOARGS, NULL},
};

int ps_os_fork_init(void)
{
    PyObject *module = PyImport_ImportModule("posix"), *functions = PyDict_New();
    PyObject *place = module ? PyObject_GetAttrString(module, "register_at_fork") : NULL,
             *none = PyTuple_New(0);
    bool done = place && functions && none;
    for (size_t i = 0; done && i < sizeof(handlers) / sizeof(handlers[0]); i++) {
        PyObject *function = PyCFunction_New(&handlers[i], NULL);
        done = function && PyDict_SetItemString(functions, handlers[i].ml_name, function) == 0;
        Py_XDECREF(function);
    }
    PyObject *result = done ? PyObject_Call(place, none, functions) : NULL;
    Py_XDECREF(result);
    Py_XDECREF(none);
    Py_XDECREF(place);
    Py_XDECREF(functions);
    Py_XDECREF(module);
    return result ? 0 : -1;
}

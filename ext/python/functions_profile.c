#include "hooks.h"

#if !PS_HAVE_MONITORING

#include <stdlib.h>

#include "atomic.h"
#include "info.h"

/*
 * What the profile hook tells of calls, on 3.8 to 3.11. Each thread has one hook. It is put in for all threads, and where somebody
 * else has it (cProfile, sys.setprofile) ours calls his: c_profileobj stays his, so that sys.getprofile() says what it said.
 *
 *   a thread is born      the hook sees start_new_thread() return, which the new thread's state exists at; threads that were
 *                         started otherwise are found by the upkeep, 50 ms later at most
 *   the hook is replaced  by the application: the upkeep finds that too, and goes between. What was open then is forgotten
 *   the tracer leaves     each thread gets what it had. Whoever was put in meanwhile stays
 */
struct owner {
    PyThreadState *thread;
    Py_tracefunc function; /* what it had: called after ours, with its c_profileobj */
    bool seen;             /* by the walk over all threads */
};

static struct {
    bool on;
    struct owner *owners; /* threads that ours is in */
    size_t count, capacity;
    size_t chained;           /* those of them that had an owner */
    PyCFunction start_thread; /* _thread.start_new_thread */
} profile;

static struct owner *find_owner(const PyThreadState *thread)
{
    for (size_t i = 0; i < profile.count; i++)
        if (profile.owners[i].thread == thread) return &profile.owners[i];
    return NULL;
}

static void hook_all(void);

static bool is_resumable(const PyCodeObject *code)
{
    return (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0;
}

static void enter(PyFrameObject *frame)
{
    PyCodeObject *code = ps_frame_code(frame);
    bool resumed = is_resumable(code) && ps_frame_is_resumed(frame, code);
    ps_functions_enter(code, (uintptr_t)frame, resumed);
    Py_DECREF(code);
}

static void leave(PyFrameObject *frame, PyObject *result)
{
    PyCodeObject *code = ps_frame_code(frame);
    int outcome = PS_OUTCOME_RETURNED;
    if (!result) outcome = PS_OUTCOME_RAISED;
    else if (is_resumable(code) && ps_frame_is_suspended(frame, code)) outcome = PS_OUTCOME_SUSPENDED;
    ps_functions_leave(code, (uintptr_t)frame, outcome);
    Py_DECREF(code);
}

/* Called by the VM on the application's threads. What is raised at the moment was put away by it. */
static int on_event(PyObject *object, PyFrameObject *frame, int what, PyObject *argument)
{
    if (what == PyTrace_CALL) enter(frame);
    else if (what == PyTrace_RETURN) leave(frame, argument);
    else if (what == PyTrace_C_RETURN && PyCFunction_Check(argument) &&
             PyCFunction_GET_FUNCTION(argument) == profile.start_thread)
        hook_all();
    if (PS_LIKELY(!profile.chained)) return 0;
    const struct owner *owner = find_owner(ps_thread_state());
    return owner && owner->function ? owner->function(object, frame, what, argument) : 0;
}

static void hook(PyThreadState *thread, struct owner *owner)
{
    owner->function = thread->c_profilefunc;
    thread->c_profilefunc = on_event;
}

static struct owner *add_owner(PyThreadState *thread)
{
    if (profile.count == profile.capacity) {
        size_t capacity = profile.capacity ? profile.capacity * 2 : 16;
        struct owner *owners = realloc(profile.owners, capacity * sizeof(*owners));
        if (!owners) return NULL; /* that thread goes untold, until the next look */
        profile.owners = owners;
        profile.capacity = capacity;
    }
    struct owner *owner = &profile.owners[profile.count++];
    *owner = (struct owner){.thread = thread};
    return owner;
}

/* Threads come and go with the GIL held, or are put in front: the walk meets each that was there when it began. */
static void hook_all(void)
{
    for (size_t i = 0; i < profile.count; i++) profile.owners[i].seen = false;
    PyThreadState *thread = PyInterpreterState_ThreadHead(PyInterpreterState_Main());
    for (; thread; thread = PyThreadState_Next(thread)) {
        struct owner *owner = find_owner(thread);
        if (thread->c_profilefunc != on_event) {
            if (owner) ps_contexts_forget(thread);
            else owner = add_owner(thread);
            if (!owner) continue;
            hook(thread, owner);
        }
        /* A greenlet that waited during the attach brings a cleared flag with it. */
        ps_thread_update_tracing(thread);
        if (owner) owner->seen = true;
    }
    size_t kept = 0;
    profile.chained = 0;
    for (size_t i = 0; i < profile.count; i++) {
        if (!profile.owners[i].seen) continue;
        profile.chained += profile.owners[i].function != NULL;
        profile.owners[kept++] = profile.owners[i];
    }
    profile.count = kept;
}

static void unhook_all(void)
{
    PyThreadState *thread = PyInterpreterState_ThreadHead(PyInterpreterState_Main());
    for (; thread; thread = PyThreadState_Next(thread)) {
        if (thread->c_profilefunc != on_event) continue;
        const struct owner *owner = find_owner(thread);
        thread->c_profilefunc = owner ? owner->function : NULL;
        ps_thread_update_tracing(thread);
    }
    free(profile.owners);
    profile.owners = NULL;
    profile.count = profile.capacity = profile.chained = 0;
}

static PyCFunction start_thread(void)
{
    PyObject *module = PyImport_ImportModule("_thread");
    PyObject *function = module ? PyObject_GetAttrString(module, "start_new_thread") : NULL;
    PyCFunction found = function && PyCFunction_Check(function) ? PyCFunction_GET_FUNCTION(function) : NULL;
    Py_XDECREF(function);
    Py_XDECREF(module);
    PyErr_Clear();
    return found;
}

bool ps_functions_hook(bool on, bool covers_more)
{
    PS_WRITE(profile.on, on);
    if (!on) {
        unhook_all();
        return false;
    }
    if (!profile.start_thread) profile.start_thread = start_thread();
    hook_all();
    return true;
}

bool ps_functions_needs_upkeep(void)
{
    return PS_READ(profile.on);
}

void ps_functions_upkeep(void)
{
    if (profile.on) hook_all();
}

#endif

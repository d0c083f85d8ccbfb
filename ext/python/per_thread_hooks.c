#include "hooks.h"

#if !PS_HAVE_MONITORING

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "thread_states.h"

/*
 * The profile hook and the trace hook of 3.11: each thread has one of each. Ours is put in for
 * all threads. If somebody else has the hook (cProfile, sys.setprofile, a debugger, coverage), ours
 * calls theirs. The object beside the hook stays theirs, so that sys.getprofile() and
 * sys.gettrace() return the same as before.
 *
 *   a thread is born      the profile hook, which is in whenever the trace hook is, sees
 *                         start_new_thread() return. The new thread's state exists then. The upkeep
 *                         finds threads that were started otherwise, 50 ms later at most
 *   the hook is replaced  by the application: the upkeep finds that too, and puts ours in front.
 *                         Calls that are open then are forgotten
 *   the tracer leaves     each thread gets back what it had. A hook that was put in meanwhile stays
 */
struct owner {
    PyThreadState *thread;
    Py_tracefunc function; /* what the thread had */
    bool seen;             /* by the last walk over all threads */
};

static struct hook {
    Py_tracefunc ours; /* NULL: not wanted */
    struct owner *owners;
    size_t count, capacity; /* threads that ours is in */
    size_t chained;         /* those of them that had another function */
} hooks[PS_HOOKS];

static Py_tracefunc *place_of(PyThreadState *thread, enum ps_hook kind)
{
    return kind == PS_HOOK_PROFILE ? &thread->c_profilefunc : &thread->c_tracefunc;
}

static struct owner *find_owner(const struct hook *hook, const PyThreadState *thread)
{
    for (size_t i = 0; i < hook->count; i++)
        if (hook->owners[i].thread == thread) return &hook->owners[i];
    return NULL;
}

static struct owner *add_owner(struct hook *hook, PyThreadState *thread)
{
    if (hook->count == hook->capacity) {
        size_t capacity = hook->capacity ? hook->capacity * 2 : 16;
        struct owner *owners = realloc(hook->owners, capacity * sizeof(*owners));
        if (!owners) return NULL; /* that thread is not hooked, until the next look */
        hook->owners = owners;
        hook->capacity = capacity;
    }
    struct owner *owner = &hook->owners[hook->count++];
    *owner = (struct owner){.thread = thread};
    return owner;
}

static void put_in(struct hook *hook, PyThreadState *thread, Py_tracefunc *place)
{
    struct owner *owner = find_owner(hook, thread);
    if (*place != hook->ours) {
        if (owner) ps_current_stack_forget(thread);
        else owner = add_owner(hook, thread);
        if (!owner) return;
        owner->function = *place;
        *place = hook->ours;
    }
    /* A greenlet that waited during the attach brings a cleared flag with it. */
    ps_thread_update_tracing(thread);
    if (owner) owner->seen = true;
}

/*
 * Threads come and go with the GIL held, or are put in front. So the walk meets each thread that
 * was there when it began. A half-made thread is met at the next look.
 */
static void put_in_all(enum ps_hook kind)
{
    struct hook *hook = &hooks[kind];
    PyThreadState *thread = hook->ours ? ps_first_thread_now(PyInterpreterState_Main()) : NULL;
    if (!thread) return;
    for (size_t i = 0; i < hook->count; i++) hook->owners[i].seen = false;
    for (; thread; thread = PyThreadState_Next(thread)) put_in(hook, thread, place_of(thread, kind));
    size_t kept = 0;
    hook->chained = 0;
    for (size_t i = 0; i < hook->count; i++) {
        if (!hook->owners[i].seen) continue;
        hook->chained += hook->owners[i].function != NULL;
        hook->owners[kept++] = hook->owners[i];
    }
    hook->count = kept;
}

void ps_thread_hooks_put(enum ps_hook kind, Py_tracefunc ours)
{
    PS_WRITE(hooks[kind].ours, ours);
    put_in_all(kind);
}

void ps_thread_hooks_take_out(enum ps_hook kind)
{
    struct hook *hook = &hooks[kind];
    if (!hook->ours) return;
    PyThreadState *thread = ps_first_thread(PyInterpreterState_Main());
    for (; thread; thread = PyThreadState_Next(thread)) {
        Py_tracefunc *place = place_of(thread, kind);
        if (*place != hook->ours) continue;
        const struct owner *owner = find_owner(hook, thread);
        *place = owner ? owner->function : NULL;
        ps_thread_update_tracing(thread);
    }
    free(hook->owners);
    hook->owners = NULL;
    hook->count = hook->capacity = hook->chained = 0;
    PS_WRITE(hook->ours, NULL);
}

static void upkeep(void)
{
    for (int kind = 0; kind < PS_HOOKS; kind++) put_in_all(kind);
}

static ps_trace_listener listeners[PS_TRACED];

/*
 * A thread that C has started is the first one. If it does not have ours, any thread finds that at
 * its next call.
 */
static int on_trace(PyObject *object, PyFrameObject *frame, int what, PyObject *argument)
{
    const PyThreadState *first = what == PyTrace_CALL ? ps_first_thread_now(PyInterpreterState_Main()) : NULL;
    if (first && first->c_tracefunc != on_trace) upkeep();
    for (int i = 0; i < PS_TRACED; i++)
        if (listeners[i]) listeners[i](frame, what, argument);
    return ps_thread_hooks_pass_on(PS_HOOK_TRACE, object, frame, what, argument);
}

void ps_thread_hooks_trace(enum ps_traced what, ps_trace_listener listener)
{
    listeners[what] = listener;
    bool any = false;
    for (int i = 0; i < PS_TRACED; i++) any |= listeners[i] != NULL;
    if (!any) ps_thread_hooks_take_out(PS_HOOK_TRACE);
    else if (!hooks[PS_HOOK_TRACE].ours) ps_thread_hooks_put(PS_HOOK_TRACE, on_trace);
    ps_profile(PS_PROFILE_BIRTHS, any);
}

static bool is_built_in(PyObject *function, const char *name)
{
    if (!PyCFunction_Check(function)) return false;
    const char *its = ((PyCFunctionObject *)function)->m_ml->ml_name;
    return its[0] == name[0] && strcmp(its, name) == 0;
}

static bool starts_thread(PyObject *function)
{
    /*
     * By their names: gevent replaces _thread's function with its own, which calls _thread's.
     * threading has used the second since 3.13.
     */
    return is_built_in(function, "start_new_thread") || is_built_in(function, "start_joinable_thread");
}

void ps_thread_hooks_mind_thread(PyObject *function)
{
    if (!starts_thread(function)) return;
    for (int kind = 0; kind < PS_HOOKS; kind++) put_in_all(kind);
}

/* Called by the VM as a pending call. */
static int trace_again(void *silent)
{
    PyThreadState *thread = ps_first_thread(PyInterpreterState_Main());
    while (thread && thread != silent) thread = PyThreadState_Next(thread);
    if (!thread) return 0;
    thread->tracing--;
    ps_thread_update_tracing(thread);
    return 0;
}

void ps_thread_hooks_mind_setprofile(PyObject *function)
{
    if (!is_built_in(function, "setprofile") || ps_thread_id() != (uint64_t)getpid()) return;
    PyThreadState *thread = ps_thread_state();
    if (Py_AddPendingCall(trace_again, thread) == 0) thread->tracing++;
}

int ps_thread_hooks_pass_on(enum ps_hook kind, PyObject *object, PyFrameObject *frame, int what,
                            PyObject *argument)
{
    const struct hook *hook = &hooks[kind];
    if (PS_LIKELY(!hook->chained)) return 0;
    const struct owner *owner = find_owner(hook, ps_thread_state());
    return owner && owner->function ? owner->function(object, frame, what, argument) : 0;
}

static bool need_upkeep(void)
{
    return PS_READ(hooks[PS_HOOK_PROFILE].ours) || PS_READ(hooks[PS_HOOK_TRACE].ours);
}

const ps_hooks ps_per_thread_hooks = {
    .needs_upkeep = need_upkeep,
    .upkeep = upkeep,
};

#endif

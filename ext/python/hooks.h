/*
 * The hooks into CPython, one file for each kind. Each file describes them in a ps_hooks (vm/vm.h).
 * Its hook() runs on the worker, a thread of ours, with the GIL.
 *
 * Rules inside a hook: leave no exception behind, remove no exception of the application's, never
 * run bytecode (a signal handler or an asynchronous exception would be raised in ours), never wait.
 */
#ifndef PS_PYTHON_HOOKS_H
#define PS_PYTHON_HOOKS_H

#include "compat.h"

#include <stdbool.h>
#include <stdint.h>

#include "agent/switching.h"
#include "base/thread_id.h"
#include "calls/shadow_stack.h"
#include "features/requests.h"
#include "table/interned_strings.h"
#include "table/kept.h"
#include "table/known.h"
#include "table/routes.h"
#include "table/row_ref.h"
#include "table/table.h"
#include "usdt/looking.h"
#include "usdt/probe.h"

/* Stores a new reference, or NULL, and takes it over. */
#define PS_KEEP_NEW(place, object)                                                                           \
    do {                                                                                                     \
        PyObject *fresh = (PyObject *)(object);                                                              \
        PS_KEEP(place, fresh);                                                                               \
        Py_XDECREF(fresh);                                                                                   \
    } while (0)

/*
 * Turns (free_threading.c). With a GIL, the GIL protects what hooks share, and a turn does nothing.
 * Without a GIL the hooks and the worker take turns instead. A turn is given up and taken again
 * where the GIL would be: where the interpreter waits for something. So after a call of the
 * interpreter, what a hook has looked at may have changed. Rows stay where they are: no thread
 * clears a table while another thread's turn has begun and not ended.
 *
 * A turn must not begin in a callback that the interpreter calls with a lock of its own, such as the
 * watcher of a type or a dict. A turn may have to be waited for. Meanwhile the interpreter gives up
 * its critical sections, and what they protect changes in the middle of its operation. It does not
 * give up a plain mutex, for which the thread that has the turn may be waiting. Such a callback only
 * writes with PS_WRITE() and the like, and upkeep() does the rest.
 */
typedef struct {
    ps_section section;
    bool taken;
} ps_turn;
#if PS_HAVE_GIL
static inline void ps_turn_begin(ps_turn *turn) {}
static inline void ps_turn_end(ps_turn *turn) {}
static inline void ps_turns_after_fork(void) {}
static inline bool ps_no_other_turn(void)
{
    return true;
}
#else
void ps_turn_begin(ps_turn *turn);
void ps_turn_end(ps_turn *turn);
void ps_turns_after_fork(void);
/* False while another thread's turn is under way: no table is cleared then. */
bool ps_no_other_turn(void);
#endif

/* functions_hooks.c: function__entry, function__return, function__slow*, function__stats */
void ps_functions_init(void);
extern const ps_hooks ps_functions_hooks;
/* Called when the coverage changed: takes all hooks out and begins again. */
void ps_functions_restart(void);

/*
 * What functions_hooks.c does at an entry and at an exit, whichever hook reports them. Both return
 * false for a function that is not covered.
 */
bool ps_functions_enter(PyCodeObject *code, ps_address frame, bool resumed);
bool ps_functions_leave(PyCodeObject *code, ps_address frame, int outcome, uint64_t now);
/*
 * Puts the hooks of calls in, or takes them out: functions_monitoring.c (3.12 and later),
 * functions_profile.c (before).
 */
bool ps_functions_hook(bool on);
/* Does anybody listen to functions? Calls may be hooked for other parts, too. */
bool ps_functions_on(void);
#if !PS_HAVE_MONITORING
/*
 * functions_profile.c: the profile hook, which its users share. PS_PROFILE_BIRTHS is for a user
 * that only has to notice new threads.
 */
enum ps_profile_user { PS_PROFILE_FUNCTIONS = 1, PS_PROFILE_LATENCY = 2, PS_PROFILE_BIRTHS = 4 };
void ps_profile(enum ps_profile_user user, bool on);
#endif
/* The place of the function that runs right now; NULL if the function is not covered. */
const ps_site *ps_functions_site(PyCodeObject *code);
/* The flags of code that can be suspended. */
enum { PS_RESUMABLE = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR };

/* latency_hooks.c: latency:* */
void ps_latency_init(void);
extern const ps_hooks ps_latency_hooks;
/* Does anybody listen to a latency probe? */
bool ps_latency_on(void);
/* Called at an entry and at an exit. False: the function has no latency probe. */
bool ps_latency_enter(PyCodeObject *code, ps_address frame, bool resumed);
bool ps_latency_leave(PyCodeObject *code, ps_address frame, int outcome);
/* Methods of the module. */
PyObject *ps_latency_trace(PyObject *module, PyObject *arguments);
PyObject *ps_latency_untrace(PyObject *module, PyObject *code);
PyObject *ps_latency_probes(PyObject *module, PyObject *unused);

/* lines_hooks.c: line */
extern const ps_hooks ps_lines_hooks;

/* per_thread_hooks.c: the profile and the trace hook, which each thread has for itself. */
#if !PS_HAVE_MONITORING
enum ps_hook { PS_HOOK_PROFILE, PS_HOOK_TRACE, PS_HOOKS };
void ps_thread_hooks_put(enum ps_hook kind, Py_tracefunc ours);
void ps_thread_hooks_take_out(enum ps_hook kind);
/* The trace hook has several listeners, one of each kind. NULL removes a listener. */
enum ps_traced { PS_TRACED_LINES, PS_TRACED_EXCEPTIONS, PS_TRACED };
typedef void (*ps_trace_listener)(PyFrameObject *frame, int what, PyObject *argument);
void ps_thread_hooks_trace(enum ps_traced what, ps_trace_listener listener);
/*
 * Called after each call of a built-in function. If the function starts a thread, the new thread
 * gets our hooks at once.
 */
void ps_thread_hooks_mind_thread(PyObject *function);
/*
 * Called before each call of a built-in function. The return from sys.setprofile() would be
 * reported to the function that was just set. Without us that function gets no such event, and the
 * pure-Python profiler takes the event for an error. Pending calls, and so this, are for the main
 * thread only.
 */
void ps_thread_hooks_mind_setprofile(PyObject *function);
/* Calls the hook that ours replaced. Our hook returns its result. */
int ps_thread_hooks_pass_on(enum ps_hook kind, PyObject *object, PyFrameObject *frame, int what,
                            PyObject *argument);
/* Threads need our hooks, because they are new or somebody took their hook. */
extern const ps_hooks ps_per_thread_hooks;
#endif

/* exceptions_hooks.c: exception__raise, __detail, __rescue, __stats */
extern const ps_hooks ps_exceptions_hooks;
/* Does the last of the upkeep, before the process flushes for the last time. */
void ps_exceptions_end(void);
/*
 * The place that raised an exception first, named after its type. NULL when it was never raised, or
 * nobody listens. *origin becomes its row, if it has a row of its own.
 */
const ps_site *ps_exceptions_origin(PyObject *exception, ps_row_ref *origin);

/* module.c: did the user accept costly probes (PROBESCOPE_FORCE=1, install(force=True))? */
bool ps_forced(void);

/* samples_hooks.c: sample, sample__stats, sample__frame, stack__cpu */
extern const ps_hooks ps_samples_hooks;
/* Why no samples can be taken; NULL: they can. */
const char *ps_sampling_refused(void);
/* The function for ps_vm.sample. */
bool ps_sampling_tick(uint64_t now, uint64_t due);
/* Asks the main thread to take a sample, without the GIL. False: the worker has to take it. */
bool ps_sampling_ask(void);
/* Takes the sample that the watcher asked for. */
void ps_sampling_take(void);
void ps_sampling_after_fork(void);

/* objects_hooks.c: object__alloc, object__stats */
extern const ps_hooks ps_objects_hooks;

/* collections_hooks.c: gc__start, gc__done */
void ps_collections_init(void);
extern const ps_hooks ps_collections_hooks;
/*
 * Called on the watcher's thread: does a collection run in this frame? A finalizer that runs
 * meanwhile has frames of its own.
 */
bool ps_collections_in(uintptr_t frame);

/* current_stack.c: the shadow stack of this thread or greenlet; NULL without memory. */
ps_stack *ps_current_stack(void);
/* Called when this thread has switched to another greenlet. */
void ps_current_stack_switched(ps_address left, ps_address entered);
/*
 * From its next call on each thread follows its greenlets; after ps_current_stack_end() none does.
 */
void ps_current_stack_begin(void);
void ps_current_stack_end(void);
#if !PS_HAVE_MONITORING
/* Called when exits of this thread's calls went unseen: forgets its open calls. */
void ps_current_stack_forget(PyThreadState *thread);
#endif

/* greenlets.c: switches of greenlets. Follows those of this thread, if somebody listens. */
void ps_greenlets_follow(void);
void ps_greenlets_switch(bool on);
extern const ps_hooks ps_greenlets_hooks;

/* tracebacks.c: backtrace__done, and the time of formatting in exception__stats */
extern const ps_hooks ps_backtraces_hooks;
/* Forgets all that was remembered, also which files are the application's own. */
void ps_tracebacks_forget(void);

/* requests_binding.c: request__start, request__done */
int ps_requests_init(PyObject *module);
/* ps_requests_counted() for another thread, which must stand still meanwhile. */
ps_counted *ps_requests_counted_of(PyThreadState *thread);
#if PS_HAVE_GIL
/* With the GIL, before the first ps_requests_read(). */
void ps_requests_prepare(void);
/*
 * The number of the current request in the context whose values are in this tree
 * (copied_contextvar.h); 0: there is none.
 */
uint64_t ps_requests_read(uintptr_t tree);
/*
 * For ps_routes_row(), with the GIL: the counters of the request with this number, which may have
 * ended a moment ago.
 */
ps_counted *ps_requests_counted_numbered(uint64_t number);
#else
static inline void ps_requests_prepare(void) {}
static inline ps_counted *ps_requests_counted_numbered(uint64_t number)
{
    return NULL;
}
#endif
PyObject *ps_requests_are_wanted(PyObject *module, PyObject *unused);
PyObject *ps_tell_of_requests(PyObject *module, PyObject *unused);
PyObject *ps_enter_request(PyObject *module, PyObject *request);

/*
 * context_publishing.c: publishes trace contexts and the process's resource for profilers outside.
 * Methods of the module.
 */
PyObject *ps_publish_thread_context(PyObject *module, PyObject *unused);
PyObject *ps_follow_contexts(PyObject *module, PyObject *unused);
PyObject *ps_publish_process_context(PyObject *module, PyObject *payload);

/*
 * names.c: names and places of code objects. globals may be NULL. The line is the function's first
 * unless one is given.
 */
const ps_site *ps_code_site(PyCodeObject *code, PyObject *globals);
const ps_site *ps_code_site_at(PyCodeObject *code, PyObject *globals, int line);
/* Do the coverage's rules name this function? For a function whose site there was no memory for. */
bool ps_code_is_covered(PyCodeObject *code, PyObject *globals, bool everything);
void ps_names_init(void);
/*
 * Copies as much of a str as fits, as UTF-8 with a NUL. '?' stands for what has no UTF-8. The str
 * must be ready (ps_string_is_ready()). Returns the length.
 */
size_t ps_copy_string(char *to, size_t capacity, PyObject *string);
#if PS_HAVE_GIL
/*
 * Read strs and dicts at these addresses without the GIL: anything may be there by now. The first
 * makes the name that ps_code_site() gives, the second copies any str. Both return the length, or
 * 0.
 */
size_t ps_copied_name(char *to, uintptr_t qualname, uintptr_t globals);
size_t ps_copied_string(char *to, uintptr_t string);
#endif
/*
 * Would ps_type_site() give the type this name? The answer may be a wrong false, for names that are
 * cut.
 */
bool ps_type_is_named(PyTypeObject *type, const char *name);
/*
 * The address of the str that is the type's __qualname__; no address for a class that is written in
 * C, which keeps its name.
 */
ps_address ps_type_qualname(const PyTypeObject *type);

/*
 * freed_code.c: what is known of a class, a code object and a number, by their addresses. None of
 * them is kept alive. What was known of one is not returned for a later one at the same address.
 */
enum { PS_FREED_BITS = 12 };
/* The number of code objects freed at addresses with the same hash. */
extern uint32_t ps_freed_codes[1 << PS_FREED_BITS];
static inline uint32_t *ps_freed_like(const void *code)
{
    return &ps_freed_codes[ps_address_hash(PS_ADDRESS(code), PS_FREED_BITS)];
}
void ps_freed_codes_init(void);
static inline ps_key ps_key_of(const PyTypeObject *type, const PyCodeObject *code, uint64_t number)
{
    uint64_t version = type ? ps_type_version(type) : 0, freed = code ? PS_READ(*ps_freed_like(code)) : 0;
    uint64_t qualname = type ? ps_type_qualname(type).value : 0;
    return (ps_key){PS_ADDRESS(type), PS_ADDRESS(code), number, {version << 32 | freed, qualname}};
}
/* Is a row whose stamps differ still that of these objects? Then it is current again. */
bool ps_known_is_same(ps_known *known, ps_key key, PyTypeObject *type);
/*
 * What was put by ps_know(), or NULL. type and code may be NULL. What is known of a type is a row;
 * number is any of the caller's, such as a line.
 */
static inline void *ps_known_of(ps_known_table *table, PyTypeObject *type, const PyCodeObject *code,
                                uint64_t number)
{
    ps_key key = ps_key_of(type, code, number);
    ps_known *known = ps_known_find(table, key);
    if (PS_UNLIKELY(!known)) return NULL;
    if (PS_UNLIKELY(!ps_known_is_current(known, key) || (type && !(key.stamp[0] >> 32))))
        if (!type || !ps_known_is_same(known, key, type)) return NULL;
    if (PS_UNLIKELY(!known->again)) known->again = true;
    return known->what;
}
/* Does nothing if there is no memory. */
void ps_know(ps_known_table *table, PyTypeObject *type, PyCodeObject *code, uint64_t number,
             const void *what);
/* Is this code in the application's own files? */
bool ps_code_is_own(PyCodeObject *code);
/*
 * The site of a class's name at a place: "package.module.Class", without "builtins." and
 * "__main__."; code NULL: without a place.
 */
const ps_site *ps_type_site(PyTypeObject *type, PyCodeObject *code, int line);
/* The site of any other text at a place; code NULL: without a place in Python code. */
const ps_site *ps_text_site(const char *text, PyCodeObject *code, int line);

/*
 * os_fork.c. Is os.fork() between its first handler and its last? Then our threads do not ask for
 * the GIL.
 */
int ps_os_fork_init(void);
bool ps_os_fork_under_way(void);

/*
 * install.c. ps_install() returns an errno; the limit is in bytes, 0 for the default.
 * ps_uninstall() returns whether something was installed.
 */
int ps_install(size_t memory_limit);
bool ps_uninstall(void);
/*
 * The same when the interpreter ends. No other thread gets the GIL any more, so it waits for no
 * thread that may need the GIL.
 */
void ps_uninstall_at_end(void);

/*
 * worker.c: the thread of ours that takes the GIL.
 *
 * Makes the worker do what is asked for (PS_REQUEST_*), and starts it if necessary. Called by the
 * watcher, without the GIL.
 */
void ps_worker_request(unsigned what);
/* Waits for the worker's end, without the GIL. */
void ps_worker_stop(void);
/*
 * Makes a running worker stay as long as the watcher does. False if no worker runs: then nothing
 * changes. For a watcher that is about to give up something that threads inherit from the thread
 * that starts them.
 */
bool ps_worker_stay(void);
/* Is this thread the worker? */
bool ps_worker_is_here(void);
/*
 * How many threads of ours there are, and when the last one ended. ps_threads_pause() ends them for
 * a while, ps_threads_resume() starts them again.
 */
int ps_threads_count(uint64_t *ended_ns);
void ps_threads_pause(void);
void ps_threads_resume(void);

#if PS_HAVE_MONITORING
/* monitoring.c: sys.monitoring, shared by the parts under one tool id. */
enum ps_monitoring_part {
    PS_MONITORING_FUNCTIONS,
    PS_MONITORING_EXCEPTIONS,
    PS_MONITORING_LINES,
    PS_MONITORING_LATENCY,
    PS_MONITORING_PARTS
};
enum {
    PS_ON_START = 1,
    PS_ON_RESUME = 2,
    PS_ON_THROW = 4,
    PS_ON_RETURN = 8,
    PS_ON_YIELD = 16,
    PS_ON_UNWIND = 32,
    PS_ON_RAISE = 64,
    PS_ON_HANDLED = 128,
    PS_ON_RERAISE = 256,
    PS_ON_LINE = 512,
};
/*
 * Enables these events, globally. False: *reason says why not, mostly that all tool ids are taken.
 */
bool ps_monitoring_ask(enum ps_monitoring_part part, unsigned events, const char **reason);
/*
 * Disables these events, until the part that asked for them asks for others. Callbacks may call it:
 * the tool id is kept.
 */
void ps_monitoring_take_out(unsigned events);
/* Enables the starts and returns of this code as well, or disables them again. */
void ps_monitoring_listen_to(PyCodeObject *code, bool on);
/*
 * Enables events again that a callback of ours disabled, if any did. The disabled events of all
 * other tools are enabled as well.
 */
void ps_monitoring_restart(void);
/* What a callback returns: new references. */
PyObject *ps_monitoring_go_on(void);
PyObject *ps_monitoring_disable(void);

#define PS_CALLBACK(name) PyObject *name(PyObject *self, PyObject *const *args, Py_ssize_t count)
PS_CALLBACK(ps_on_start);
PS_CALLBACK(ps_on_resume);
PS_CALLBACK(ps_on_throw);
PS_CALLBACK(ps_on_return);
PS_CALLBACK(ps_on_yield);
PS_CALLBACK(ps_on_unwind);
PS_CALLBACK(ps_on_raise);
PS_CALLBACK(ps_on_handled);
PS_CALLBACK(ps_on_reraise);
PS_CALLBACK(ps_on_line);
#endif

/* run_time_probes_binding.c: _native.Provider and .Probe. The other two are functions of the module. */
int ps_run_time_probes_init(PyObject *module);
/* Readies the type and puts it into the module under that name. */
int ps_add_type(PyObject *module, const char *name, PyTypeObject *type);
PyObject *ps_set_strict(PyObject *module, PyObject *value);
PyObject *ps_nothing(PyObject *module, PyObject *value);

#endif

/*
 * The hooks into CPython, one file for each kind. Each has a switch that is called with the probes
 * that are listened to, on the worker, a thread of ours, with the GIL: it makes its hooks match and
 * says whether it is done.
 *
 * Rules inside a hook: never leave an exception behind, never take away one that is the
 * application's, never run bytecode (a signal handler or an asynchronous exception would be raised
 * in ours), never wait.
 */
#ifndef PS_PYTHON_HOOKS_H
#define PS_PYTHON_HOOKS_H

#include "compat.h"

#include <stdbool.h>
#include <stdint.h>

#include "by_request.h"
#include "looking.h"
#include "parts.h"
#include "probe.h"
#include "rows.h"
#include "sites.h"
#include "stack.h"
#include "thread_id.h"
#include "traceparent.h"

/*
 * Turns (turns.c). What hooks share is theirs because they hold the GIL. Where there is none they
 * take turns instead, as does the worker, and a turn is given up and taken again as the GIL is:
 * where the interpreter waits for something. So what a hook has looked at may be another after a
 * call of the interpreter's, but rows stay where they are: nobody clears a table while a turn of
 * another thread has begun and not ended. With a GIL all of this is nothing.
 */
typedef struct {
    ps_section section;
    bool taken;
} ps_turn;
#if PS_HAVE_GIL
static inline void ps_turn_begin(ps_turn *turn) {}
static inline void ps_turn_end(ps_turn *turn) {}
static inline void ps_turns_after_fork(void) {}
#else
void ps_turn_begin(ps_turn *turn);
void ps_turn_end(ps_turn *turn);
void ps_turns_after_fork(void);
#endif
/*
 * For whoever clears a table: ps_stats_try_lock() when no hook is under way. False: try again
 * later.
 */
bool ps_tables_try_lock(void);

/* functions.c: function__entry, function__return, function__slow*, function__stats */
void ps_functions_init(void);
bool ps_functions_switch(uint32_t wanted);
/* The coverage changed: begin again. */
void ps_functions_restart(void);

/*
 * What functions.c does at an entry and at an exit, whichever hook tells of them. Both false: the
 * function is not covered.
 */
bool ps_functions_enter(PyCodeObject *code, ps_address frame, bool resumed);
bool ps_functions_leave(PyCodeObject *code, ps_address frame, int outcome, uint64_t now);
/*
 * Makes the VM tell of calls, or stop: functions_monitoring.c (3.12 and later), functions_profile.c
 * (before).
 */
bool ps_functions_hook(bool on);
/* Is anybody listening to functions? Others may have events told, too. */
bool ps_functions_on(void);
/*
 * functions_profile.c: the same by the profile hook, on 3.12 and later where sys.monitoring has no
 * room. False: not even so. PS_PROFILE_BIRTHS is of who wants to know of threads that are started
 * alone.
 */
enum ps_profile_user { PS_PROFILE_FUNCTIONS = 1, PS_PROFILE_LATENCY = 2, PS_PROFILE_BIRTHS = 4 };
bool ps_profile(enum ps_profile_user user, bool on);
/* The place of a function that is covered, or NULL. Of the one that runs right now. */
const ps_site *ps_functions_site(PyCodeObject *code);
/* The flags of code that can be suspended. */
enum { PS_RESUMABLE = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR };

/* latency.c: latency:* */
void ps_latency_init(void);
bool ps_latency_switch(uint32_t wanted);
/* Is anybody listening to one? */
bool ps_latency_on(void);
/* What it does at an entry and at an exit. False: it is not of a function with such a probe. */
bool ps_latency_enter(PyCodeObject *code, ps_address frame, bool resumed);
bool ps_latency_leave(PyCodeObject *code, ps_address frame, int outcome);
/* Methods of the module. */
PyObject *ps_latency_trace(PyObject *module, PyObject *arguments);
PyObject *ps_latency_untrace(PyObject *module, PyObject *code);
PyObject *ps_latency_probes(PyObject *module, PyObject *unused);

/* lines.c: line */
bool ps_lines_switch(uint32_t wanted);

/* thread_hooks.c: the hooks that each thread has. */
#if PS_HAVE_PROFILE_HOOK
enum ps_hook { PS_HOOK_PROFILE, PS_HOOK_TRACE, PS_HOOKS };
/* False: an audit hook of the application's objects. */
bool ps_thread_hooks_put(enum ps_hook kind, Py_tracefunc ours);
void ps_thread_hooks_take_out(enum ps_hook kind);
#if !PS_HAVE_MONITORING
/* The trace hook has several listeners, each with one place. NULL: not any more. */
enum ps_traced { PS_TRACED_LINES, PS_TRACED_EXCEPTIONS, PS_TRACED };
typedef void (*ps_trace_listener)(PyFrameObject *frame, int what, PyObject *argument);
void ps_thread_hooks_trace(enum ps_traced what, ps_trace_listener listener);
#endif
/*
 * To be called after each call of a built-in function: is it the one that starts a thread? Then
 * that one has ours at once.
 */
void ps_thread_hooks_mind_thread(PyObject *function);
/*
 * To be called before each call of a built-in function. The return from sys.setprofile() would be
 * told to the function that was just set, which without us hears nothing of it: the pure-Python
 * profiler takes it for an error. Pending calls, and so this, are the main thread's.
 */
void ps_thread_hooks_mind_setprofile(PyObject *function);
/* Calls the one that ours took the place of. The hook returns what it returns. */
int ps_thread_hooks_pass_on(enum ps_hook kind, PyObject *object, PyFrameObject *frame, int what,
                            PyObject *argument);
/*
 * Threads that were born, or whose hook somebody took, want ours. The first is asked without the
 * GIL.
 */
bool ps_thread_hooks_need_upkeep(void);
void ps_thread_hooks_upkeep(void);
#else
static inline bool ps_thread_hooks_need_upkeep(void)
{
    return false;
}
static inline void ps_thread_hooks_upkeep(void) {}
#endif

/* exceptions.c: exception__raise, __detail, __rescue, __stats */
bool ps_exceptions_switch(uint32_t wanted);
/* Is something to be done on the worker, with the GIL; and do it. */
bool ps_exceptions_needs_upkeep(void);
void ps_exceptions_upkeep(void);
/* The last of it: the process is about to flush for the last time. */
void ps_exceptions_end(void);
/*
 * The place that raised an exception first, named by its type; NULL when it was never raised, or
 * nobody listens. key: of its row.
 */
const ps_site *ps_exceptions_origin(PyObject *exception, uintptr_t key[3]);
/*
 * Charges ticks that it took to format an exception to the row of this key. asked: who asked, or
 * ps_site_none.
 */
void ps_exceptions_charge(const uintptr_t key[3], const ps_site *asked, uint64_t ticks);

/* module.c: did the user accept what is dear (PROBESCOPE_FORCE=1, install(force=True))? */
bool ps_forced(void);

/* sampling.c: sample, sample__stats, sample__frame */
bool ps_sampling_switch(uint32_t wanted);
const char *ps_sampling_refused(void);
/* ps_vm.sample. */
bool ps_sampling_tick(uint64_t now, uint64_t due);
/* Has the main thread take a sample, without the GIL. False: the worker is to take it. */
bool ps_sampling_ask(void);
/* Takes the sample that the watcher asked for. */
void ps_sampling_take(void);
void ps_sampling_after_fork(void);

/* objects.c: object__alloc, object__stats */
bool ps_objects_switch(uint32_t wanted);
const char *ps_objects_refused(void);
/* It is time to look whether our hooks are still in. The first is asked without the GIL. */
bool ps_objects_needs_upkeep(void);
void ps_objects_upkeep(void);

/* collections.c: gc__start, gc__done */
void ps_collections_init(void);
bool ps_collections_switch(uint32_t wanted);
const char *ps_collections_refused(void); /* NULL: they can be told */
/*
 * The watcher's: does a collection run in this frame? What a finalizer runs meanwhile has frames of
 * its own.
 */
bool ps_collections_in(uintptr_t frame);
/*
 * It is time to look whether the application has emptied the list. The first is asked without the
 * GIL.
 */
bool ps_collections_needs_upkeep(void);
void ps_collections_upkeep(void);

/* contexts.c: the shadow stack of this thread or greenlet; NULL when there is no memory. */
ps_stack *ps_contexts_current(void);
/* This thread runs another greenlet now. */
void ps_contexts_switched(ps_address left, ps_address entered);
/* Each thread is to follow its greenlets, from its next call on; and none has to any more. */
void ps_contexts_begin(void);
void ps_contexts_end(void);
/* Exits of calls of this thread went unseen: forgets those that are open. */
void ps_contexts_forget(PyThreadState *thread);

/* greenlets.c: switches of greenlets. Follows those of this thread, if somebody listens. */
void ps_greenlets_follow(void);
void ps_greenlets_switch(bool on);
/* It may have been imported since the last look. The first is asked without the GIL. */
bool ps_greenlets_needs_upkeep(void);
void ps_greenlets_upkeep(void);

/* tracebacks.c: backtrace__done, and what formatting takes in exception__stats */
bool ps_tracebacks_switch(uint32_t wanted);
/* Modules may have been imported since the last look. Asked by the watcher, without the GIL. */
bool ps_tracebacks_needs_upkeep(void);
void ps_tracebacks_upkeep(void);
/* Nothing that was remembered counts any more: also whose files are the application's own. */
void ps_tracebacks_forget(void);

/*
 * trace_context.c: the W3C trace context of the application's current OpenTelemetry span, for the
 * probes that carry it.
 */
/*
 * Writes it, or an empty string where there is none. Where it cannot be read, the state of these
 * probes says so.
 */
void ps_trace_context_of_span(char *to, uint32_t probes);
/* The same; where there is no span, that of the current request. */
void ps_trace_context(char *to, uint32_t probes);
/* Does the application send spans of its own? */
bool ps_trace_context_is_kept(void);

/*
 * requests.c: request__start, request__done. The current request: a new reference, or NULL; and
 * what stands behind it.
 */
int ps_requests_init(PyObject *module);
PyObject *ps_requests_current(void);
struct ps_request *ps_requests_of(PyObject *request);
/*
 * For ps_by_request(): NULL also while nobody wants to know. Of another thread, which stands still;
 * and of this one.
 */
ps_counted *ps_requests_counted_of(PyThreadState *thread);
ps_counted *ps_requests_counted_now(void);
static inline ps_counted *ps_requests_counted(void)
{
    return PS_ENABLED(STATS__BY_REQUEST) ? ps_requests_counted_now() : NULL;
}
#if PS_HAVE_GIL
/* With the GIL, before any is read. */
void ps_requests_prepare(void);
/*
 * The number of the current request in the context whose values are in this tree
 * (copied_context.h); 0: it has none.
 */
uint64_t ps_requests_read(uintptr_t tree);
/*
 * For ps_by_request(), with the GIL: of the request with this number, which may have ended a moment
 * ago.
 */
ps_counted *ps_requests_counted_numbered(uint64_t number);
#else
static inline void ps_requests_prepare(void) {}
static inline ps_counted *ps_requests_counted_numbered(uint64_t number)
{
    return NULL;
}
#endif
/* Its span_id, or 0. */
uint64_t ps_requests_id(void);
PyObject *ps_requests_are_wanted(PyObject *module, PyObject *unused);
PyObject *ps_tell_of_requests(PyObject *module, PyObject *unused);
PyObject *ps_enter_request(PyObject *module, PyObject *request);

/*
 * thread_context.c: the same and the process's resource, for whoever looks from outside. Methods of
 * the module.
 */
PyObject *ps_publish_thread_context(PyObject *module, PyObject *unused);
PyObject *ps_follow_contexts(PyObject *module, PyObject *unused);
PyObject *ps_publish_process_context(PyObject *module, PyObject *payload);

/*
 * places.c: what is known of a class, a code object and a number by their addresses. None of them
 * is kept alive, and what was known of one is not taken for what is known of the next one at its
 * address.
 */
typedef struct ps_places {
    struct ps_place *all; /* open addressing */
    uint32_t capacity, used;
} ps_places;
void ps_places_init(void);
/*
 * What was put, or NULL. type and code may be NULL; number is any of the caller's, such as a line.
 */
void *ps_places_find(ps_places *places, PyTypeObject *type, PyCodeObject *code, int64_t number);
/* Keeps it if it can. name: of the type, which lasts as long as the places; NULL without a type. */
void ps_places_put(ps_places *places, PyTypeObject *type, PyCodeObject *code, int64_t number, void *known,
                   const char *name);
void ps_places_clear(ps_places *places);

/*
 * names.c: names and places of code objects. globals may be NULL; the line is the first of the
 * function unless one is given.
 */
const ps_site *ps_code_site(PyCodeObject *code, PyObject *globals);
const ps_site *ps_code_site_at(PyCodeObject *code, PyObject *globals, int line);
void ps_names_init(void);
/*
 * As much of a str as fits, as UTF-8 with a NUL, '?' for what has none. Its characters are there.
 * Returns the length.
 */
size_t ps_copy_string(char *to, size_t capacity, PyObject *string);
#if PS_HAVE_GIL
/*
 * Without the GIL, of strs and dicts at these addresses, which may be none: the name that
 * ps_code_site() gives; any str. The length, or 0.
 */
size_t ps_copied_name(char *to, uintptr_t qualname, uintptr_t globals);
size_t ps_copied_string(char *to, uintptr_t string);
#endif
/* Would ps_type_site() give it this name? It may say no where it would: for names that are cut. */
bool ps_type_is_named(PyTypeObject *type, const char *name);
/*
 * The string that is its __qualname__; of nothing for a class that is written in C, which keeps its
 * name.
 */
ps_address ps_type_qualname(const PyTypeObject *type);
/* Is this code of the application's own files? */
bool ps_code_is_own(PyCodeObject *code);
/*
 * The site of a class's name at a place: "package.module.Class", without "builtins." and
 * "__main__."; code NULL: at none.
 */
const ps_site *ps_type_site(PyTypeObject *type, PyCodeObject *code, int line);
/* The site of any other text at a place; code NULL: no place of Python's. */
const ps_site *ps_text_site(const char *text, PyCodeObject *code, int line);

/* fork.c. Is os.fork() between its first handler and its last? Then nobody asks for the GIL. */
int ps_fork_init(void);
bool ps_fork_under_way(void);

/*
 * install.c. install: an errno; the limit in bytes, 0 for the default. uninstall: was something
 * installed?
 */
int ps_install(size_t memory_limit);
bool ps_uninstall(void);
/*
 * The same when the interpreter ends: no other thread gets the GIL any more, so nobody is waited
 * for that may want it.
 */
void ps_uninstall_at_end(void);

/*
 * worker.c: the thread of ours that takes the GIL. To be called before the first request: its
 * handlers around forks in C.
 */
int ps_worker_init(void);
/*
 * Has it do what is asked for (PS_REQUEST_*); it begins when it has to. Called by the watcher,
 * without the GIL.
 */
void ps_worker_request(unsigned what);
/* Waits for its end, without the GIL. */
void ps_worker_stop(void);
/*
 * From now on the worker stays while the watcher does, where it is running; false where it is not,
 * and nothing has changed. For a watcher that is about to give up what a thread has of the one that
 * starts it.
 */
bool ps_worker_stay(void);
/* Does the worker ask? */
bool ps_worker_is_here(void);
/*
 * How many threads of ours there are, and when the last one ended; to end them for a while, and
 * have them again.
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
/* Asks for these events, globally. False: *reason says why not; all tool ids are taken, mostly. */
bool ps_monitoring_ask(enum ps_monitoring_part part, unsigned events, const char **reason);
/*
 * Ends these events, until the part that asked for them asks for something else. For callbacks: the
 * tool id is kept.
 */
void ps_monitoring_take_out(unsigned events);
/* Asks for the starts and returns of this code beside them, or not any more. */
void ps_monitoring_listen_to(PyCodeObject *code, bool on);
/* Why it was refused last, in few words. */
const char *ps_monitoring_refusal(void);
/*
 * Has events told again that a callback of ours disabled, if any did. All tools see theirs again.
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

/* providers.c: _native.Provider and .Probe. The others are functions of the module. */
int ps_providers_init(PyObject *module);
/* Readies the type and puts it into the module under that name. */
int ps_add_type(PyObject *module, const char *name, PyTypeObject *type);
PyObject *ps_set_strict(PyObject *module, PyObject *value);
PyObject *ps_nothing(PyObject *module, PyObject *value);

#endif

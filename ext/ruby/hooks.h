/*
 * The hooks into Ruby, one file for each kind. Each file describes them in a ps_hooks (vm/vm.h). Its
 * hook() runs in a postponed job, on a Ruby thread with the VM lock. It must not run Ruby code: an
 * interrupt (Timeout, Thread#raise) that arrives inside a postponed job would be lost. It calls C
 * functions of Ruby, and TracePoint#enable, which is one instruction that delegates to C: see
 * ps_hold_vm_lock().
 *
 * Work in slices (vm/vm.h) runs in ps_hold_vm_lock() (methods.h), so that no other thread runs during
 * a slice. Calls that may raise are under rb_protect(): an exception would end the whole job, with
 * the work of the other features. What was not done for an exception is reported by
 * ps_info_degrade().
 *
 * Rules inside a hook: never raise, never run Ruby code, never wait. Inside an allocation or GC
 * hook, never allocate either. Inside a GC hook, use pointers only and read no object.
 */
#ifndef PS_RUBY_HOOKS_H
#define PS_RUBY_HOOKS_H

#include <ruby/ruby.h>

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
#include "usdt/probe.h"
#include "doing.h"

/*
 * probescope.c: raised whenever addresses may come to belong to other objects. What was known of
 * them before is not current any more.
 */
extern uint64_t ps_known_epoch;
/* klass, code: a VALUE, or an address. A line or the address of memory of ours is a number. */
#define PS_KEY(klass, code, number)                                                                          \
    ((ps_key){PS_ADDRESS(klass), PS_ADDRESS(code), (uint64_t)(number), {ps_known_epoch, 0}})
/* A table whose entries have that stamp. */
#define PS_KNOWN_TABLE                                                                                       \
    {                                                                                                        \
        .now = &ps_known_epoch                                                                               \
    }

/*
 * probescope.c: runs work(argument), which switches hooks, while no other thread switches hooks. It
 * waits for a thread that does. A job must not wait, so it checks first. An exception may leave it.
 */
VALUE ps_while_nobody_switches(VALUE (*work)(VALUE), VALUE argument);

/*
 * wake.c. ps_wake_init() is called where the application's thread has the VM lock,
 * ps_wake_after_fork() in a forked child, ps_wake() on the watcher's thread.
 */
void ps_wake_init(void);
void ps_wake_after_fork(void);
/* The thread's native id, as gettid() returns it there; 0 when the thread has none. */
int ps_native_id(VALUE thread);
/*
 * Wakes the main thread, so that it runs the job. False when the main thread does not wait, or
 * waits where the application would notice the wake-up.
 */
bool ps_wake(void);

/* functions_hooks.c: function__entry, function__return, function__slow*, function__stats; line */
void ps_functions_init(void);
void ps_functions_after_fork(void);
/* Called when the library is installed, and when it is uninstalled. */
void ps_functions_start(void);
void ps_functions_stop(void);
extern const ps_hooks ps_functions_hooks, ps_lines_hooks;
/* Is this thread inside the hook that adds a loaded file? Nothing is switched meanwhile. */
bool ps_functions_in_hook(void);
/* The same, called by a job. When true, the end of that hook asks for the job again. */
bool ps_functions_put_off(void);
/* Called when the coverage changed: takes all hooks out and begins again. */
void ps_functions_restart(void);

/*
 * scripts.c: called in a :script_compiled hook, before anything else. Hides the object that Ruby
 * made for the event. False when it cannot.
 */
bool ps_script_hide(VALUE tracepoint);

/* exceptions_hooks.c: exception__raise, __detail, __rescue, __stats */
void ps_exceptions_init(void);
extern const ps_hooks ps_exceptions_hooks;
/*
 * Gets exceptions that were raised at known depths, these depths, and the times of the raises.
 * Finds out how to read a depth in O(1). Returns the way found: :dsize, :malloc or :counted.
 */
VALUE ps_exceptions_calibrate(VALUE self, VALUE exceptions, VALUE depths, VALUE times);

/*
 * For backtraces_hooks.c. The first returns the row of the first raise of this exception with this
 * backtrace, or NULL if that is not among the last raises. The second returns the row of a raise that
 * was not seen, by its place. Both return NULL while nobody listens to exceptions.
 */
ps_row *ps_exceptions_origin(VALUE exception, VALUE backtrace);
ps_row *ps_exceptions_unseen(const ps_site *raised);

/* backtraces_hooks.c: backtrace__done, and the strings in exception__stats */
void ps_backtraces_init(void);
extern const ps_hooks ps_backtraces_hooks;
/* The coverage changed: forgets which files are the application's own. */
void ps_backtraces_forget(void);

/* objects_hooks.c: object__alloc, object__stats */
void ps_objects_init(VALUE native);
extern const ps_hooks ps_objects_hooks;
/*
 * Runs work(argument), whose allocations are the library's own: no probe counts them. An exception
 * may leave it.
 */
VALUE ps_objects_leave_out(VALUE (*work)(VALUE), VALUE argument);
/* The threads inside ps_objects_leave_out(). */
extern ps_doing *ps_own_work;

/* collections_hooks.c: gc__start, gc__done */
void ps_collections_init(void);
extern const ps_hooks ps_collections_hooks;

/* samples_hooks.c: sample, sample__stats, sample__frame */
extern const ps_hooks ps_samples_hooks;
/* The function for ps_vm.sample. */
bool ps_sampling_tick(uint64_t now, uint64_t due);
/* probescope.c: called on any thread, and from Ruby 3.3 on also in signal handlers. */
void ps_ask_for_sample(void);
/*
 * probescope.c: called in a hook, on a thread with the VM lock. Asks for a job that does upkeep. It
 * runs on this thread as soon as the thread checks for interrupts.
 */
void ps_ask_for_upkeep_here(void);
/* Adds the stacks that were read at ticks, or takes the sample that the watcher asked for. */
void ps_sampling_take(void);

/* gvl_hooks.c: gvl__wait */
void ps_gvl_init(void);
extern const ps_hooks ps_gvl_hooks;

/* waits_hooks.c: wait__stats */
void ps_waits_init(void);
void ps_waits_after_fork(void);
/* The coverage changed: forgets which files are the application's own. */
void ps_waits_forget_files(void);
/* Finds the names of the waits that have none yet. While nobody switches hooks. */
void ps_waits_name(void);
extern const ps_hooks ps_waits_hooks;

/* trace_context.c: the application's current OpenTelemetry span (context/vm.h) */
void ps_trace_context_init(void);

/* requests_binding.c: request__start, request__done, and the current request (context/vm.h) */
void ps_requests_init(VALUE native);
/* The Probescope::Native::Request of the thread's current fiber, or nil. VM lock held. */
VALUE ps_requests_of(VALUE thread);
/* The counters of `request`. NULL: it is no request, or nobody listens to stats__by_request. */
ps_counted *ps_requests_counted_in(VALUE request);

/*
 * context_publishing.c: publishes trace contexts and the process's resource for profilers outside.
 */
void ps_thread_context_init(VALUE native);

/*
 * jit.c: refuses hooks from which the JIT that is on does not recover. ps_jit_refuses_*() return
 * the reason, or NULL.
 */
void ps_jit_init(void);
bool ps_jit_is_on(void);
void ps_jit_forget(void);
/* Can YJIT be on, now or later, while calls are hooked? */
bool ps_jit_may_come(void);
const char *ps_jit_refuses_calls(void);
const char *ps_jit_refuses_raises(void);

/*
 * ractors.c: may allocations be hooked, and collections and frees? Some versions of Ruby crash when
 * they are hooked and Ractors exist. On these the answer is no once a Ractor was created.
 */
void ps_ractors_init(void);
bool ps_newobj_allowed(void);
const char *ps_newobj_reason(void);
bool ps_gc_hooks_allowed(void);
const char *ps_gc_hooks_reason(void);
/* Called when the first Ractor is created there: takes the hooks out at once. */
void ps_exceptions_forbid_newobj(void);
void ps_objects_forbid_newobj(void);
void ps_collections_forbid(void);
void ps_ticks_forbid(void);

/*
 * current_stack.c: the shadow stack of the current fiber. NULL where calls cannot be traced: in
 * another Ractor, on a frozen thread.
 */
void ps_current_stack_init(void);
ps_stack *ps_current_stack(void);
/*
 * The same, called right after this thread switched to another fiber. *left becomes the shadow
 * stack of the fiber that the thread left, or NULL.
 */
ps_stack *ps_current_stack_switched(ps_stack **left);
/*
 * Called where a Ruby thread begins or ends: the native thread may have run another one before, or
 * run one later.
 */
void ps_current_stack_leave(void);
/* Called when the hook of fiber switches comes in: forgets which stack each thread ran on. */
void ps_current_stack_begin(void);
/*
 * on: a tracer listens to function__here, and ps_here_on is true already. Where threads share native
 * threads, records follow a thread to another native thread meanwhile.
 */
void ps_current_stack_follow_threads(bool on);
/*
 * Do Ruby's threads share native threads? (RUBY_MN_THREADS, 3.3 and later.) Threads of Ractors other
 * than the main one always do from 3.3 on.
 */
bool ps_threads_share(void);
/* Is this the main Ractor? Others run at the same time, and the tables have one writer. */
bool ps_is_main_ractor(void);

/* latency_hooks.c: latency:* */
void ps_latency_init(void);
extern const ps_hooks ps_latency_hooks;
void ps_latency_define_methods(VALUE native);

/* run_time_probes_binding.c: Probescope::Probe and Native::Provider */
void ps_run_time_probes_init(VALUE probescope, VALUE native);

#endif

/*
 * The hooks into Ruby, one file for each kind. Each has a switch that is called with the probes
 * that are listened to, on a Ruby thread with the VM lock, from a postponed job: it makes its hooks
 * match and says whether it is done. It must not run Ruby code: an interrupt (Timeout,
 * Thread#raise) that arrives inside a postponed job would be lost. What it calls are C functions of
 * Ruby, and TracePoint#enable, which is one instruction that delegates to C: see ps_hold_vm_lock().
 *
 * Rules inside a hook: never raise, never run Ruby code, never wait. Inside an allocation or GC
 * hook: also no allocation. Inside a GC hook: no look at an object, only pointers.
 */
#ifndef PS_RUBY_HOOKS_H
#define PS_RUBY_HOOKS_H

#include <ruby/ruby.h>

#include <stdbool.h>
#include <stdint.h>

#include "by_request.h"
#include "doing.h"
#include "parts.h"
#include "probe.h"
#include "sites.h"
#include "stack.h"
#include "thread_id.h"
#include "traceparent.h"

/*
 * probescope.c: work(argument), which switches hooks, while no other thread does. Waits for one
 * that does, so it is not for jobs. May be left by an exception.
 */
VALUE ps_while_nobody_switches(VALUE (*work)(VALUE), VALUE argument);

/*
 * wake.c: called where the application's thread has the VM lock, in a forked child, and on the
 * watcher's thread.
 */
void ps_wake_init(void);
void ps_wake_after_fork(void);
/* The thread, as gettid() calls it there; 0: it has none. */
int ps_native_id(VALUE thread);
/*
 * Wakes the main thread, so that it runs the job. False: it does not wait, or not where it can be
 * woken unnoticed.
 */
bool ps_wake(void);

/* functions.c: function__entry, function__return, function__slow*, function__stats; line */
void ps_functions_init(void);
/* From the installation on until it ends. */
void ps_functions_start(void);
void ps_functions_stop(void);
bool ps_functions_switch(uint32_t wanted);
void ps_functions_mark(void);
/* Is this thread in the middle of hooking a file that it loads? Nothing is switched meanwhile. */
bool ps_functions_in_hook(void);
/* The same for a job, which is asked for once more at the end of that. */
bool ps_functions_put_off(void);
/*
 * Files were loaded since the last walk, and loading has paused: their define_method bodies want a
 * look.
 */
bool ps_functions_need_walk(void);
void ps_functions_walk(void);
/* The coverage changed: begin again. */
void ps_functions_restart(void);

/*
 * scripts.c: called in a :script_compiled hook, before anything else: hides what Ruby made for the
 * event. False when it cannot.
 */
bool ps_script_hide(VALUE tracepoint);

/* exceptions.c: exception__raise, __detail, __rescue, __stats */
void ps_exceptions_init(void);
bool ps_exceptions_switch(uint32_t wanted);
void ps_exceptions_mark(void);
/* A bracket was armed and no raise came: it costs every allocation, so take it away. */
bool ps_exceptions_need_disarm(void);
void ps_exceptions_disarm(void);
/*
 * Exceptions raised at known depths, and those depths: finds out how to read a depth in O(1).
 * Returns the way found.
 */
VALUE ps_exceptions_calibrate(VALUE self, VALUE exceptions, VALUE depths, VALUE times);

/*
 * The place of the first raise of this exception with this backtrace, if that was a moment ago;
 * NULL otherwise. And: ticks that strings of its backtrace took, for the row of `origin`.
 */
const ps_site *ps_exceptions_origin(VALUE exception, VALUE backtrace);
void ps_exceptions_charge(VALUE exception, VALUE backtrace, const ps_site *origin, const ps_site *asked,
                          uint64_t ticks);

/* backtraces.c: backtrace__done, and the strings in exception__stats */
void ps_backtraces_init(void);
bool ps_backtraces_switch(uint32_t wanted);
void ps_backtraces_mark(void);
/* The coverage changed: look again whose files are the application's own. */
void ps_backtraces_forget(void);

/* objects.c: object__alloc, object__stats */
void ps_objects_init(VALUE native);
bool ps_objects_switch(uint32_t wanted);
void ps_objects_mark(void);
/*
 * work(argument), which allocates what is ours and not the application's: no probe tells of it. May
 * be left by an exception.
 */
VALUE ps_objects_leave_out(VALUE (*work)(VALUE), VALUE argument);
/* The threads in it. */
extern ps_doing *ps_own_work;

/* collections.c: gc__start, gc__done */
void ps_collections_init(void);
bool ps_collections_switch(uint32_t wanted);

/* sampling.c: sample, sample__stats, sample__frame */
bool ps_sampling_switch(uint32_t wanted);
/* ps_vm.sample. */
bool ps_sampling_tick(uint64_t now, uint64_t due);
/* probescope.c: any thread; from Ruby 3.3 on also a handler of signals. */
void ps_ask_for_sample(void);
/* Takes what was read at ticks, or the sample that the watcher asked for. */
void ps_sampling_take(void);

/* gvl.c: gvl__wait */
#define PS_GVL_PROBES PS_BIT(GVL__WAIT)
void ps_gvl_init(void);
bool ps_gvl_switch(uint32_t wanted);
/* NULL, or why this Ruby cannot tell of waits. */
const char *ps_gvl_reason(void);

/*
 * trace_context.c: the W3C trace context of the application's current OpenTelemetry span, for the
 * probes that carry it.
 */
void ps_trace_context_init(void);
void ps_trace_context_mark(void);
/*
 * Writes it, or an empty string where there is none. Where it cannot be read, the state of these
 * probes says so.
 */
void ps_trace_context_of_span(char *to, uint32_t probes);
/* The same; where there is no span, that of the current request. */
void ps_trace_context(char *to, uint32_t probes);
/* Does the application send spans of its own? */
bool ps_trace_context_is_kept(void);

/* requests.c: request__start, request__done. The current request of this fiber, or NULL. */
void ps_requests_init(VALUE native);
struct ps_request *ps_requests_current(void);
ps_counted *ps_requests_counted_now(void);
/* The same for ps_by_request(): NULL also while nobody wants to know. */
static inline ps_counted *ps_requests_counted(void)
{
    return PS_ENABLED(STATS__BY_REQUEST) ? ps_requests_counted_now() : NULL;
}
/* The Probescope::Native::Request of the thread's current fiber, or nil. VM lock held. */
VALUE ps_requests_of(VALUE thread);
/* For ps_by_request(). NULL: the value is no request, or nobody listens to stats__by_request. */
ps_counted *ps_requests_counted_in(VALUE request);
/* Its span_id, or 0. */
uint64_t ps_requests_id(void);

/* thread_context.c: the same and the process's resource, for whoever looks from outside */
void ps_thread_context_init(VALUE native);

/* jit.c: what the JIT that is on does not recover from: NULL, or why those hooks are refused */
void ps_jit_init(void);
bool ps_jit_is_on(void);
void ps_jit_forget(void);
/* Can YJIT be on, now or later, beside hooks of calls? */
bool ps_jit_may_come(void);
const char *ps_jit_refuses_calls(void);
const char *ps_jit_refuses_raises(void);

/*
 * ractors.c: may allocations be hooked, and collections and frees? Not on a Ruby that crashes then,
 * once it has Ractors.
 */
void ps_ractors_init(void);
bool ps_newobj_allowed(void);
const char *ps_newobj_reason(void);
bool ps_gc_hooks_allowed(void);
const char *ps_gc_hooks_reason(void);
/* Called when that changes: take the hooks out at once. */
void ps_exceptions_forbid_newobj(void);
void ps_objects_forbid_newobj(void);
void ps_collections_forbid(void);
void ps_ticks_forbid(void);

/*
 * contexts.c: the shadow stack of the current fiber; NULL where it cannot be traced (a Ractor, a
 * frozen thread).
 */
void ps_contexts_init(void);
ps_stack *ps_contexts_current(void);
/*
 * The same, called when this thread has just switched to another fiber; *left becomes the stack
 * that it left, or NULL.
 */
ps_stack *ps_contexts_switched(ps_stack **left);
/* Switches of fibers are told from now on: forgets what ran on what before. */
void ps_contexts_begin(void);
/* Is this the main Ractor? Others run at the same time, and the tables have one writer. */
bool ps_contexts_on_main_ractor(void);

/* latency.c: latency:* */
void ps_latency_init(void);
bool ps_latency_switch(uint32_t wanted);
void ps_latency_mark(void);
/*
 * A method may have been defined anew since the last look. The first is asked without the VM lock.
 */
bool ps_latency_need_look(void);
void ps_latency_look_again(void);
void ps_latency_define_methods(VALUE native);

/* providers.c: Probescope::Probe and Native::Provider */
void ps_providers_init(VALUE probescope, VALUE native);

#endif

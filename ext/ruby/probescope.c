/*
 * The Ruby extension: connects the core's watcher to Ruby's hooks.
 *
 *   watcher thread --request()--> flags, and triggers a postponed job
 *   a Ruby thread, with the VM lock --job()--> switches hooks, takes the sample, finds names
 *
 * Only Probescope::Native is defined here; what an application calls is in lib/probescope.rb.
 */
#include <ruby/ruby.h>
#include <ruby/debug.h>
#include <ruby/version.h>

#include "agent/status.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/fork.h"
#include "base/memory.h"
#include "base/stopwatch.h"
#include "base/thread_record.h"
#include "features/call_paths.h"
#include "features/requests.h"
#include "table/kept.h"
#include "usdt/info.h"
#include "usdt/looking.h"
#include "compat.h"
#include "doing.h"
#include "hooks.h"
#include "job.h"
#include "methods.h"
#include "names.h"
#include "string_coverage.h"
#include "ticks.h"

uint64_t ps_known_epoch;
static const char *refused; /* why nothing can be installed; NULL: it can */
static unsigned requests;   /* what the watcher asked for and no job has done yet */

/* Called on the watcher's thread, without the VM lock. */
static void request(unsigned what)
{
    PS_FETCH_OR(requests, what);
    ps_job_ask();
}

void ps_ask_for_sample(void)
{
    request(PS_REQUEST_SAMPLE);
}

void ps_ask_for_upkeep_here(void)
{
    PS_FETCH_OR(requests, PS_REQUEST_UPKEEP);
    ps_job_ask_here();
}

static const ps_hooks requests_hooks = {.feature = &ps_requests_feature};
static const ps_hooks call_paths_hooks = {
    .feature = &ps_call_paths_feature, .needs_upkeep = ps_paths_need_upkeep, .upkeep = ps_paths_upkeep};

const ps_vm ps_the_vm = {
    .hooks = {&ps_exceptions_hooks, &ps_backtraces_hooks, &ps_objects_hooks, &ps_collections_hooks,
              &ps_samples_hooks, &ps_gvl_hooks, &ps_waits_hooks, &requests_hooks, &ps_functions_hooks,
              &ps_lines_hooks, &ps_latency_hooks, &call_paths_hooks},
    .request = request,
    .sample = ps_sampling_tick,
    .sample_period = ps_ticks_look_again_ns,
    .wake = ps_wake,
    .cover_again = ps_functions_restart,
};

/*
 * Is there hardly any room on the stack? Switching hooks pushes frames, and when Ruby swallows a
 * SystemStackError inside a job, the thread ignores interrupts from then on. A fiber has room for
 * some 1,200 frames, a thread for 10,000.
 */
static bool is_deep(void)
{
    enum { DEEP = 500 };
    VALUE frames[DEEP];
    int lines[DEEP];
    return rb_profile_frames(0, DEEP, frames, lines) == DEEP;
}

/*
 * Threads that are switching hooks. The VM checks for other threads after each call there, and on a
 * busy machine a time slice can end (ps_hold_vm_lock). No other thread may switch hooks then.
 */
static ps_doing *switching;

/* The child has no other thread of the parent, and no thread forks while it switches hooks. */
static void after_fork_in_child(void)
{
    switching = ps_own_work = NULL;
    ps_functions_after_fork();
    ps_ticks_after_fork();
    ps_waits_after_fork();
    ps_wake_after_fork();
}
PS_FORK_STEP(PS_FORK_VM, .in_child = after_fork_in_child)

VALUE ps_while_nobody_switches(VALUE (*work)(VALUE), VALUE argument)
{
    while (switching && !ps_doing_here(switching)) rb_thread_schedule();
    return ps_doing_while(&switching, work, argument);
}

static VALUE switch_hooks(VALUE what)
{
    if (what & PS_REQUEST_SWITCH) ps_features_switch();
    if (what & PS_REQUEST_UPKEEP) ps_features_do_upkeep();
    return Qnil;
}

static VALUE do_jobs(VALUE what)
{
    if (what & PS_REQUEST_SAMPLE) ps_sampling_take();
    if (what & (PS_REQUEST_SWITCH | PS_REQUEST_UPKEEP)) ps_while_nobody_switches(switch_hooks, what);
    return Qnil;
}

static VALUE left_out(VALUE what)
{
    return ps_objects_leave_out(do_jobs, what);
}

/*
 * Called by Ruby as a postponed job, on a thread of the main Ractor. From 3.3 on also in another
 * Ractor: after a collection that left finalizers Ruby runs all pending jobs there. The job does
 * nothing there. A hook that is put in there reports that Ractor alone, and Ruby takes it out of
 * the Ractor's freed memory once the Ractor has ended.
 *
 * Work that is not done stays in `requests`, and the watcher asks again at its next look.
 */
static void run_job(void *unused)
{
    if (!ps_is_main_ractor()) return;
    unsigned what = PS_EXCHANGE(requests, 0), hooks = what & (PS_REQUEST_SWITCH | PS_REQUEST_UPKEEP);
    if (hooks && (switching || ps_functions_put_off() || is_deep())) {
        PS_FETCH_OR(requests, hooks);
        what &= ~hooks;
    }
    if (!what) return;
    bool ours = ps_ours_begin();
    ps_stopwatch began = ps_stopwatch_start();
    ps_job_do(left_out, what);
    ps_looking_add(ps_stopwatch_stop(began));
    ps_ours_end(ours);
}

/* It pins the object: objects are compared by their addresses. */
static void mark(void *place)
{
    rb_gc_mark(*(VALUE *)place);
}

/*
 * Called by Ruby in each collection. As the root has no write barrier, Ruby calls it once more at
 * the end of a collection in steps. From then until the next collection no address of an object
 * that was seen is freed (docs/decisions/157).
 */
static void mark_all(void *unused)
{
    ps_known_epoch++;
    ps_kept_collected();
    ps_kept_visit(mark);
}

/*
 * Not write-barrier protected, so Ruby marks it in every collection: hooks add addresses to tables
 * at any moment.
 */
static const rb_data_type_t root_type = {"probescope/root", {mark_all, NULL, NULL}, 0, 0, 0};

static VALUE native_stop(VALUE self);

/* Called by Ruby at its end, in the order of at_exit. Flushes the last part of a second. */
static void stop_at_end(VALUE unused)
{
    ps_jit_forget();
    native_stop(Qnil);
}

/*
 * start(memory_limit_in_bytes): raises SystemCallError when the thread cannot be started, and Error
 * when this Ruby cannot run jobs or a handler of forks is missing.
 */
static VALUE native_start(VALUE self, VALUE limit)
{
    if (ps_features_installed()) return Qfalse;
    if (refused) rb_raise(rb_const_get(rb_path2class("Probescope"), rb_intern("Error")), "%s", refused);
    ps_memory_set_limit(NUM2SIZET(limit));
    ps_wake_init();
    ps_functions_start();
    int error = ps_features_install();
    if (error) {
        ps_functions_stop();
        rb_syserr_fail(error, "probescope's watcher thread");
    }
    /*
     * Not at_exit, which takes a block: TracePoints of the application would see the block, and an
     * exception that they raise could leave it.
     */
    static bool end_is_known;
    if (!end_is_known) rb_set_end_proc(stop_at_end, Qnil);
    end_is_known = true;
    return Qtrue;
}

static VALUE unhook(VALUE unused)
{
    while (!ps_features_unhook() && !ps_functions_in_hook()) {
    }
    return Qnil;
}

static VALUE name_waits(VALUE unused)
{
    ps_waits_name();
    return Qnil;
}

static VALUE name_waits_left_out(VALUE unused)
{
    return ps_objects_leave_out(name_waits, Qnil);
}

static VALUE find_names(VALUE unused)
{
    return ps_while_nobody_switches(name_waits_left_out, Qnil);
}

/* Flushes, ends the watcher and takes all hooks out. */
static VALUE native_stop(VALUE self)
{
    if (!ps_features_installed()) return Qfalse;
    /* For the last flush. What gets no name for an exception is in it without one. */
    int state = 0;
    rb_protect(find_names, Qnil, &state);
    if (state) rb_set_errinfo(Qnil);
    bool ours = ps_ours_begin();
    ps_watcher_stop();
    ps_ours_end(ours);
    ps_functions_stop();
    ps_features_uninstall();
    ps_while_nobody_switches(unhook, Qnil);
    return Qtrue;
}

static VALUE native_cover(VALUE self, VALUE roots, VALUE outside, VALUE ours, VALUE patterns)
{
    ps_cover(roots, outside, ours, patterns);
    ps_functions_restart();
    ps_backtraces_forget();
    ps_waits_forget_files();
    return Qnil;
}

static void set(VALUE hash, const char *key, VALUE value)
{
    rb_hash_aset(hash, rb_id2sym(rb_intern(key)), value);
}

/* {name => [state, reason or nil]} */
static VALUE states_of_probes(void)
{
    VALUE probes = rb_hash_new();
    for (int i = 0; i < PS_PROBE_COUNT; i++) {
        const char *reason = probescope_info.probes[i].reason;
        VALUE state = rb_id2sym(rb_intern(ps_state_names[ps_info_state_of(i)]));
        set(probes, ps_probe_names[i], rb_assoc_new(state, *reason ? rb_utf8_str_new_cstr(reason) : Qnil));
    }
    return probes;
}

static VALUE native_status(VALUE self)
{
    VALUE status = rb_hash_new();
#define FLAG(name, value)   set(status, name, (value) ? Qtrue : Qfalse);
#define PROBES(name)        set(status, name, states_of_probes());
#define TEXT(name, value)   set(status, name, rb_str_new_cstr(value));
#define NUMBER(name, value) set(status, name, ULL2NUM(value));
    PS_STATUS(FLAG, PROBES, TEXT, NUMBER)
    return status;
}

RUBY_FUNC_EXPORTED void Init_probescope(void)
{
    VALUE probescope = rb_define_module("Probescope");
    VALUE native = rb_define_module_under(probescope, "Native");
    rb_define_singleton_method(native, "start", native_start, 1);
    rb_define_singleton_method(native, "stop", native_stop, 0);
    rb_define_singleton_method(native, "cover", native_cover, 4);
    rb_define_singleton_method(native, "calibrate", ps_exceptions_calibrate, 3);
    rb_define_singleton_method(native, "status", native_status, 0);

    static VALUE root;
    rb_gc_register_address(&root);
    root = TypedData_Wrap_Struct(rb_cObject, &root_type, (void *)&ps_the_vm);
    ps_kept_init(NULL, NULL);

    ps_clock_start();
    ps_names_init();
    ps_looking_besides(PS_LOOK_FUNCTION, 21);
    ps_looking_usual(PS_LOOK_FUNCTION, 16);
    ps_looking_besides(PS_LOOK_LINE, 24);
    ps_looking_besides(PS_LOOK_LATENCY, 24);
    /*
     * At each raise the VM calls Exception#backtrace, which is redefined meanwhile
     * (backtraces_hooks.c).
     */
    ps_looking_besides(PS_LOOK_EXCEPTION, 130);
    ps_looking_besides(PS_LOOK_OBJECT, 29);
    ps_looking_besides(PS_LOOK_BRACKET, 10);
    ps_current_stack_init();
    ps_trace_context_init();
    ps_thread_context_init(native);
    ps_ractors_init();
    ps_jit_init();
    ps_methods_init();
    ps_functions_init();
    ps_latency_init();
    ps_exceptions_init();
    ps_backtraces_init();
    ps_objects_init(native);
    ps_collections_init();
    ps_gvl_init();
    ps_waits_init();
    ps_run_time_probes_init(probescope, native);
    ps_requests_init(native);
    ps_latency_define_methods(native);
    VALUE version = rb_const_get(probescope, rb_intern("VERSION"));
    ps_info_start("ruby", ruby_version, StringValueCStr(version));
    ps_features_init();
    refused = ps_job_init(run_job);
    if (ps_fork_init() != 0) refused = "no memory for a handler of forks";
}

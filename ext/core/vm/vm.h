/*
 * What a VM supplies. ext/ruby and ext/python each define `ps_the_vm`; the C tests define one of
 * their own. All else is the core's: when hooks are switched, when rows are cleared, the states of
 * the probes, the flush.
 *
 * What a VM does not need is NULL or 0. Functions are called with the VM lock, unless noted
 * otherwise.
 */
#ifndef PS_VM_H
#define PS_VM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/probe_set.h"

enum { PS_HOOKS_MAX = 16 };

struct ps_feature;

/*
 * The hooks of one feature (table/feature.h).
 *
 * While a tracer listens, hook(), refused(), forget() and upkeep() run in Ruby's postponed job or on
 * CPython's worker (ext/ruby/probescope.c, ext/python/worker.c). That time counts as what looking
 * costs: the job is timed as a whole, and a thread of ours counts with all of its CPU time. So only
 * what the VM calls at events is measured with ps_look_begin() and ps_look_end().
 */
typedef struct ps_hooks {
    /* NULL: hooks that serve no probe of the provider, such as those of latency probes. */
    const struct ps_feature *feature;
    /*
     * Makes the hooks match the probes that have listeners, or does a slice of that: at most about
     * 2 ms, because threads of the application wait meanwhile. Returns true when it is done, and
     * false when more is to be done. Then it is called again, after 4 ms as long as the VM gets on
     * with the work, else after 50 ms, and perhaps with other probes. It is also called when nothing
     * is to be done. It sees all probes, because some probes change what others do. When it refuses
     * or degrades a probe, it sets the state itself (ps_info_state()).
     */
    bool (*hook)(ps_probe_set wanted);
    /*
     * Returns the reason why the feature's probes are refused for now, also while no tracer
     * listens. hook() does not see probes that are refused. Called before each slice of hook(), so
     * it takes no longer than a few microseconds. NULL: they are not refused.
     */
    const char *(*refused)(void);
    /* The probes that this VM never serves, and a function that returns why. NULL: it does. */
    ps_probe_set unsupported;
    const char *(*why)(void);
    /*
     * Forgets all references to rows of the feature's table. The hooks are out, and the rows are
     * cleared next. Called with the lock of the flush, too.
     */
    void (*forget)(void);
    /*
     * True when a hook left small work for later. Called on the watcher's thread, without the VM
     * lock, every 50 ms while a tracer listens and all hooks are as they should be. Called again with
     * the VM lock before upkeep().
     */
    bool (*needs_upkeep)(void);
    /*
     * Does that work, or a slice of at most about 2 ms. What is left over is done 50 ms later, if
     * needs_upkeep() returns true then.
     */
    void (*upkeep)(void);
} ps_hooks;

/* What the watcher may ask of the VM. */
enum {
    /* ps_watcher_wanted() changed, switching is not done yet, or latency probes changed. */
    PS_REQUEST_SWITCH = 1,
    PS_REQUEST_SAMPLE = 2,
    /* Small work that needs the VM, such as looking at files that were loaded. */
    PS_REQUEST_UPKEEP = 4,
};

typedef struct ps_vm {
    /* In the order in which they are switched; at most one for each feature. NULL ends the list. */
    const ps_hooks *hooks[PS_HOOKS_MAX + 1];
    /*
     * Called on the watcher's thread, without the VM lock. It must only note the request and
     * return.
     */
    void (*request)(unsigned what);
    /*
     * False while hooks run on other threads: then no table is cleared. NULL: the VM lock keeps
     * hooks out.
     */
    bool (*may_clear)(void);
    /*
     * True when PS_REQUEST_SAMPLE is to follow. Called on the watcher's thread, at each tick while
     * a tracer listens to samples. due: when the tick should have been. NULL: the watcher calls
     * ps_samples_tick().
     */
    bool (*sample)(uint64_t now, uint64_t due);
    /*
     * The approximate time to the next tick. It is more than PS_SAMPLE_NS where other threads take
     * the samples. May be NULL.
     */
    uint64_t (*sample_period)(void);
    /* sample() reads the stacks of other threads: see is_late() of the watcher. */
    bool leaves_out_late_ticks;
    /*
     * Called each time the watcher is awake, on its thread. Returns when the watcher has to be awake
     * again (CLOCK_MONOTONIC), or 0. May be NULL.
     */
    uint64_t (*step)(uint64_t now);
    /*
     * Wakes a VM whose threads all wait, so that it handles the request. Returns true when it was
     * woken. Called on the watcher's thread, while a tracer's hooks are not in. NULL: request()
     * wakes the VM.
     */
    bool (*wake)(void);
    /*
     * Covers functions again that were taken out (overhead.h). Called in a forked child, before its
     * watcher starts. May be NULL.
     */
    void (*cover_again)(void);
} ps_vm;

extern const ps_vm ps_the_vm;

#endif

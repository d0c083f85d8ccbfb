/*
 * The watcher: one native thread that looks at the semaphores, because nothing tells a process that
 * a tracer came.
 *
 *   every 50 ms   has a semaphore changed? Then ask the VM to switch hooks; it does so on a thread
 *                 of its own, in slices if there are many, and is asked for the next one 4 ms
 *                 later.
 *   every second  while statistics are listened to: flush them (stats.h). The first flush tells a
 *                 tracer that its interval begins, so the watcher does not flush before every hook
 *                 is in, however long the VM takes. A flush waits up to 150 ms for the names of
 *                 rows that the VM has not found yet. Then they are dropped, and counted.
 *   99 times/s    while samples are listened to: ask the VM for one.
 *
 * It is no thread of the VM (a Ruby thread would switch deadlock detection off, and Puma warns of
 * it), takes no lock that the application could wait for, blocks all signals, has a small stack and
 * ends at exit. fork() leaves it behind: the child's atfork handler starts a new one, at once,
 * because in an idle worker nothing of ours would ever run again.
 */
#ifndef PS_WATCHER_H
#define PS_WATCHER_H

#include <stdbool.h>
#include <stdint.h>

#include "probes.gen.h"

enum {
    PS_POLL_NS = 50000000,
    PS_HURRY_NS = 4000000,
    PS_FLUSH_NS = 1000000000,
    PS_SAMPLE_NS = 10101010,
    PS_NAMES_NS = 150000000
};

/* What the watcher may ask of the VM. */
enum {
    PS_REQUEST_SWITCH = 1, /* ps_watcher_wanted() changed, or is not done yet; or latency probes */
    PS_REQUEST_SAMPLE = 2,
    PS_REQUEST_UPKEEP = 4, /* small work that needs the VM, such as finding names */
};

typedef struct ps_vm {
    /*
     * Called on the watcher's thread, without the VM lock: must only note the request and return.
     */
    void (*request)(unsigned what);
    /* Is there upkeep to do? Asked at each look while somebody listens, on the same thread. */
    bool (*needs_upkeep)(void);
    /*
     * Called at each tick while somebody listens to samples, on the same thread: is
     * PS_REQUEST_SAMPLE to follow? due: when the tick should have been. NULL: ps_samples_tick().
     */
    bool (*sample)(uint64_t now, uint64_t due);
    /*
     * How long it is to the next tick, about: more than PS_SAMPLE_NS where others take the samples.
     * May be NULL.
     */
    uint64_t (*sample_period)(void);
    bool leaves_out_late_ticks; /* sample() reads the stacks of other threads: see is_late() */
    /*
     * ps_stats_try_lock(), when no hook is under way on another thread; NULL: the VM lock sees to
     * that. Called with that.
     */
    bool (*try_lock_tables)(void);
    /*
     * May be NULL. Called each time the watcher is awake; returns when it has to be awake again
     * (CLOCK_MONOTONIC), or 0.
     */
    uint64_t (*step)(uint64_t now);
    /*
     * Has a VM whose threads all wait come to what it was asked for; true when it was woken. Called
     * on the same thread, while hooks for a tracer do not come in. NULL: request() does that.
     */
    bool (*wake)(void);
    /*
     * Functions that were taken out (overhead.h) are in again: called in a forked child, before its
     * watcher starts. May be NULL.
     */
    void (*cover_again)(void);
} ps_vm;

/* A bit for each probe with a listener, without those that were taken out (overhead.h). */
uint32_t ps_watcher_wanted(void);
#define PS_BIT(probe) (1u << PS_PROBE_##probe)

/*
 * The VM is about to switch hooks: to what is returned. Until it calls ps_watcher_applied() no hook
 * counts as switched.
 */
uint32_t ps_watcher_switching(void);
/*
 * The VM says for which probes its hooks are in now; it is asked again until these are the wanted
 * ones.
 */
void ps_watcher_applied(uint32_t probes);
/* The VM has done a slice of it, and more is to do. */
void ps_watcher_progress(void);
/*
 * The kernel gives this thread, the watcher's, a CPU at once when it wakes up, unless a system call
 * keeps all of them.
 */
void ps_watcher_goes_first(void);
/* Have the VM asked again, though no semaphore changed: what the hooks cover did. */
void ps_watcher_recheck(void);

/* Starts the thread; 0 or an errno. vm stays valid. */
int ps_watcher_start(const ps_vm *vm);
/* Flushes a last time, ends and joins it. */
void ps_watcher_stop(void);
/*
 * Ends and joins it for a moment, and starts it again as if nothing had been: for a VM that wants
 * no other threads while it forks. A child that is forked meanwhile has a watcher at once.
 */
void ps_watcher_pause(void);
void ps_watcher_resume(void);
bool ps_watcher_is_running(void);

#endif

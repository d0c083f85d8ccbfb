/*
 * The watcher: one native thread that reads the semaphores, because the kernel does not tell a
 * process that a tracer has attached.
 *
 *   every 50 ms   Has a semaphore changed? Then the watcher asks the VM to switch hooks. The VM
 *                 switches them on one of its own threads. If there are many hooks, it switches
 *                 them in slices, and the watcher asks for the next slice 4 ms later.
 *   every second  While a tracer listens to statistics: flush them (flush.h). The first flush tells
 *                 a tracer that its interval begins. So the watcher does not flush before every
 *                 hook is in, however long the VM takes.
 *   99 times/s    While a tracer listens to samples: ask the VM for one.
 *
 * The watcher is not a thread of the VM: a Ruby thread would switch deadlock detection off, and
 * Puma warns of such threads. The watcher takes no lock that the application could wait for, blocks
 * all signals, has a small stack and ends at exit. A forked child has no watcher, so a step of the
 * fork (base/fork.h) starts a new one at once: in an idle worker no other code of ours would ever
 * run again.
 */
#ifndef PS_WATCHER_H
#define PS_WATCHER_H

#include <stdbool.h>
#include <stdint.h>

#include "usdt/probe_groups.h"

enum { PS_POLL_NS = 50000000, PS_HURRY_NS = 4000000, PS_FLUSH_NS = 1000000000 };

/* What the watcher may ask of the VM. */
enum {
    /* ps_watcher_wanted() changed, switching is not done yet, or latency probes changed. */
    PS_REQUEST_SWITCH = 1,
    PS_REQUEST_SAMPLE = 2,
    /* Small work that needs the VM, such as looking at files that were loaded. */
    PS_REQUEST_UPKEEP = 4,
};

typedef struct ps_vm {
    /*
     * Called on the watcher's thread, without the VM lock. It must only note the request and
     * return.
     */
    void (*request)(unsigned what);
    /*
     * True when there is upkeep to do. Called on the watcher's thread, at each look while a tracer
     * listens.
     */
    bool (*needs_upkeep)(void);
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
    /* sample() reads the stacks of other threads: see is_late(). */
    bool leaves_out_late_ticks;
    /*
     * Takes the lock of ps_flush_try_lock(), but only when no hook runs on another thread. NULL:
     * the VM lock already keeps hooks out. The caller holds the VM lock.
     */
    bool (*try_lock_tables)(void);
    /*
     * Called each time the watcher is awake. Returns when the watcher has to be awake again
     * (CLOCK_MONOTONIC), or 0. May be NULL.
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

/* A bit for each probe with a listener. Probes that were taken out (overhead.h) have none. */
uint32_t ps_watcher_wanted(void);

/*
 * The VM calls this before it switches hooks to the probes that are returned. No hook counts as
 * switched until the VM calls ps_watcher_applied().
 */
uint32_t ps_watcher_switching(void);
/*
 * The VM reports the probes whose hooks are in now. The watcher asks again until these are the
 * wanted ones.
 */
void ps_watcher_applied(uint32_t probes);
/* The VM reports that it has switched a slice of the hooks, and that more remain. */
void ps_watcher_progress(void);
/*
 * The watcher's thread reports that the kernel gives it a CPU at once when it wakes up, unless a
 * system call keeps every CPU.
 */
void ps_watcher_goes_first(void);
/*
 * Makes the watcher ask the VM again, although no semaphore changed: the set of covered functions
 * did.
 */
void ps_watcher_recheck(void);

/* Starts the thread. Returns 0 or an errno. vm must stay valid. */
int ps_watcher_start(const ps_vm *vm);
/* Ends the thread, joins it, and flushes a last time. */
void ps_watcher_stop(void);
/*
 * For a VM that tolerates no other thread while it forks. pause() ends the thread and joins it;
 * resume() starts it again as if it had never stopped. A child that is forked in between has a
 * watcher at once.
 */
void ps_watcher_pause(void);
void ps_watcher_resume(void);
bool ps_watcher_is_running(void);

#endif

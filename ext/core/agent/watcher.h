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
#include "vm/vm.h"

enum { PS_POLL_NS = 50000000, PS_HURRY_NS = 4000000, PS_FLUSH_NS = 1000000000 };

/* A bit for each probe with a listener. Probes that were taken out (overhead.h) have none. */
ps_probe_set ps_watcher_wanted(void);

/*
 * The VM calls this before it switches hooks to the probes that are returned. No hook counts as
 * switched until the VM calls ps_watcher_applied().
 */
ps_probe_set ps_watcher_switching(void);
/*
 * The VM reports the probes whose hooks are in now. The watcher asks again until these are the
 * wanted ones.
 */
void ps_watcher_applied(ps_probe_set probes);
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

/*
 * CPU clocks of the threads, for a VM that reads all their stacks in one walk.
 *
 * A stack counts as a sample only if its thread was on the CPU between the tick and the walk. A
 * thread that sleeps or waits for the VM lock was not. So the watcher notes each thread's clock at
 * the tick. The walk, at most some ms later, samples the threads whose clocks have advanced. CPU
 * time that a thread used between its samples is added to its next sample. So the sum of a thread's
 * weights is its CPU time.
 *
 *   watcher  ps_thread_clocks_tick()
 *   VM       begin_walk, see() for each thread, take() for each thread, end_walk: with the VM lock
 *
 * Watcher and VM never wait for each other. When one finds the clocks locked by the other, it
 * leaves the work for the next tick.
 */
#ifndef PS_THREAD_CLOCKS_H
#define PS_THREAD_CLOCKS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Forgets all threads. Called by the watcher. */
void ps_thread_clocks_forget(void);
/* Notes all clocks. Returns false when no known thread has run since the last tick. */
bool ps_thread_clocks_tick(void);

/* Returns false while the watcher uses the clocks. */
bool ps_thread_clocks_begin_walk(void);
/* Registers a thread that exists. id: the VM's id of the thread, which is never used again. */
void ps_thread_clocks_see(uint64_t id, pthread_t thread);
/*
 * Called after ps_thread_clocks_see() for every thread. Returns the CPU time in ns that a sample of
 * this thread stands for, or 0. thread_id: set to its gettid().
 */
uint64_t ps_thread_clocks_take(uint64_t id, uint64_t *thread_id);
void ps_thread_clocks_end_walk(void);

void ps_thread_clocks_after_fork(void);

#endif

/*
 * CPU clocks of the threads, for a VM that looks at all their stacks in one walk.
 *
 * A thread that sleeps and one that waits for the VM lock both stand still, so a stack is worth its
 * sample only if its thread was on the CPU between the tick and the walk. The watcher notes each
 * clock at the tick; the walk, at most some ms later, samples the threads whose clocks went on.
 * What a thread used in between its samples is carried to the next one, so that the sums of weights
 * are the threads' CPU times.
 *
 *   watcher  ps_thread_clocks_tick()
 *   VM       begin_walk, see() for each thread, take() for each thread, end_walk: with the VM lock
 *
 * Neither ever waits for the other: who finds the other at work leaves it for the next tick.
 */
#ifndef PS_THREAD_CLOCKS_H
#define PS_THREAD_CLOCKS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Forgets all threads. The watcher's. */
void ps_thread_clocks_forget(void);
/* Notes all clocks. False when no thread that is known has run since the last tick. */
bool ps_thread_clocks_tick(void);

/* False when the watcher is at the clocks. */
bool ps_thread_clocks_begin_walk(void);
/* There is this thread. id: what the VM knows it by, which never comes to mean another. */
void ps_thread_clocks_see(uint64_t id, pthread_t thread);
/*
 * Once all have been seen: the CPU time in ns that a sample of this thread stands for, or 0; and
 * its gettid().
 */
uint64_t ps_thread_clocks_take(uint64_t id, uint64_t *thread_id);
void ps_thread_clocks_end_walk(void);

void ps_thread_clocks_after_fork(void);

#endif

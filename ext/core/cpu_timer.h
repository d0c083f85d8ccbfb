/*
 * Timers on the CPU clock of one thread, which send that thread a signal. Of the kernel alone: the
 * C library's own may allocate.
 *
 * A thread that is not on the CPU gets none. One that is in a system call gets it on its way back
 * to user mode, when the result of the call is settled, so that no call ends early: where the
 * kernel has CONFIG_POSIX_CPU_TIMERS_TASK_WORK (Linux 5.11 and later, on x86-64; on aarch64 6.16
 * and later).
 */
#ifndef PS_CPU_TIMER_H
#define PS_CPU_TIMER_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* The CPU clock of thread `tid`, by clock_gettime(). */
clockid_t ps_cpu_clock_of(int tid);
/* A timer that runs out for thread `tid` with si_value.sival_int == value, not started; or -1. */
int ps_cpu_timer_create(int tid, int signal, int value);
/*
 * Has it run out once, at so many ns of the thread's CPU clock. May be called in a handler of
 * signals. On that thread alone: the kernel sends the signal at once where the clock is past that,
 * and the thread may have gone to sleep by then.
 */
void ps_cpu_timer_start(int timer, uint64_t ns);
/* The same, so many ns from now on, from any thread. */
void ps_cpu_timer_start_in(int timer, uint64_t ns);
void ps_cpu_timer_delete(int timer);

enum ps_seen { PS_SEEN_UNKNOWN, PS_SEEN_NO_TIMER, PS_SEEN_BY_CALLS, PS_SEEN_BY_NOBODY };
/*
 * Does a system call see the signal of such a timer? Looks at some that run out during a read() of
 * /dev/zero, for 100 ms of CPU time at the most. signal: this thread has it blocked, and its
 * handler counts up *handled.
 */
enum ps_seen ps_cpu_timer_seen(int signal, int value, const uint32_t *handled);

#endif

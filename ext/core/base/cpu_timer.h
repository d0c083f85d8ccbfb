/*
 * Timers on the CPU clock of one thread. A timer sends its signal to that thread. They are the
 * kernel's timers, because the C library's may allocate memory.
 *
 * A thread that is not on the CPU gets no signal. A thread in a system call gets it on the way back
 * to user mode, when the result of the call is settled, so that no call ends early. That needs a
 * kernel with CONFIG_POSIX_CPU_TIMERS_TASK_WORK: Linux 5.11 and later on x86-64, 6.16 and later on
 * aarch64.
 */
#ifndef PS_CPU_TIMER_H
#define PS_CPU_TIMER_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* The CPU clock of thread `tid`, for clock_gettime(). */
clockid_t ps_cpu_clock_of(int tid);
/*
 * Makes a timer for thread `tid`, not started. Its signal has si_value.sival_int == value. Returns
 * the timer or -1.
 */
int ps_cpu_timer_create(int tid, int signal, int value);
/*
 * Sets the timer to run out once, when the thread's CPU clock is at `ns`. May be called in a signal
 * handler, but only on the timer's own thread. When the clock is already past `ns`, the kernel
 * sends the signal at once. From another thread it could interrupt a sleep of the timer's thread.
 */
void ps_cpu_timer_start(int timer, uint64_t ns);
/* The same, `ns` from now on. May be called on any thread. */
void ps_cpu_timer_start_in(int timer, uint64_t ns);
void ps_cpu_timer_delete(int timer);

enum ps_seen { PS_SEEN_UNKNOWN, PS_SEEN_NO_TIMER, PS_SEEN_BY_CALLS, PS_SEEN_BY_NOBODY };
/*
 * Tests whether the signal of such a timer can interrupt a system call. Lets some timers run out
 * during a read() of /dev/zero, for at most 100 ms of CPU time. The calling thread has `signal`
 * blocked, and the signal's handler increments *handled.
 */
enum ps_seen ps_cpu_timer_seen(int signal, int value, const uint32_t *handled);

#endif

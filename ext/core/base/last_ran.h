/* When a thread last ran, and how its CPU time is divided, as the kernel records it. */
#ifndef PS_LAST_RAN_H
#define PS_LAST_RAN_H

#include <stdbool.h>
#include <stdint.h>

/*
 * When a thread of this process last ran, in ns of the scheduler's clock of that CPU. Values of two
 * threads that ran on the same CPU can be compared. For a running thread the scheduler updates the
 * value at certain events, for example when the thread asks for its CPU time. Until then it is the
 * moment when the thread got the CPU, and exactly the value of the thread that had the CPU before.
 * Returns 0 when there is no such thread, or the kernel does not report it (CONFIG_SCHED_DEBUG,
 * which is always there from Linux 6.15 on).
 */
uint64_t ps_last_ran_ns(int tid);

/*
 * True when a thread of this process waits for something other than a CPU. It reads `wchan`, for
 * which the kernel takes two thirds of the time that `sched` takes. False also where the kernel
 * does not report it.
 */
bool ps_is_asleep(int tid);

/*
 * CPU time of a thread of this process in clock ticks of 10 ms, and the part of it spent in the
 * kernel. The kernel attributes a tick by what the thread did when the kernel's clock interrupted
 * it.
 */
struct ps_cpu_ticks {
    uint64_t all, system;
};

/* Returns false when there is no such thread, or the kernel does not report it. */
bool ps_cpu_ticks_of(int tid, struct ps_cpu_ticks *ticks);

/* CPU time of a thread of this process, and how long it was ready to run and waited for a CPU; ns. */
struct ps_cpu_waits {
    uint64_t ran_ns, waited_ns;
};

/* Returns false when there is no such thread, or the kernel does not report it (CONFIG_SCHED_INFO). */
bool ps_cpu_waits_of(int tid, struct ps_cpu_waits *waits);

#endif

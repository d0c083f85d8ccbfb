/* When a thread last had a CPU, and what for, as the kernel notes it. */
#ifndef PS_LAST_RAN_H
#define PS_LAST_RAN_H

#include <stdbool.h>
#include <stdint.h>

/*
 * ns by the scheduler's clock of that CPU, of a thread of this process; 0: the kernel does not tell
 * (CONFIG_SCHED_DEBUG, which is always there from Linux 6.15 on), or there is no such thread. Of
 * two threads that had the same CPU the values compare. For a thread that runs the scheduler notes
 * it when it looks: when that thread asks for its CPU time, for example.
 */
uint64_t ps_last_ran_ns(int tid);

/*
 * Does a thread of this process wait for something other than a CPU? By its `wchan`, for which the
 * kernel takes two thirds of the time that `sched` takes. False also where the kernel does not
 * tell.
 */
bool ps_is_asleep(int tid);

/*
 * CPU time of a thread of this process in clock ticks of 10 ms, and the part of it that it spent in
 * the kernel: by what it did when the kernel's own clock interrupted it.
 */
struct ps_cpu_ticks {
    uint64_t all, system;
};

/* False: the kernel does not tell, or there is no such thread. */
bool ps_cpu_ticks_of(int tid, struct ps_cpu_ticks *ticks);

#endif

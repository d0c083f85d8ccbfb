/* When a thread last had a CPU, as the kernel's scheduler notes it. */
#ifndef PS_LAST_RAN_H
#define PS_LAST_RAN_H

#include <stdint.h>

/*
 * ns by the scheduler's clock of that CPU, of a thread of this process; 0: the kernel does not tell (CONFIG_SCHED_DEBUG, which is always there
 * from Linux 6.15 on), or there is no such thread. Of two threads that had the same CPU the values compare. For a thread that runs the
 * scheduler notes it when it looks: when that thread asks for its CPU time, for example.
 */
uint64_t ps_last_ran_ns(int tid);

#endif

/*
 * Waits of threads: a row for each waiting method, the line of the application that called it, and
 * the line of the thread that ended the wait; and wait__stats. The hooks of the VM report waits
 * that ended, with the VM lock.
 */
#ifndef PS_WAITS_H
#define PS_WAITS_H

#include "table/feature.h"

extern const ps_feature ps_waits_feature;
extern ps_table ps_wait_table;

/* Its counters; times in ns. A hook adds to the first one last. */
enum {
    PS_WAIT_COUNT,
    PS_WAIT_BLOCKED,
    PS_WAIT_VM_LOCK,
    PS_WAIT_LONGEST, /* not summed */
};
/* Indexes into `at` of a row, whose own site is the place of the wait. Of WHAT only the name counts. */
enum { PS_WAIT_WHAT, PS_WAIT_HOLDER };

typedef struct ps_wait_times {
    uint64_t waits, blocked, vm_lock, longest;
} ps_wait_times;

/* Adds waits to the sum of several. */
void ps_waits_sum(ps_wait_times *sum, const ps_wait_times *more);
/* Adds waits to their row. holder: ps_site_none when it is not known. */
void ps_waits_add(const ps_site *what, const ps_site *place, const ps_site *holder,
                  const ps_wait_times *times);

/* The number of waits that are in no row, because there was no memory. VM lock held. */
extern uint64_t ps_waits_lost;

#endif

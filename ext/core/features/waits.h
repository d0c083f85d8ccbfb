/*
 * Waits of threads: a row for each waiting method, the line of the application that called it, and
 * the line of the thread that ended the wait; and wait__stats. The hooks of the VM report waits
 * that ended, with the VM lock.
 */
#ifndef PS_WAITS_H
#define PS_WAITS_H

#include "table/feature.h"
#include "table/routes.h"

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

/*
 * Adds waits to their row. holder: ps_site_none when it is not known. request: as for
 * ps_routes_row(). What has no memory for a row is in the overflow row, and counted there.
 */
void ps_waits_add(const ps_site *what, const ps_site *place, const ps_site *holder, ps_counted *request,
                  const ps_wait_times *times);
/* Counts a wait that could not be timed for lack of memory: the overflow row has it without a time. */
void ps_waits_add_untimed(void);

/*
 * Waits whose names the VM finds later. It has a number for each kind of them. What it has not taken
 * when the rows are cut is in a row named "(unnamed)", so each wait is in the interval in which it
 * ended. That row belongs to no request. All are called with the VM lock.
 */
enum { PS_WAITS_KEPT = 256 };
/* number: below PS_WAITS_KEPT. Any other: there is no room, and the waits get no names. */
void ps_waits_keep(uint32_t number, const ps_wait_times *times);
/* Returns what was kept under that number since it was last taken or cut. */
ps_wait_times ps_waits_take(uint32_t number);
/* Drops all of it. */
void ps_waits_drop(void);

#endif

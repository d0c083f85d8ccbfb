/*
 * The flush: each second the watcher fires, for every row that changed since the last one, the
 * difference, and then stats__done. It runs on the watcher's thread from memory of ours alone, so
 * it needs no VM lock and works while the application sleeps or sits in a long call.
 */
#ifndef PS_STATS_H
#define PS_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "rows.h"

/* Has any probe that the flush fires a listener? */
bool ps_stats_wanted(void);
/* Begins the interval that the next flush covers. */
void ps_stats_begin(void);
/* Fires the rows and stats__done, and begins the next interval. */
void ps_stats_flush(void);

/*
 * The same with what rows without a name grew by: it goes to the (overflow) row, and is counted as
 * dropped.
 */
void ps_stats_flush_all(void);
/*
 * Either, for a tracer that may attach meanwhile: at stats__done its interval would begin. Where
 * `covered` says then that hooks are missing, stats__done does not fire, and the next flush ends
 * the interval. False: it did not.
 */
bool ps_stats_flush_covered(bool all, bool (*covered)(void));
/* Are there rows that grew, and whose names the VM has not found yet? */
bool ps_stats_wait_for_names(void);

/* With the lock. Has the next flush fire nothing of what was counted until now. */
void ps_stats_mark(void);
/*
 * For a listener who has heard no flush yet: one without rows, which begins its interval, and one
 * with what was counted since the mark.
 */
void ps_stats_flush_since_mark(void);

/* Held by the flush. Whoever clears a table tries it, and never waits. */
bool ps_stats_try_lock(void);
void ps_stats_unlock(void);
/* In a forked child: what the parent had not fired yet is the parent's. */
void ps_stats_after_fork(void);

/* Counted by the hooks, fired with stats__done. */
extern uint64_t ps_details_suppressed;
extern uint64_t ps_samples_missed;
extern uint64_t ps_samples_taken;

/*
 * May exception__detail fire for this site? Ten times a second, and what is more is counted. The
 * hooks', with the VM lock.
 */
bool ps_details_allow(ps_row *row);

#endif

/*
 * The flush: each second the watcher fires each row that changed, with what it grew by since the
 * last flush, and then stats__done. It runs on the watcher's thread and reads only our own memory.
 * So it needs no VM lock, and works while the application sleeps or is in a long call.
 */
#ifndef PS_FLUSH_H
#define PS_FLUSH_H

#include <stdbool.h>
#include <stdint.h>

#include "table/table.h"

/* True when any probe that the flush fires has a listener. */
bool ps_flush_wanted(void);
/* Begins the interval that the next flush covers. */
void ps_flush_begin(void);
/* Fires the rows and stats__done, and begins the next interval. */
void ps_flush(void);

/*
 * Flushes, unless a tracer attached during the flush: at stats__done its interval would begin,
 * before its hooks are in. covered: called when the rows are fired; it returns false when hooks are
 * missing. Then stats__done does not fire, and this function returns false. The next flush ends the
 * interval.
 */
bool ps_flush_covered(bool (*covered)(void));

/* Makes the next flush fire nothing of what was counted until now. Called with the lock. */
void ps_flush_mark(void);
/*
 * For a listener that has received no flush yet. The first flush has no rows and begins the
 * listener's interval. The second one fires what was counted since the mark.
 */
void ps_flush_since_mark(void);

/* The flush holds this lock. A thread that clears a table tries it, and never waits for it. */
bool ps_flush_try_lock(void);
void ps_flush_unlock(void);
/*
 * For a forked child: drops what the parent had counted and not fired yet, which the parent fires,
 * and begins the child's interval.
 */
void ps_flush_after_fork(void);

/* For the function of a feature that fires a row (feature.h). */
/*
 * Returns what a counter grew by between its last firing and the cut. For a maximum, returns its
 * value.
 */
uint64_t ps_row_take(ps_row *row, int counter);
/* The same for a counter of ticks. */
uint64_t ps_row_take_ns(ps_row *row, int counter);
/* The site at a place of a row; ps_site_none when it is unknown. */
const ps_site *ps_site_or_none(const ps_site *const *place);

/* The hooks count these; stats__done fires them. */
extern uint64_t ps_details_suppressed, ps_samples_missed, ps_samples_taken;

#endif

/*
 * Slow calls: function__slow1ms, function__slow10ms, function__slow100ms. The tracer chooses the
 * threshold by the probe that it listens to. The end of a call costs one comparison with the lowest
 * threshold. A call that reached it fires every probe whose threshold it reached, with one span_id.
 *
 * Two calls need a span id: the call that fires, and the call around it, whose id the event
 * carries. The outer call lasts at least as long, so it fires when it ends, too, with that same id.
 * So a frame gets its number when its id is first needed, and not before.
 */
#ifndef PS_SLOW_CALLS_H
#define PS_SLOW_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/probe_set.h"
#include "calls/shadow_stack.h"

/* The lowest threshold with a listener, in ticks. UINT64_MAX when there is none. */
extern uint64_t ps_slow_threshold;

/*
 * wanted: a bit for each probe with a listener, as ps_watcher_wanted() returns it. Called after
 * ps_clock_choose(), because the threshold is in ticks.
 */
void ps_slow_listen(ps_probe_set wanted);

static inline bool ps_slow_reached(const ps_call *call)
{
    return PS_UNLIKELY(call->elapsed >= ps_slow_threshold);
}

/* Fires for a call that has just left this stack. */
void ps_slow_fire(const ps_row *row, ps_stack *stack, const ps_call *call, int outcome);

#endif

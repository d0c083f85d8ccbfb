/*
 * Slow calls: function__slow1ms, function__slow10ms, function__slow100ms. The tracer chooses the
 * threshold by the probe that it listens to; a call that ends costs one comparison unless it
 * reached the least of them, and then fires every one that it reached, with one span_id.
 *
 * Only a call that fires needs an id, and the one around it, whose id it names: that call lasts at
 * least as long, so it fires too when it ends, with that id. So a frame is given a number when it
 * is first asked for its id, and nothing before.
 */
#ifndef PS_SLOW_H
#define PS_SLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "atomic.h"
#include "stack.h"

/* The least threshold that is listened to, in ticks; UINT64_MAX when none is. */
extern uint64_t ps_slow_threshold;

/*
 * wanted: a bit for each probe that is listened to, as ps_watcher_wanted(). After the clock was
 * chosen.
 */
void ps_slow_listen(uint32_t wanted);

static inline bool ps_slow_reached(const ps_call *call)
{
    return PS_UNLIKELY(call->elapsed >= ps_slow_threshold);
}

/*
 * Fires for a call that has just left this stack. traceparent, request_id: "" and 0 when there is
 * none.
 */
void ps_slow_fire(const ps_row *row, ps_stack *stack, const ps_call *call, int outcome,
                  const char *traceparent, uint64_t request_id);

#endif

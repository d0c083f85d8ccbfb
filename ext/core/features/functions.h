/*
 * Functions and lines. The rows and counters of functions are those of shadow stacks
 * (shadow_stack.h). Here is the end of the hooks of calls and lines, in every language: what is
 * fired, and in which order. The row has its site.
 */
#ifndef PS_FUNCTIONS_H
#define PS_FUNCTIONS_H

#include <stdbool.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "calls/shadow_stack.h"
#include "features/slow_calls.h"
#include "table/feature.h"
#include "usdt/probe.h"

extern const ps_feature ps_functions_feature;

/* For a call that was just entered or resumed. */
void ps_functions_fire_entry(const ps_row *row, const ps_stack *stack, bool resumed);
/* For a call that has just left this stack. */
void ps_functions_fire_return(const ps_row *row, const ps_stack *stack, const ps_call *call, int outcome);

/*
 * The last step of an entry. entered: what ps_stack_enter() or the like returned. called: NULL for
 * a VM that tells frames apart. The call's time begins after its event, so that the tracer's time
 * is not in it.
 */
static inline void ps_functions_entered(const ps_row *row, const ps_stack *stack, ps_frame *entered,
                                        const ps_called *called, bool resumed)
{
    if (PS_ENABLED(FUNCTION__ENTRY)) ps_functions_fire_entry(row, stack, resumed);
    if (PS_UNLIKELY(!entered)) return;
    if (called) entered->called = *called;
    entered->start = ps_ticks();
}

/* The last step of an exit, for a call that has just left the stack. */
static inline void ps_functions_left(const ps_row *row, ps_stack *stack, const ps_call *call, int outcome)
{
    if (PS_ENABLED(FUNCTION__RETURN)) ps_functions_fire_return(row, stack, call, outcome);
    if (outcome != PS_OUTCOME_SUSPENDED && ps_slow_reached(call)) ps_slow_fire(row, stack, call, outcome);
}

static inline void ps_functions_fire_line(const ps_site *site, uint64_t line)
{
    struct ps_more_line more = {.path = site->path};
    ps_fire_line(site->name, site->file, line, &more);
}

#endif

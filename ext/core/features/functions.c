#include "features/functions.h"

#include "base/clock.h"
#include "usdt/probe.h"

void ps_functions_fire_entry(const ps_row *row, const ps_stack *stack, bool resumed)
{
    uint32_t depth = ps_stack_depth(stack);
    struct ps_more_function__entry more = {.path = row->site->path, .context_id = stack->id};
    ps_fire_function__entry(row->site->name, row->site->file, row->site->line, depth ? depth - 1 : 0, resumed,
                            &more);
}

void ps_functions_fire_return(const ps_row *row, const ps_stack *stack, const ps_call *call, int outcome)
{
    struct ps_more_function__return more = {.path = row->site->path,
                                            .context_id = stack->id,
                                            .depth = call->depth,
                                            .kind = call->resumed,
                                            .outcome = (uint64_t)outcome};
    ps_fire_function__return(row->site->name, row->site->file, row->site->line, ps_ticks_to_ns(call->elapsed),
                             ps_ticks_to_ns(call->self), &more);
}

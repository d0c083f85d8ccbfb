#include "features/functions.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "calls/here.h"
#include "calls/suspended_calls.h"
#include "features/slow_calls.h"
#include "table/flush.h"
#include "usdt/looking.h"
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

static bool fire_row(ps_row *row, const ps_row_subject *of)
{
    const ps_site *site = of->site;
    uint64_t calls = ps_row_take(row, PS_FUNCTION_CALLS), resumed = ps_row_take(row, PS_FUNCTION_RESUMED);
    uint64_t out_ns = PS_READ(row->function.out_ns);
    /*
     * A function that was taken out is fired each time, so that a tracer that came later learns of
     * it.
     */
    if (!calls && !resumed && !out_ns) return false;
    uint64_t self = ps_row_take_ns(row, PS_FUNCTION_SELF);
    struct ps_more_function__stats more = {
        .path = site->path,
        .elapsed = ps_row_take_ns(row, PS_FUNCTION_ELAPSED),
        .max = ps_row_take_ns(row, PS_FUNCTION_MAX),
        .raised = ps_row_take(row, PS_FUNCTION_RAISED),
        .resumed = resumed,
        .out = out_ns,
    };
    ps_fire_function__stats(site->name, site->file, site->line, calls, self, &more);
    return true;
}

static void listen(ps_probe_set wanted)
{
    ps_slow_listen(wanted);
    ps_here_listen((wanted & PS_BIT(FUNCTION__HERE)) != 0);
    ps_here_listen_to_requests((wanted & PS_BIT(STATS__BY_REQUEST)) != 0);
}

/* Nobody listens to calls any more: the returns of open calls will never be seen. */
static void forget(void)
{
    ps_stack_epoch++;
    ps_suspended_clear(&ps_suspended_calls);
}

const ps_feature ps_functions_feature = {
    .probes = PS_BIT(FUNCTION__ENTRY) | PS_BIT(FUNCTION__RETURN) | PS_SLOW_PROBES | PS_BIT(FUNCTION__STATS) |
              PS_BIT(FUNCTION__HERE),
    .with_request = PS_SLOW_PROBES,
    .kinds = 1u << PS_LOOK_FUNCTION,
    .table = &ps_function_table,
    .row_probe = PS_PROBE_FUNCTION__STATS,
    .events = PS_FUNCTION_CALLS,
    .maximum = PS_FUNCTION_MAX,
    .fire_row = fire_row,
    .lost = &ps_stack_lost,
    .listen = listen,
    .forget = forget,
};

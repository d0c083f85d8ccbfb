#include "features/backtraces.h"

#include "base/clock.h"
#include "features/exceptions.h"
#include "usdt/looking.h"
#include "usdt/probe.h"

void ps_backtraces_fire(const ps_backtrace *backtrace)
{
    if (!PS_ENABLED(BACKTRACE__DONE)) return;
    const ps_site *asked = backtrace->asked, *raised = backtrace->raised;
    struct ps_more_backtrace__done more = {
        .path = asked->path,
        .function = asked->name,
        .type = raised->name,
        .raise_file = raised->file,
        .raise_line = raised->line,
    };
    /* A tracer cannot read a page that was never touched. */
    (void)*(volatile const char *)backtrace->kind;
    ps_fire_backtrace__done(backtrace->kind, asked->file, asked->line, backtrace->depth,
                            ps_ticks_to_ns(backtrace->ticks), &more);
}

void ps_backtraces_done(const ps_backtrace *backtrace, ps_row *row, ps_counted *request)
{
    if (row) ps_exceptions_formatted(row, backtrace->asked, backtrace->ticks, request);
    ps_backtraces_fire(backtrace);
}

int ps_nearest_own_line(ps_line_walk *walk, void *stack, int *other)
{
    int nearest = -1;
    for (int i = 0; i < PS_LINES_LOOKED_AT; i++) {
        ps_line_kind kind = walk(stack, i);
        if (kind == PS_NO_LINE) break;
        if (kind == PS_OWN_LINE) return i;
        if (kind == PS_OTHER_LINE && nearest < 0) nearest = i;
    }
    if (other) *other = nearest;
    return -1;
}

const ps_feature ps_backtraces_feature = {
    .probes = PS_BIT(BACKTRACE__DONE) | PS_BIT(EXCEPTION__STATS),
    .kinds = 1u << PS_LOOK_BACKTRACE,
    .taken_out_with = &ps_exceptions_feature,
};

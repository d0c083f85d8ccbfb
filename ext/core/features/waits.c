#include "features/waits.h"

#include "base/atomic.h"
#include "table/flush.h"
#include "usdt/looking.h"
#include "usdt/probe.h"

ps_table ps_wait_table;
uint64_t ps_waits_lost;

void ps_waits_sum(ps_wait_times *sum, const ps_wait_times *more)
{
    sum->waits += more->waits;
    sum->blocked += more->blocked;
    sum->vm_lock += more->vm_lock;
    if (more->longest > sum->longest) sum->longest = more->longest;
}

void ps_waits_add(const ps_site *what, const ps_site *place, const ps_site *holder,
                  const ps_wait_times *times)
{
    ps_row *row = ps_table_row(&ps_wait_table, (uintptr_t)what, (uintptr_t)place, (uintptr_t)holder);
    if (!row->site && !ps_row_is_overflow(&ps_wait_table, row)) {
        PS_WRITE_RELEASE(row->at[PS_WAIT_WHAT], what);
        PS_WRITE_RELEASE(row->at[PS_WAIT_HOLDER], holder);
        PS_WRITE_RELEASE(row->site, place);
    }
    uint64_t *count = row->count;
    PS_ADD(count[PS_WAIT_BLOCKED], times->blocked);
    PS_ADD(count[PS_WAIT_VM_LOCK], times->vm_lock);
    if (times->longest > PS_READ(count[PS_WAIT_LONGEST])) PS_WRITE(count[PS_WAIT_LONGEST], times->longest);
    PS_ADD_LAST(count[PS_WAIT_COUNT], times->waits);
}

static bool fire_row(ps_row *row, const ps_row_subject *of)
{
    const ps_site *place = of->site;
    uint64_t waits = ps_row_take(row, PS_WAIT_COUNT);
    if (!waits) return false;
    bool is_overflow = place == &ps_site_overflow;
    const ps_site *what = is_overflow ? place : ps_site_or_none(&of->places->at[PS_WAIT_WHAT]);
    const ps_site *holder = ps_site_or_none(&of->places->at[PS_WAIT_HOLDER]);
    struct ps_more_wait__stats more = {
        .path = place->path,
        .function = place->name,
        .vm_lock = ps_row_take(row, PS_WAIT_VM_LOCK),
        .longest = ps_row_take(row, PS_WAIT_LONGEST),
        .holder = holder->name,
        .holder_file = holder->file,
        .holder_line = holder->line,
        .holder_id = holder == &ps_site_none ? 0 : (uintptr_t)holder,
    };
    ps_fire_wait__stats(what->name, place->file, place->line, waits, ps_row_take(row, PS_WAIT_BLOCKED),
                        &more);
    return true;
}

const ps_feature ps_waits_feature = {
    .probes = PS_BIT(WAIT__STATS),
    .kinds = 1u << PS_LOOK_WAIT,
    .table = &ps_wait_table,
    .row_probe = PS_PROBE_WAIT__STATS,
    .events = PS_WAIT_COUNT,
    .maximum = PS_WAIT_LONGEST,
    .fire_row = fire_row,
    .lost = &ps_waits_lost,
};

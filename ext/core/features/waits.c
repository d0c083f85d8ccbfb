#include "features/waits.h"

#include "base/atomic.h"
#include "table/flush.h"
#include "usdt/looking.h"
#include "usdt/probe.h"

static ps_table by_route;
ps_table ps_wait_table = {.routes = &by_route};

static struct {
    ps_row *row; /* that counts them when the rows are cut; NULL: none was kept, or there is no memory */
    /* A hook adds to these, and the VM or the watcher takes them. */
    ps_wait_times kept[PS_WAITS_KEPT];
} unnamed;

/* NULL: there is no memory for it. */
static ps_row *row_of(const ps_site *what, const ps_site *place, const ps_site *holder)
{
    if (what == &ps_site_overflow) place = what;
    ps_row *row = ps_table_try_row(&ps_wait_table, (uintptr_t)what, (uintptr_t)place, (uintptr_t)holder);
    if (row && !row->site) {
        PS_WRITE_RELEASE(row->at[PS_WAIT_WHAT], what);
        PS_WRITE_RELEASE(row->at[PS_WAIT_HOLDER], holder);
        PS_WRITE_RELEASE(row->site, place);
    }
    return row;
}

/* Called for waits that the overflow row counts. */
static ps_row *overflow(uint64_t waits)
{
    ps_row *row = &ps_wait_table.overflow;
    PS_ADD(ps_wait_table.overflowed, waits);
    if (!row->site) PS_WRITE_RELEASE(row->site, &ps_site_overflow);
    return row;
}

void ps_waits_add(const ps_site *what, const ps_site *place, const ps_site *holder, ps_counted *request,
                  const ps_wait_times *times)
{
    ps_row *row = row_of(what, place, holder);
    if (!row) row = overflow(times->waits);
    uint64_t *count = ps_routes_row(&ps_wait_table, row, request)->count;
    PS_ADD(count[PS_WAIT_BLOCKED], times->blocked);
    PS_ADD(count[PS_WAIT_VM_LOCK], times->vm_lock);
    if (times->longest > PS_READ(count[PS_WAIT_LONGEST])) PS_WRITE(count[PS_WAIT_LONGEST], times->longest);
    PS_ADD_LAST(count[PS_WAIT_COUNT], times->waits);
}

void ps_waits_add_untimed(void)
{
    ps_row *row = overflow(1);
    PS_ADD_LAST(row->count[PS_WAIT_COUNT], 1);
}

static const ps_site *no_name(void)
{
    static const char name[] = "(unnamed)";
    return ps_site_intern(name, sizeof(name) - 1, "", 0, 0);
}

/* Adds `waits` last, so whoever takes a wait also takes its times. */
void ps_waits_keep(uint32_t number, const ps_wait_times *times)
{
    if (!unnamed.row) PS_WRITE_RELEASE(unnamed.row, row_of(no_name(), &ps_site_none, &ps_site_none));
    if (!unnamed.row || number >= PS_WAITS_KEPT) {
        ps_waits_add(no_name(), &ps_site_none, &ps_site_none, NULL, times);
        return;
    }
    ps_wait_times *kept = &unnamed.kept[number];
    PS_FETCH_ADD(kept->blocked, times->blocked);
    PS_FETCH_ADD(kept->vm_lock, times->vm_lock);
    if (times->longest > PS_READ(kept->longest)) PS_WRITE(kept->longest, times->longest);
    __atomic_fetch_add(&kept->waits, times->waits, __ATOMIC_RELEASE);
}

ps_wait_times ps_waits_take(uint32_t number)
{
    ps_wait_times *kept = &unnamed.kept[number], taken = {0};
    if (!PS_READ(kept->waits)) return taken;
    taken.waits = PS_EXCHANGE(kept->waits, 0);
    taken.blocked = PS_EXCHANGE(kept->blocked, 0);
    taken.vm_lock = PS_EXCHANGE(kept->vm_lock, 0);
    taken.longest = PS_EXCHANGE(kept->longest, 0);
    return taken;
}

void ps_waits_drop(void)
{
    for (uint32_t i = 0; i < PS_WAITS_KEPT; i++) unnamed.kept[i] = (ps_wait_times){0};
}

static void cut_rest(void)
{
    ps_row *row = PS_READ_ACQUIRE(unnamed.row);
    for (uint32_t i = 0; row && i < PS_WAITS_KEPT; i++) {
        ps_wait_times taken = ps_waits_take(i);
        row->cut[PS_WAIT_COUNT] += taken.waits;
        row->cut[PS_WAIT_BLOCKED] += taken.blocked;
        row->cut[PS_WAIT_VM_LOCK] += taken.vm_lock;
        if (taken.longest > row->cut[PS_WAIT_LONGEST]) row->cut[PS_WAIT_LONGEST] = taken.longest;
    }
}

static void forget(void)
{
    unnamed.row = NULL;
    ps_waits_drop();
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
        .request = of->request->name,
        .request_number = of->request->line,
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
    .cut_rest = cut_rest,
    .forget = forget,
};

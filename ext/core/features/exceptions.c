#include "features/exceptions.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/thread_id.h"
#include "table/flush.h"
#include "usdt/looking.h"
#include "usdt/probe.h"

static ps_table by_route;
ps_table ps_exception_table = {.routes = &by_route};

/* ---- Rows ---- */

static void name_places(ps_row *row, ps_raise_places *places, const void *raise)
{
    const ps_site *function = NULL, *app = NULL;
    places(raise, &function, &app);
    PS_WRITE_RELEASE(row->at[PS_EXCEPTION_APP_AT], app);
    PS_WRITE_RELEASE(row->at[PS_EXCEPTION_RAISED_IN], function);
}

ps_row *ps_exceptions_row(const ps_site *raised, const ps_site *split, ps_raise_places *places,
                          const void *raise)
{
    ps_row *row = ps_table_row(&ps_exception_table, (uintptr_t)raised, (uintptr_t)split, 0);
    if (ps_row_is_overflow(&ps_exception_table, row)) return row;
    /* When there was no memory for its name, a row that is not split is one of many functions. */
    bool of_one_function = split || raised != &ps_site_overflow;
    if (places && of_one_function && !row->at[PS_EXCEPTION_RAISED_IN]) name_places(row, places, raise);
    /* Last: without a GIL another thread may use the row as soon as it has a site. */
    if (!row->site) PS_WRITE_RELEASE(row->site, raised);
    return row;
}

/* ---- Counters ---- */

static uint64_t *counted(ps_row *row, ps_counted *request)
{
    return ps_routes_row(&ps_exception_table, row, request)->count;
}

static void add_depth(uint64_t *count, uint32_t depth, uint32_t more, uint64_t cost)
{
    PS_ADD(count[PS_EXCEPTION_COST], cost);
    PS_ADD(count[PS_EXCEPTION_DEPTH], more);
    if (depth > PS_READ(count[PS_EXCEPTION_DEPTH_MAX])) PS_WRITE(count[PS_EXCEPTION_DEPTH_MAX], depth);
}

void ps_exceptions_raised(ps_row *row, uint32_t depth, uint64_t cost, ps_counted *request)
{
    uint64_t *count = counted(row, request);
    add_depth(count, depth, depth, cost);
    PS_ADD_LAST(count[PS_EXCEPTION_RAISED], 1);
}

void ps_exceptions_deeper(ps_row *row, uint32_t depth, uint32_t more, uint64_t cost, ps_counted *request)
{
    add_depth(counted(row, request), depth, more, cost);
}

void ps_exceptions_rescued_at(ps_row *row, const ps_site *at)
{
    PS_WRITE_RELEASE(row->at[PS_EXCEPTION_RESCUED_AT], at);
}

void ps_exceptions_rescued(ps_row *row, const ps_site *at, bool at_once, ps_counted *request)
{
    uint64_t *count = counted(row, request);
    if (at) ps_exceptions_rescued_at(row, at);
    if (at_once) PS_ADD(count[PS_EXCEPTION_RESCUED_AT_ONCE], 1);
    PS_ADD_LAST(count[PS_EXCEPTION_RESCUED], 1);
}

void ps_exceptions_formatted(ps_row *row, const ps_site *asked, uint64_t ticks, ps_counted *request)
{
    /* There is no asking site when the VM itself reports an exception that nobody handles. */
    if (asked != &ps_site_none) PS_WRITE_RELEASE(row->at[PS_EXCEPTION_ASKED_AT], asked);
    PS_ADD_LAST(counted(row, request)[PS_EXCEPTION_STRINGS], ticks);
}

/* ---- Events ---- */

void ps_exceptions_fire_raise(const ps_row *row, uint32_t depth, uint64_t cost)
{
    const ps_site *site = row->site;
    if (!site) return;
    struct ps_more_exception__raise more = {.path = site->path,
                                            .function =
                                                ps_site_or_none(&row->at[PS_EXCEPTION_RAISED_IN])->name,
                                            .thread_id = ps_thread_id()};
    ps_fire_exception__raise(site->name, site->file, site->line, depth, ps_ticks_to_ns(cost), &more);
}

void ps_exceptions_fire_rescue(const ps_row *row, const ps_site *at, uint64_t since_raise, uint32_t unwound)
{
    const ps_site *site = row->site;
    if (!site) return;
    if (!at) at = &ps_site_none;
    struct ps_more_exception__rescue more = {
        .path = at->path, .function = at->name, .raise_file = site->file, .raise_line = site->line};
    ps_fire_exception__rescue(site->name, at->file, at->line, ps_ticks_to_ns(since_raise), unwound, &more);
}

bool ps_exceptions_detail_due(ps_row *row)
{
    if (!row->site) return false;
    uint32_t second = (uint32_t)(ps_monotonic_ns() / 1000000000u);
    if (row->exception.window != second) {
        row->exception.window = second;
        row->exception.details = 0;
    }
    if (row->exception.details++ < PS_DETAILS_PER_SECOND) return true;
    PS_ADD(ps_details_suppressed, 1);
    return false;
}

void ps_exceptions_fire_detail(const ps_row *row, uint32_t depth, uint64_t cost, const char *message,
                               const ps_span *span)
{
    char traceparent[PS_TRACEPARENT_BUFFER];
    const ps_site *site = row->site, *app = ps_site_or_none(&row->at[PS_EXCEPTION_APP_AT]);
    struct ps_more_exception__detail more = {
        .path = site->path,
        .function = ps_site_or_none(&row->at[PS_EXCEPTION_RAISED_IN])->name,
        .thread_id = ps_thread_id(),
        .message = message,
        .traceparent = ps_span_text(traceparent, span),
        .app_file = app->file,
        .app_line = app->line,
    };
    ps_fire_exception__detail(site->name, site->file, site->line, depth, ps_ticks_to_ns(cost), &more);
}

/* ---- The flush ---- */

static bool fire_row(ps_row *row, const ps_row_subject *of)
{
    const ps_site *site = of->site, *const *at = of->places->at;
    uint64_t raised = ps_row_take(row, PS_EXCEPTION_RAISED);
    uint64_t rescued = ps_row_take(row, PS_EXCEPTION_RESCUED);
    uint64_t strings = ps_row_take_ns(row, PS_EXCEPTION_STRINGS);
    if (!raised && !rescued && !strings) return false;
    const ps_site *rescue = ps_site_or_none(&at[PS_EXCEPTION_RESCUED_AT]);
    const ps_site *asked = ps_site_or_none(&at[PS_EXCEPTION_ASKED_AT]);
    const ps_site *app = ps_site_or_none(&at[PS_EXCEPTION_APP_AT]);
    struct ps_more_exception__stats more = {
        .path = site->path,
        .function = ps_site_or_none(&at[PS_EXCEPTION_RAISED_IN])->name,
        .depth_sum = ps_row_take(row, PS_EXCEPTION_DEPTH),
        .depth_max = ps_row_take(row, PS_EXCEPTION_DEPTH_MAX),
        .string_cost = strings,
        .rescued = rescued,
        .rescue_file = rescue->file,
        .rescue_line = rescue->line,
        .asked_file = asked->file,
        .asked_line = asked->line,
        .app_file = app->file,
        .app_line = app->line,
        .rescued_at_once = ps_row_take(row, PS_EXCEPTION_RESCUED_AT_ONCE),
        .request = of->request->name,
        .request_number = of->request->line,
    };
    ps_fire_exception__stats(site->name, site->file, site->line, raised,
                             ps_row_take_ns(row, PS_EXCEPTION_COST), &more);
    return true;
}

const ps_feature ps_exceptions_feature = {
    .probes = PS_BIT(EXCEPTION__RAISE) | PS_BIT(EXCEPTION__DETAIL) | PS_BIT(EXCEPTION__RESCUE) |
              PS_BIT(EXCEPTION__STATS),
    .with_request = PS_BIT(EXCEPTION__DETAIL),
    .kinds = 1u << PS_LOOK_EXCEPTION | 1u << PS_LOOK_BRACKET,
    .table = &ps_exception_table,
    .row_probe = PS_PROBE_EXCEPTION__STATS,
    .events = PS_EXCEPTION_RAISED,
    .maximum = PS_EXCEPTION_DEPTH_MAX,
    .fire_row = fire_row,
};

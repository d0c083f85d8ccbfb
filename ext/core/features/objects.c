#include "features/objects.h"

#include "table/flush.h"
#include "usdt/looking.h"

static ps_table by_route;
ps_table ps_object_table = {.routes = &by_route};

static bool fire_row(ps_row *row, const ps_row_subject *of)
{
    const ps_site *site = of->site;
    uint64_t count = ps_row_take(row, PS_OBJECT_COUNT);
    if (!count) return false;
    struct ps_more_object__stats more = {
        .path = site->path, .request = of->request->name, .request_number = of->request->line};
    ps_fire_object__stats(site->name, site->file, site->line, count, ps_row_take(row, PS_OBJECT_BYTES),
                          &more);
    return true;
}

const ps_feature ps_objects_feature = {
    .probes = PS_BIT(OBJECT__ALLOC) | PS_BIT(OBJECT__STATS),
    .kinds = 1u << PS_LOOK_OBJECT,
    .table = &ps_object_table,
    .row_probe = PS_PROBE_OBJECT__STATS,
    .events = PS_OBJECT_COUNT,
    .maximum = -1,
    .fire_row = fire_row,
};

/*
 * Allocations: a row for each class and place. The part of an allocation hook that runs once the row
 * is known is here.
 */
#ifndef PS_OBJECTS_H
#define PS_OBJECTS_H

#include <stddef.h>

#include "base/atomic.h"
#include "table/feature.h"
#include "table/routes.h"
#include "usdt/probe.h"

extern const ps_feature ps_objects_feature;
extern ps_table ps_object_table;

/* Its counters. A hook adds to the first one last. */
enum { PS_OBJECT_COUNT, PS_OBJECT_BYTES };

/*
 * Counts an allocation, and fires object__alloc if a tracer listens. When the row has no name yet,
 * the event has no place. request: as for ps_routes_row().
 */
static inline void ps_objects_add(ps_row *row, size_t size, ps_counted *request)
{
    uint64_t *count = ps_routes_row(&ps_object_table, row, request)->count;
    PS_ADD(count[PS_OBJECT_BYTES], size);
    PS_ADD_LAST(count[PS_OBJECT_COUNT], 1);
    if (!PS_ENABLED(OBJECT__ALLOC)) return;
    const ps_site *site = row->site ? row->site : &ps_site_none;
    struct ps_more_object__alloc more = {.path = site->path};
    ps_fire_object__alloc(site->name, site->file, site->line, size, &more);
}

#endif

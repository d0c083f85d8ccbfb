#include "table/routes.h"

#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "base/hash.h"
#include "base/memory.h"
#include "table/feature.h"
#include "table/row_ref.h"
#include "usdt/probe.h"

/*
 * The maximum number of distinct routes until the last tracer leaves. Where no framework tells a
 * template, the routes are paths, and clients can make up any number of paths.
 */
enum { ROUTES_MAX = 1024 };

/* The features whose tables are split by route. Found when the first row is split. */
static const ps_feature *splits[PS_SPLIT_TABLES];
static int split_count;

/* The rows of one request whose route is not known yet. */
struct ps_tally {
    ps_row_ref first[PS_SPLIT_TABLES]; /* of the list of its rows */
    struct ps_tally *next;
};
static struct ps_tally *spare;

/* Open addressing, by the hash of the name. Half of the places stay empty. */
static const ps_site *routes[ROUTES_MAX * 2];
static uint32_t route_count;

static struct ps_tally *tally_of(ps_counted *request)
{
    if (request->tally) return request->tally;
    struct ps_tally *tally = spare;
    if (tally) spare = tally->next;
    else tally = ps_memory_take(sizeof(*tally));
    if (!tally) return NULL;
    memset(tally->first, 0, sizeof(tally->first));
    return request->tally = tally;
}

/*
 * There may be a row for each route and each place. That can be more than memory and a tracer's
 * maps hold. While less than seven eighths of the room is used, every row is made. After that a row
 * is made only when its count reaches a certain part of the total count. The less room is left, the
 * larger that part. So there is always room for a large row. The counts of rows that are not made
 * go to one row of the route, "(overflow)".
 */
enum { BYTES_FOR_A_ROW = 800, FREE_EIGHTHS = 7, REFUSED_MAX = 4096 };
static struct room {
    uint32_t cleared; /* `cleared` of the table when this began */
    uint32_t rows;    /* rows in the table of routes */
    uint64_t all;     /* total count */
    /*
     * The counts of rows that were not made, by the rows' hashes. Rows with the same hash add up,
     * and are made earlier than they should.
     */
    uint32_t refused[REFUSED_MAX];
} rooms[PS_SPLIT_TABLES];

static struct room *room_of(int table)
{
    struct room *room = &rooms[table];
    uint32_t cleared = splits[table]->table->cleared;
    if (PS_UNLIKELY(room->cleared != cleared)) {
        memset(room, 0, sizeof(*room));
        room->cleared = cleared;
    }
    return room;
}

static bool has_room(struct room *room, const ps_row *row, const ps_site *label, uint64_t size)
{
    uint64_t most = ps_memory_limit() / BYTES_FOR_A_ROW;
    if (room->rows < most * FREE_EIGHTHS / 8) return true;
    if (room->rows >= most) return false;
    const uintptr_t key[] = {(uintptr_t)row, (uintptr_t)label};
    uint32_t *refused = &room->refused[ps_fnv1a((const char *)key, sizeof(key)) % REFUSED_MAX];
    uint64_t came = *refused + size;
    bool large = came > room->all / (most - room->rows);
    /* A count that needs 64 bits would have made its row long before. */
    *refused = large ? 0 : (uint32_t)came;
    return large;
}

/* Returns the row for counts that have no row of their own. of: a route or a tally. */
static ps_row *rest_of(int table, const void *of)
{
    return ps_table_row(splits[table]->table->routes, 0, (uintptr_t)of, 0);
}

static PS_APART void find_splits(void)
{
    for (const ps_feature *const *each = ps_features; *each; each++)
        if ((*each)->table && (*each)->table->routes) splits[split_count++] = *each;
}

static int number_of(const ps_table *table)
{
    if (PS_UNLIKELY(!split_count)) find_splits();
    int i = 0;
    while (splits[i]->table != table) i++;
    return i;
}

static void keep(struct ps_tally *tally, int table, ps_row *row)
{
    const ps_table *whole = splits[table]->table;
    if (ps_row_is_overflow(whole->routes, row)) return;
    row->route.listed = true;
    row->route.next = ps_row_of(whole, tally->first[table]);
    tally->first[table] = ps_row_keep(whole, row);
}

/* row: NULL for the row of the rest. size: the count that is to be added. */
static ps_row *row_of_route(int table, const ps_row *row, const ps_site *label, uint64_t size)
{
    ps_table *routes = splits[table]->table->routes;
    struct room *room = room_of(table);
    room->all += size;
    ps_row *found = ps_table_find(routes, (uintptr_t)row, (uintptr_t)label, 0);
    if (found) return found;
    ps_row *rest = rest_of(table, label); /* made first, so that it exists when memory is full */
    if (row && has_room(room, row, label, size))
        found = ps_table_try_row(routes, (uintptr_t)row, (uintptr_t)label, 0);
    if (found) {
        room->rows++;
        found->route.whole = row;
    } else {
        found = rest;
    }
    if (!found->site) PS_WRITE_RELEASE(found->site, label);
    return found;
}

/* A request that began under an earlier tracer may have a label whose name was freed. */
static void drop_stale_label(ps_counted *request)
{
    if (PS_UNLIKELY(request->label && request->generation != ps_sites_generation)) request->label = NULL;
}

ps_row *ps_routes_find_row(ps_table *table, ps_row *row, ps_counted *request)
{
    if (ps_row_is_overflow(table, row)) return row;
    drop_stale_label(request);
    int number = number_of(table);
    if (request->label) return row_of_route(number, row, request->label, 1);
    struct ps_tally *tally = tally_of(request);
    if (!tally) return row;
    /* The row of the rest is made first, so that it exists when memory is full. */
    if (!ps_row_of(table, tally->first[number])) keep(tally, number, rest_of(number, tally));
    ps_row *found = ps_table_try_row(table->routes, (uintptr_t)row, (uintptr_t)tally, 0);
    if (!found) return rest_of(number, tally);
    if (!found->route.listed) {
        found->route.whole = row;
        keep(tally, number, found);
    }
    return found;
}

/* Adds the counts of `row` to the route's row. */
static void give(int table, ps_row *row, const ps_site *label)
{
    /* Skips an empty row of the rest, which was made in advance. */
    if (memcmp(row->count, row->sent, sizeof(row->count)) == 0) return;
    int events = splits[table]->events;
    uint64_t size = row->count[events] - row->sent[events];
    ps_row *to = row_of_route(table, row->route.whole, label, size);
    for (int i = PS_ROW_COUNTERS - 1; i >= 0; i--) {
        uint64_t count = row->count[i] - row->sent[i];
        if (i == splits[table]->maximum) {
            if (row->count[i] > PS_READ(to->count[i])) PS_WRITE(to->count[i], row->count[i]);
            row->count[i] = 0;
        } else {
            /* In descending order, so that the first counter is added to last. */
            PS_ADD_LAST(to->count[i], count);
            row->sent[i] = row->count[i];
        }
    }
}

const ps_site *ps_routes_label(const char *method, const char *route)
{
    static const ps_site others = {"(others)", "", "", 1};
    char text[PS_NAME_MAX + 1], label[PS_NAME_MAX + 1];
    snprintf(text, sizeof(text), "%s %s", method, route);
    size_t size = ps_copy_utf8(label, sizeof(label), text, strlen(text));
    uint64_t hash = ps_fnv1a(label, size), place = (hash ^ hash >> 32) % (ROUTES_MAX * 2);
    for (; routes[place]; place = (place + 1) % (ROUTES_MAX * 2))
        if (strcmp(routes[place]->name, label) == 0) return routes[place];
    if (route_count == ROUTES_MAX) return &others;
    const ps_site *site = ps_site_intern(label, size, "", 0, ps_number_of_text(label, size));
    if (site == &ps_site_overflow) return site;
    routes[place] = site;
    route_count++;
    return site;
}

void ps_routes_known(ps_counted *request, const char *method, const char *route)
{
    drop_stale_label(request);
    /* No tracer listens, so the name is not worth its memory. */
    if (request->label || !(request->tally || PS_ENABLED(STATS__BY_REQUEST))) return;
    request->label = ps_routes_label(method, route);
    request->generation = ps_sites_generation;
    for (int i = 0; request->tally && i < split_count; i++) {
        ps_row *row = ps_row_of(splits[i]->table, request->tally->first[i]);
        request->tally->first[i] = (ps_row_ref){0};
        while (row) {
            ps_row *next = row->route.next;
            row->route.listed = false;
            give(i, row, request->label);
            row = next;
        }
    }
}

void ps_routes_end(ps_counted *request)
{
    if (!request->tally) return;
    request->tally->next = spare;
    spare = request->tally;
    request->tally = NULL;
}

void ps_routes_clear(void)
{
    route_count = 0;
    memset(routes, 0, sizeof(routes));
    while (spare) {
        struct ps_tally *tally = spare;
        spare = tally->next;
        ps_memory_give(tally, sizeof(*tally));
    }
}

#include "by_request.h"

#include <stdio.h>
#include <string.h>

#include "atomic.h"
#include "hash.h"
#include "memory.h"
#include "probe.h"

/* Distinct routes until the last tracer leaves: where no framework tells a template they are paths, of which whoever asks makes more. */
enum { ROUTES_MAX = 1024 };
enum { EXCEPTIONS, OBJECTS, SAMPLED, TABLES };

static ps_table *const tables[TABLES] = {&ps_exceptions, &ps_objects, &ps_sampled};
/* The counter that is no sum. */
static const int maximum[TABLES] = {PS_EXCEPTION_DEPTH_MAX, -1, -1};

/* The rows of one request whose route is not known yet. */
struct ps_tally {
    struct {
        ps_row *first;
        uint32_t cleared; /* of the table, when `first` was added */
    } of[TABLES];
    struct ps_tally *next;
};
static struct ps_tally *spare;

static const ps_site *routes[ROUTES_MAX];
static uint32_t route_count;

/* Ends a list, so that a row that is in one can be told from others. */
static ps_row last;

static struct ps_tally *tally_of(ps_counted *request)
{
    if (request->tally) return request->tally;
    struct ps_tally *tally = spare;
    if (tally) spare = tally->next;
    else tally = ps_memory_take(sizeof(*tally));
    if (!tally) return NULL;
    for (int i = 0; i < TABLES; i++) tally->of[i].first = &last;
    return request->tally = tally;
}

static int number_of(const ps_table *table)
{
    int i = 0;
    while (tables[i] != table) i++;
    return i;
}

static void keep(struct ps_tally *tally, int table, ps_row *row)
{
    uint32_t cleared = tables[table]->cleared;
    if (tally->of[table].cleared != cleared) tally->of[table].first = &last;
    tally->of[table].cleared = cleared;
    row->u.next = tally->of[table].first;
    tally->of[table].first = row;
}

static ps_row *row_of_route(ps_table *table, const ps_row *row, const ps_site *label)
{
    ps_row *found = ps_table_row(table->by_request, (uintptr_t)row, (uintptr_t)label, 0);
    if (!found->site) PS_WRITE_RELEASE(found->site, label);
    return found;
}

/* A request that began under an earlier tracer may have a label whose name is gone. */
static void drop_stale_label(ps_counted *request)
{
    if (PS_UNLIKELY(request->label && request->generation != ps_sites_generation)) request->label = NULL;
}

ps_row *ps_by_request_row(ps_table *table, ps_row *row, ps_counted *request)
{
    if (ps_row_is_overflow(table, row)) return row;
    drop_stale_label(request);
    if (request->label) return row_of_route(table, row, request->label);
    struct ps_tally *tally = tally_of(request);
    if (!tally) return row;
    ps_row *found = ps_table_row(table->by_request, (uintptr_t)row, (uintptr_t)tally, 0);
    if (!found->u.next && !ps_row_is_overflow(table->by_request, found)) keep(tally, number_of(table), found);
    return found;
}

/* Adds what the row has to the one of the route. */
static void give(int table, ps_row *row, const ps_site *label)
{
    ps_row *to = row_of_route(tables[table], (const ps_row *)row->key[0], label);
    for (int i = PS_ROW_COUNTERS - 1; i >= 0; i--) {
        uint64_t count = row->count[i] - row->sent[i];
        if (i == maximum[table]) {
            if (row->count[i] > PS_READ(to->count[i])) PS_WRITE(to->count[i], row->count[i]);
            row->count[i] = 0;
        } else {
            /* The first counter is the one that is added to last. */
            PS_ADD_LAST(to->count[i], count);
            row->sent[i] = row->count[i];
        }
    }
}

/* So small that it stays what it is as a double, which is what JSON's numbers are to many. */
static uint64_t number_of_label(const char *label, size_t size)
{
    return (ps_fnv1a(label, size) >> 16) | 1;
}

/* Its line is a number. */
static const ps_site *label_of(const char *method, const char *route)
{
    static const ps_site others = {"(others)", "", "", 1};
    char text[PS_NAME_MAX + 1], label[PS_NAME_MAX + 1];
    snprintf(text, sizeof(text), "%s %s", method, route);
    size_t size = ps_copy_utf8(label, sizeof(label), text, strlen(text));
    for (uint32_t i = 0; i < route_count; i++)
        if (strcmp(routes[i]->name, label) == 0) return routes[i];
    if (route_count == ROUTES_MAX) return &others;
    const ps_site *site = ps_site_intern(label, size, "", 0, number_of_label(label, size));
    if (site != &ps_site_overflow) routes[route_count++] = site;
    return site;
}

void ps_by_request_known(ps_counted *request, const char *method, const char *route)
{
    drop_stale_label(request);
    /* Nobody asks: a name is not worth its memory. */
    if (request->label || !(request->tally || PS_ENABLED(STATS__BY_REQUEST))) return;
    request->label = label_of(method, route);
    request->generation = ps_sites_generation;
    for (int i = 0; request->tally && i < TABLES; i++) {
        ps_row *row = request->tally->of[i].cleared == tables[i]->cleared ? request->tally->of[i].first : &last;
        request->tally->of[i].first = &last;
        while (row != &last) {
            ps_row *next = row->u.next;
            row->u.next = NULL;
            give(i, row, request->label);
            row = next;
        }
    }
}

void ps_by_request_end(ps_counted *request)
{
    if (!request->tally) return;
    request->tally->next = spare;
    spare = request->tally;
    request->tally = NULL;
}

void ps_by_request_clear(void)
{
    route_count = 0;
    while (spare) {
        struct ps_tally *tally = spare;
        spare = tally->next;
        ps_memory_give(tally, sizeof(*tally));
    }
}

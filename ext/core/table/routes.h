/*
 * Statistics of each route, while a tracer listens to stats__by_request. What would be added to a
 * row during a request goes to a row for the request's route instead.
 *
 * Many frameworks tell the route only when the request is over. Until the route is known, the
 * request adds to rows of its own, which are not fired. Then their counts move to the route's rows.
 * The request's rows are kept for the next request, so there are only as many sets of them as there
 * are requests at a time.
 *
 * Called with the VM lock.
 */
#ifndef PS_ROUTES_H
#define PS_ROUTES_H

#include "base/atomic.h"
#include "table/table.h"

/* The maximum number of tables that are split. */
enum { PS_SPLIT_TABLES = 4 };

struct ps_tally;

/* The state of one request in these statistics. Zeros at the start. */
typedef struct ps_counted {
    const ps_site *label; /* method and route; NULL until they are known */
    struct ps_tally *tally;
    uint32_t generation; /* ps_sites_generation when the label was made */
    const ps_site *here; /* ps_request_label(); NULL: not made yet */
    uint32_t here_generation;
} ps_counted;

/*
 * Returns the row that counts instead of `row`. request: the current one. It is NULL when there is
 * none or no tracer listens to stats__by_request: then `row` itself counts.
 */
ps_row *ps_routes_find_row(ps_table *table, ps_row *row, ps_counted *request);
static inline ps_row *ps_routes_row(ps_table *table, ps_row *row, ps_counted *request)
{
    return PS_UNLIKELY(request != NULL) ? ps_routes_find_row(table, row, request) : row;
}

/* Sets the route, at the end of the request at the latest. */
void ps_routes_known(ps_counted *request, const char *method, const char *route);
/*
 * The site whose name is method and route, and whose line is a number for them. It lasts as names do
 * (interned_strings.h). There are at most 1,024; others share one.
 */
const ps_site *ps_routes_label(const char *method, const char *route);
/* Ends the request. */
void ps_routes_end(ps_counted *request);
/*
 * Frees what is kept from one request to the next, and forgets the routes, because the memory of
 * their names is freed next.
 */
void ps_routes_clear(void);

#endif

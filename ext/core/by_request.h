/*
 * Statistics of each route by itself, while somebody listens to stats__by_request: what is added to
 * a row during a request goes to a row of its own for the request's route.
 *
 * Many frameworks tell the route when the request is over. Until it is known a request adds to rows
 * that are its alone, which are not fired; then what they have becomes the route's. Those rows are
 * kept for the next request, so that there are as many as there are requests at a time.
 *
 * Called with the VM lock.
 */
#ifndef PS_BY_REQUEST_H
#define PS_BY_REQUEST_H

#include "atomic.h"
#include "rows.h"

struct ps_tally;

/* What a request is to this. Zeros at its start. */
typedef struct ps_counted {
    const ps_site *label; /* method and route; NULL until they are known */
    struct ps_tally *tally;
    uint32_t generation; /* of ps_sites_generation, when the label was made */
} ps_counted;

/*
 * The row that counts in place of this one. request: the current one, or NULL where there is none,
 * or nobody wants to know.
 */
ps_row *ps_by_request_row(ps_table *table, ps_row *row, ps_counted *request);
static inline ps_row *ps_by_request(ps_table *table, ps_row *row, ps_counted *request)
{
    return PS_UNLIKELY(request != NULL) ? ps_by_request_row(table, row, request) : row;
}

/* The route is known: at the end of the request at the latest. */
void ps_by_request_known(ps_counted *request, const char *method, const char *route);
/* The request is over. */
void ps_by_request_end(ps_counted *request);
/*
 * Gives back what is kept from one request to the next, and forgets the routes: their names are
 * about to go.
 */
void ps_by_request_clear(void);

#endif

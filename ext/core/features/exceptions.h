/*
 * Exceptions: a row for each place that raises a type, and exception__raise, __detail, __rescue and
 * __stats. The hooks of each VM report raises and rescues here, with the VM lock, on the thread that
 * raises or rescues. Times and costs are ticks.
 *
 * request: as for ps_routes_row().
 */
#ifndef PS_EXCEPTIONS_H
#define PS_EXCEPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "context/span.h"
#include "table/feature.h"
#include "table/routes.h"

extern const ps_feature ps_exceptions_feature;
extern ps_table ps_exception_table;

/* Its counters; times in ticks. A hook adds to the first one last. */
enum {
    PS_EXCEPTION_RAISED,
    PS_EXCEPTION_COST,
    PS_EXCEPTION_DEPTH,
    PS_EXCEPTION_STRINGS,
    PS_EXCEPTION_RESCUED,
    PS_EXCEPTION_RESCUED_AT_ONCE,
    PS_EXCEPTION_DEPTH_MAX, /* not summed */
};
/*
 * Indexes into `at` of a row: further places of the exception. The row's own site has the type as
 * its name. Of RAISED_IN only the name is used: the function.
 */
enum { PS_EXCEPTION_RAISED_IN, PS_EXCEPTION_RESCUED_AT, PS_EXCEPTION_ASKED_AT, PS_EXCEPTION_APP_AT };

/*
 * Finds further places of a raise: the function that raised, and the nearest line of the
 * application's own code. *app may become NULL: there is none.
 */
typedef void ps_raise_places(const void *raise, const ps_site **function, const ps_site **app);

/*
 * Returns the row of a raise, perhaps the overflow row. raised: the type and the place. split: the
 * function, in a VM that gives each function at a place a row of its own; else NULL. places: called
 * with `raise` for a row without further places, so at a new row; NULL: they are not known.
 */
ps_row *ps_exceptions_row(const ps_site *raised, const ps_site *split, ps_raise_places *places,
                          const void *raise);

void ps_exceptions_raised(ps_row *row, uint32_t depth, uint64_t cost, ps_counted *request);
/* For a raise that was counted: by now it is `more` frames deeper, which cost that much. */
void ps_exceptions_deeper(ps_row *row, uint32_t depth, uint32_t more, uint64_t cost, ps_counted *request);
/* at: where, or NULL. at_once: by the function that raised. */
void ps_exceptions_rescued(ps_row *row, const ps_site *at, bool at_once, ps_counted *request);
/* For a rescue that was counted already. */
void ps_exceptions_rescued_at(ps_row *row, const ps_site *at);
/*
 * Charges the formatting of a backtrace to the row of the raise. asked: the site that requested it,
 * or ps_site_none.
 */
void ps_exceptions_formatted(ps_row *row, const ps_site *asked, uint64_t ticks, ps_counted *request);

/*
 * Each fires its probe, for callers that have checked that it has a listener. Nothing fires for a row
 * without a site: without a GIL another thread may be naming it.
 */
void ps_exceptions_fire_raise(const ps_row *row, uint32_t depth, uint64_t cost);
/* at: where, or NULL. */
void ps_exceptions_fire_rescue(const ps_row *row, const ps_site *at, uint64_t since_raise, uint32_t unwound);

enum { PS_DETAILS_PER_SECOND = 10, PS_MESSAGE_BUFFER = 256 };
/*
 * True when exception__detail may fire for this row: PS_DETAILS_PER_SECOND times a second. An event
 * that is refused is counted. The VM reads message and trace context only when this is true.
 */
bool ps_exceptions_detail_due(ps_row *row);
void ps_exceptions_fire_detail(const ps_row *row, uint32_t depth, uint64_t cost, const char *message,
                               const ps_span *span);

#endif

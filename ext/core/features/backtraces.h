/*
 * Backtraces that become strings: backtrace__done, and the cost of strings in exception__stats. The
 * hooks of each VM time the methods and functions that format backtraces, and report here, with the
 * VM lock.
 */
#ifndef PS_BACKTRACES_H
#define PS_BACKTRACES_H

#include <stdbool.h>
#include <stdint.h>

#include "table/feature.h"
#include "table/routes.h"

extern const ps_feature ps_backtraces_feature;

typedef struct ps_backtrace {
    const char *kind;      /* which method or function formatted it */
    const ps_site *asked;  /* the site that requested it, from ps_nearest_own_line(), or ps_site_none */
    const ps_site *raised; /* type and place of the exception; ps_site_none: there is no exception */
    uint64_t depth;
    uint64_t ticks; /* the time that it took */
} ps_backtrace;

/* Fires backtrace__done, if it has a listener. */
void ps_backtraces_fire(const ps_backtrace *backtrace);
/*
 * Fires the same, and charges the time to the row of the raise. row: NULL when there is none.
 * request: as for ps_routes_row().
 */
void ps_backtraces_done(const ps_backtrace *backtrace, ps_row *row, ps_counted *request);

/* ---- The line that stands for a stack ---- */

typedef enum ps_line_kind {
    PS_NO_LINE,      /* there are no more frames */
    PS_OWN_LINE,     /* of the application's own code */
    PS_OTHER_LINE,   /* of other code */
    PS_BUILTIN_LINE, /* of code of the VM, which no user knows by a line */
} ps_line_kind;
/* Called with the numbers 0, 1, 2 ..., from the innermost frame outwards. */
typedef ps_line_kind ps_line_walk(void *stack, int number);

enum { PS_LINES_LOOKED_AT = 128 };
/*
 * Returns the number of the nearest line of the application's own code: a line in a logger says
 * little. It is the last one for which `walk` was called. Returns -1 when the nearest
 * PS_LINES_LOOKED_AT lines are of other code. Then *other is the number of the nearest line that is
 * not the VM's, or -1. other: NULL if it is not needed.
 */
int ps_nearest_own_line(ps_line_walk *walk, void *stack, int *other);

#endif

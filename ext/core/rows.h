/*
 * Tables of counters, one row for each function, raise site, allocation site or sampled function.
 *
 * The VM's threads add to rows with the VM lock held: one writer at a time. The watcher reads them
 * each second without that lock and fires what changed. So rows never move and are published with a
 * release store; the hash index is the writer's alone. What does not fit into the memory limit is
 * added to one row "(overflow)" and counted.
 */
#ifndef PS_ROWS_H
#define PS_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "sites.h"

enum { PS_ROW_COUNTERS = 7, PS_ROW_SITES = 4, PS_ROWS_PER_CHUNK = 128, PS_ROW_CHUNKS = 4096 };

/*
 * What the counters of a row mean, table by table. The first one is added to last: what it counts
 * is complete in the others. Those under "not summed" are read and reset by the watcher.
 */
enum {
    PS_FUNCTION_CALLS,
    PS_FUNCTION_SELF,
    PS_FUNCTION_ELAPSED,
    PS_FUNCTION_RAISED,
    PS_FUNCTION_RESUMED,
    PS_FUNCTION_MAX, /* not summed */
};
enum {
    PS_EXCEPTION_RAISED,
    PS_EXCEPTION_COST,
    PS_EXCEPTION_DEPTH,
    PS_EXCEPTION_STRINGS,
    PS_EXCEPTION_RESCUED,
    PS_EXCEPTION_RESCUED_AT_ONCE,
    PS_EXCEPTION_DEPTH_MAX, /* not summed */
};
enum { PS_OBJECT_COUNT, PS_OBJECT_BYTES };
enum { PS_SAMPLE_TOTAL_SAMPLES, PS_SAMPLE_SELF_SAMPLES, PS_SAMPLE_SELF, PS_SAMPLE_TOTAL };
/*
 * Further places of an exception row, whose own site is named by the type. Of RAISED_IN the name
 * counts: the function.
 */
enum { PS_EXCEPTION_RAISED_IN, PS_EXCEPTION_RESCUED_AT, PS_EXCEPTION_ASKED_AT, PS_EXCEPTION_APP_AT };
/* Of a row of ps_sampled that has the self time in one builtin alone: that builtin, by name. */
enum { PS_SAMPLE_BUILTIN };

struct ps_stack;

typedef struct ps_row {
    uintptr_t key[3];
    /* NULL until the VM has found the name: such a row is not fired yet */
    const ps_site *site;
    const ps_site *at[PS_ROW_SITES]; /* NULL where unknown */
    uint64_t count[PS_ROW_COUNTERS]; /* since the table was cleared; times in ticks */
    uint64_t sent[PS_ROW_COUNTERS];  /* as far as the watcher has taken them */
    uint64_t cut[PS_ROW_COUNTERS];   /* what it has taken and is still to fire */
    union {
        struct {                           /* function: the stacks that it is open on */
            const struct ps_stack *active; /* one of them, or NULL */
            uint32_t elsewhere;            /* how many others */
        };
        struct { /* exception: what the sampled brackets measured here */
            uint64_t cost, depth;
        } bracket;
        /* sample: number of the last sample that counted it, so that recursion counts once */
        uint64_t seen;
        struct ps_row *next; /* of the same request (by_request.h) */
    } u;
    uint64_t out_ns;  /* function: when its hooks were taken out (overhead.h); 0: they were not */
    uint64_t judged;  /* function: its events, when a window began */
    uint32_t window;  /* exception: the second that `details` counts */
    uint32_t details; /* exception: details fired in that second */
    bool excluded;    /* function: not to be traced */
    bool builtin;     /* sample: the VM's own, to which no self time is charged */
} ps_row;

typedef struct ps_table {
    ps_row *chunk[PS_ROW_CHUNKS];
    uint32_t rows;     /* published rows */
    uint32_t resolved; /* the writer's: rows below this one have a site */
    uint32_t *index;   /* row number + 1, or 0 */
    uint32_t index_capacity;
    ps_row overflow;
    uint64_t overflowed; /* events that ever went to the overflow row */
    /*
     * The same for each route by itself (by_request.h); NULL where nobody wants that. Goes with
     * this one.
     */
    struct ps_table *by_request;
    uint32_t cleared; /* how often it was */
} ps_table;

extern ps_table ps_functions, ps_exceptions, ps_objects, ps_sampled;

/*
 * The row of this key, made on first sight (site NULL); the overflow row, counted, when memory is
 * full. Never NULL.
 */
ps_row *ps_table_row(ps_table *table, uintptr_t key0, uintptr_t key1, uintptr_t key2);
/* The same, but NULL when memory is full, which is not counted. */
ps_row *ps_table_try_row(ps_table *table, uintptr_t key0, uintptr_t key1, uintptr_t key2);
/* The row of this key, or NULL. */
ps_row *ps_table_find(ps_table *table, uintptr_t key0, uintptr_t key1, uintptr_t key2);
ps_row *ps_table_at(const ps_table *table, uint32_t number);
/*
 * Forgets all rows and gives their memory back. No hook may be in, and the caller holds
 * ps_stats_lock.
 */
void ps_table_clear(ps_table *table);
static inline bool ps_row_is_overflow(const ps_table *table, const ps_row *row)
{
    return row == &table->overflow;
}

#endif

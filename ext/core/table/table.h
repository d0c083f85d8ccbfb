/*
 * Tables of counters. There is one row for each function, raise site, allocation site or sampled
 * function.
 *
 * The VM's threads add to rows with the VM lock held, so there is one writer at a time. The watcher
 * reads the rows each second without that lock, and fires those that changed. So rows never move,
 * and are published with a release store. Only the writer uses the hash index. What does not fit
 * into the memory limit is added to one row "(overflow)", and counted.
 */
#ifndef PS_TABLE_H
#define PS_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "table/interned_strings.h"

enum { PS_ROW_COUNTERS = 7, PS_ROW_SITES = 4, PS_ROWS_PER_CHUNK = 128, PS_ROW_CHUNKS = 4096 };

/*
 * The counters of a row, table by table. A hook adds to the first counter last, so an event that
 * this counter shows is complete in the others. The watcher reads and resets the counters marked
 * "not summed".
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
 * Indexes into `at` of an exception row: further places of the exception. The row's own site has
 * the type as its name. Of RAISED_IN only the name is used: the function.
 */
enum { PS_EXCEPTION_RAISED_IN, PS_EXCEPTION_RESCUED_AT, PS_EXCEPTION_ASKED_AT, PS_EXCEPTION_APP_AT };
/*
 * Index into `at` of a row of ps_sample_table that holds a function's self time in one builtin. The
 * site there names the builtin.
 */
enum { PS_SAMPLE_BUILTIN };

struct ps_stack;

typedef struct ps_row {
    uintptr_t key[3];
    /* NULL until the hook that made the row has named it. Such a row has counted nothing yet. */
    const ps_site *site;
    const ps_site *at[PS_ROW_SITES]; /* NULL where unknown */
    uint64_t count[PS_ROW_COUNTERS]; /* since the table was cleared; times in ticks */
    uint64_t sent[PS_ROW_COUNTERS];  /* the part of count that the watcher has taken */
    uint64_t cut[PS_ROW_COUNTERS];   /* what the watcher has taken and not fired yet */
    /* What a row needs beside its counters. It depends on the table. */
    union {
        struct {
            const struct ps_stack *active; /* one of the stacks on which it is open, or NULL */
            uint32_t elsewhere;            /* the number of other stacks */
            uint8_t excluded;              /* PS_NOT_COVERED or PS_TAKEN_OUT: it is not traced */
            uint64_t out_ns;               /* when its hooks were taken out; 0: never */
            uint64_t judged;               /* its number of events when a window began (overhead.h) */
        } function;
        struct {
            uint64_t cost, depth; /* what the VM's estimate of costs has learnt; ticks and frames */
            uint32_t window;      /* the second in which `details` were fired */
            uint32_t details;     /* details fired in that second */
        } exception;
        struct {
            uint64_t seen; /* number of the last sample that counted it, so that recursion counts once */
            bool builtin;  /* a function of the VM, which gets no self time */
            bool left_out; /* a function of ours, which is in no stack */
        } sample;
        /* In a table of routes (routes.h). */
        struct {
            const struct ps_row *whole; /* the row that it was split from; NULL: it is the rest of a route */
            struct ps_row *next;        /* the next row of the same request */
            bool listed;                /* it is in the list of a request */
        } route;
    };
} ps_row;

/* Values of `excluded`. */
enum { PS_NOT_COVERED = 1, PS_TAKEN_OUT };

typedef struct ps_table {
    ps_row *chunk[PS_ROW_CHUNKS];
    uint32_t rows;   /* published rows */
    uint32_t *index; /* row number + 1, or 0 */
    uint32_t index_capacity;
    ps_row overflow;
    uint64_t overflowed; /* events that ever went to the overflow row */
    /*
     * The same table split by route (routes.h); NULL where it is not split. Cleared with this
     * table.
     */
    struct ps_table *routes;
    uint32_t cleared; /* how often it was cleared */
} ps_table;

extern ps_table ps_function_table, ps_exception_table, ps_object_table, ps_sample_table;

/*
 * Returns the row of this key. A new row is made for an unknown key, with site NULL. When memory is
 * full, returns the overflow row and counts that. Never NULL.
 */
ps_row *ps_table_row(ps_table *table, uintptr_t key0, uintptr_t key1, uintptr_t key2);
/* The same, but returns NULL when memory is full, and does not count that. */
ps_row *ps_table_try_row(ps_table *table, uintptr_t key0, uintptr_t key1, uintptr_t key2);
/*
 * Returns the row whose key is this site alone, which is also the row's site. Otherwise like
 * ps_table_row().
 */
ps_row *ps_table_row_at(ps_table *table, const ps_site *site);
/* Returns the row of this key, or NULL. */
ps_row *ps_table_find(ps_table *table, uintptr_t key0, uintptr_t key1, uintptr_t key2);
ps_row *ps_table_at(const ps_table *table, uint32_t number);
/* Forgets all rows and frees their memory. No hook may run, and the caller holds ps_flush_lock. */
void ps_table_clear(ps_table *table);
static inline bool ps_row_is_overflow(const ps_table *table, const ps_row *row)
{
    return row == &table->overflow;
}

#endif

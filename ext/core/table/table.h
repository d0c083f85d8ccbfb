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

struct ps_stack;

typedef struct ps_row {
    uintptr_t key[3];
    /* NULL until the hook that made the row has named it. Such a row has counted nothing yet. */
    const ps_site *site;
    const ps_site *at[PS_ROW_SITES]; /* NULL where unknown */
    /*
     * Since the table was cleared. Each table has its own counters (feature.h). A hook adds to the
     * first counter last, so an event that this counter shows is complete in the others.
     */
    uint64_t count[PS_ROW_COUNTERS];
    uint64_t sent[PS_ROW_COUNTERS]; /* the part of count that the watcher has taken */
    uint64_t cut[PS_ROW_COUNTERS];  /* what the watcher has taken and not fired yet */
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

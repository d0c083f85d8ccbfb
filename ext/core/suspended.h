/*
 * Calls that are suspended: generators and coroutines between a yield and the resumption. Each is
 * known by its frame, whose address stays the same meanwhile. They are on no shadow stack: whoever
 * resumes one opens it again, on any thread.
 *
 * Called with the VM lock held.
 */
#ifndef PS_SUSPENDED_H
#define PS_SUSPENDED_H

#include <stdbool.h>
#include <stdint.h>

#include "address.h"
#include "rows.h"

struct ps_latency;

typedef struct ps_suspended {
    ps_address frame; /* of nothing: an empty place */
    ps_row *row;
    /* latency_probes.h has a table of its own, of all open calls, in ns */
    const struct ps_latency *latency;
    uint64_t first;  /* ticks: when the call began */
    uint64_t last;   /* ticks: when it was suspended */
    uint64_t self;   /* ticks of its own so far */
    uint64_t number; /* slow.h */
} ps_suspended;

typedef struct ps_suspended_table {
    ps_suspended *calls;
    uint32_t capacity; /* a power of two */
    uint32_t count;
} ps_suspended_table;
extern ps_suspended_table ps_suspended_calls;

/*
 * Keeps it, in the place of what was known of a frame at the same address. False when there is no
 * memory.
 */
bool ps_suspended_put(ps_suspended_table *table, const ps_suspended *call);
/* Takes out the call of this frame. False when none is known. */
bool ps_suspended_take(ps_suspended_table *table, ps_address frame, ps_suspended *call);
/* Forgets all of them: nobody listens any more. */
void ps_suspended_clear(ps_suspended_table *table);

#endif

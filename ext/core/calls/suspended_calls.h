/*
 * Suspended calls: generators and coroutines between a yield and the resumption. A call is
 * identified by the address of its frame, which does not change meanwhile. A suspended call is on
 * no shadow stack. Any thread may resume it, and opens it again then.
 *
 * Called with the VM lock held.
 */
#ifndef PS_SUSPENDED_CALLS_H
#define PS_SUSPENDED_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/address.h"
#include "table/table.h"

typedef struct ps_suspended {
    ps_address frame; /* none: an empty place */
    ps_row *row;
    uint64_t first;  /* ticks: when the call began */
    uint64_t last;   /* ticks: when it was suspended */
    uint64_t self;   /* ticks of its own so far */
    uint64_t number; /* slow_calls.h */
} ps_suspended;

typedef struct ps_suspended_table {
    ps_suspended *calls;
    uint32_t capacity; /* a power of two */
    uint32_t count;
} ps_suspended_table;
extern ps_suspended_table ps_suspended_calls;

/*
 * Stores the call. It replaces an older call whose frame had the same address. Returns false when
 * there is no memory.
 */
bool ps_suspended_put(ps_suspended_table *table, const ps_suspended *call);
/* Takes out the call of this frame. Returns false when there is none. */
bool ps_suspended_take(ps_suspended_table *table, ps_address frame, ps_suspended *call);
/* Drops all calls, because no tracer listens any more. */
void ps_suspended_clear(ps_suspended_table *table);

#endif

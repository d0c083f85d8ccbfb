#include "calls/suspended_calls.h"

#include "base/memory.h"

/*
 * Open addressing with linear probing. When an entry is taken out, later entries move up into its
 * place.
 */
ps_suspended_table ps_suspended_calls;

static uint32_t place_of(ps_address frame, uint32_t capacity)
{
    return ps_address_hash(frame, 32) & (capacity - 1);
}

/* Returns the place of this frame, or the one where it would go. */
static ps_suspended *find(const ps_suspended_table *table, ps_address frame)
{
    uint32_t i = place_of(frame, table->capacity);
    while (ps_address_known(table->calls[i].frame) && !ps_address_equal(table->calls[i].frame, frame))
        i = (i + 1) & (table->capacity - 1);
    return &table->calls[i];
}

static bool grow(ps_suspended_table *table)
{
    ps_suspended *old = table->calls;
    uint32_t old_capacity = table->capacity, capacity = old_capacity ? old_capacity * 2 : 64;
    ps_suspended *calls = ps_memory_take(capacity * sizeof(*calls));
    if (!calls) return false;
    table->calls = calls;
    table->capacity = capacity;
    for (uint32_t i = 0; i < old_capacity; i++)
        if (ps_address_known(old[i].frame)) *find(table, old[i].frame) = old[i];
    ps_memory_give(old, old_capacity * sizeof(*old));
    return true;
}

bool ps_suspended_put(ps_suspended_table *table, const ps_suspended *call)
{
    if (table->count + table->count / 2 >= table->capacity && !grow(table)) {
        /* At least one place must stay free. Otherwise a search would not end. */
        if (!table->capacity || table->count + 1 >= table->capacity) return false;
    }
    ps_suspended *place = find(table, call->frame);
    if (!ps_address_known(place->frame)) table->count++;
    *place = *call;
    return true;
}

bool ps_suspended_take(ps_suspended_table *table, ps_address frame, ps_suspended *call)
{
    if (!table->count) return false;
    ps_suspended *place = find(table, frame);
    if (!ps_address_known(place->frame)) return false;
    *call = *place;
    table->count--;
    uint32_t hole = (uint32_t)(place - table->calls), mask = table->capacity - 1;
    for (uint32_t i = (hole + 1) & mask; ps_address_known(table->calls[i].frame); i = (i + 1) & mask) {
        /* An entry whose home is after the hole has to stay. */
        uint32_t home = place_of(table->calls[i].frame, table->capacity);
        if (((i - home) & mask) < ((i - hole) & mask)) continue;
        table->calls[hole] = table->calls[i];
        hole = i;
    }
    table->calls[hole].frame = PS_NO_ADDRESS;
    return true;
}

void ps_suspended_clear(ps_suspended_table *table)
{
    ps_memory_give(table->calls, table->capacity * sizeof(*table->calls));
    table->calls = NULL;
    table->capacity = table->count = 0;
}

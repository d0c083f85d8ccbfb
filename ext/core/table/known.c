#include "table/known.h"

#include "base/memory.h"

enum { SMALLEST = 256 };

static bool stays(const ps_known_table *table, const ps_known *known)
{
    return known->what && (known->again || (table->now && known->key.stamp[0] == *table->now));
}

/* Drops entries. When few of them would go, the table grows. */
static bool make_room(ps_known_table *table)
{
    uint32_t staying = 0, capacity = table->capacity ? table->capacity : SMALLEST;
    for (uint32_t i = 0; i < table->capacity; i++) staying += stays(table, &table->places[i]);
    if (staying * 4 >= capacity) capacity *= 2;
    ps_known_table fresh = {
        .places = ps_memory_take(capacity * sizeof(*fresh.places)), .capacity = capacity, .now = table->now};
    if (!fresh.places) return false;
    for (uint32_t i = 0; i < table->capacity; i++) {
        const ps_known *known = &table->places[i];
        if (!stays(table, known)) continue;
        ps_known *place = ps_known_place(&fresh, known->key);
        *place = *known;
        place->again = false;
        fresh.used++;
    }
    ps_known_clear(table);
    *table = fresh;
    return true;
}

void ps_known_put(ps_known_table *table, ps_key key, void *what)
{
    ps_known *place = table->capacity ? ps_known_place(table, key) : NULL;
    if (!place || !place->what) {
        if (table->used * 4 >= table->capacity * 3) {
            if (!make_room(table)) return;
            place = ps_known_place(table, key);
        }
        table->used++;
    }
    *place = (ps_known){.key = key, .what = what};
}

void ps_known_clear(ps_known_table *table)
{
    ps_memory_give(table->places, table->capacity * sizeof(*table->places));
    *table = (ps_known_table){.now = table->now};
}

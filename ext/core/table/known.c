#include "table/known.h"

#include "base/memory.h"

enum { SMALLEST = 256 };

uint32_t ps_known_epoch;

static uint32_t hash_of(ps_address a, ps_address b, ps_address c)
{
    uint64_t hash =
        a.value * 0x9e3779b97f4a7c15u ^ b.value * 0xc2b2ae3d27d4eb4fu ^ c.value * 0xbf58476d1ce4e5b9u;
    hash ^= hash >> 29;
    return (uint32_t)(hash * 0x9e3779b97f4a7c15u >> 32);
}

static bool is_of(const ps_known *known, ps_address a, ps_address b, ps_address c)
{
    return ps_address_equal(known->key[0], a) && ps_address_equal(known->key[1], b) &&
           ps_address_equal(known->key[2], c);
}

/*
 * Returns the place of this key, or the one where it would go. The table must have an empty place.
 */
static ps_known *place_of(const ps_known_table *table, ps_address a, ps_address b, ps_address c)
{
    uint32_t mask = table->capacity - 1, i = hash_of(a, b, c) & mask;
    while (ps_address_known(table->places[i].key[0]) && !is_of(&table->places[i], a, b, c))
        i = (i + 1) & mask;
    return &table->places[i];
}

ps_known *ps_known_find(const ps_known_table *table, ps_address a, ps_address b, ps_address c)
{
    if (!table->capacity) return NULL;
    ps_known *place = place_of(table, a, b, c);
    return ps_address_known(place->key[0]) ? place : NULL;
}

static uint32_t count_current(const ps_known_table *table)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < table->capacity; i++)
        count += ps_address_known(table->places[i].key[0]) && ps_known_is_current(&table->places[i]);
    return count;
}

/* Drops the entries that are not current. When few of them would go, the table grows. */
static bool make_room(ps_known_table *table)
{
    uint32_t current = count_current(table), capacity = table->capacity ? table->capacity : SMALLEST;
    if (current * 4 >= capacity) capacity *= 2;
    ps_known_table fresh = {.places = ps_memory_take(capacity * sizeof(*fresh.places)), .capacity = capacity};
    if (!fresh.places) return false;
    for (uint32_t i = 0; i < table->capacity; i++) {
        const ps_known *known = &table->places[i];
        if (!ps_address_known(known->key[0]) || !ps_known_is_current(known)) continue;
        *place_of(&fresh, known->key[0], known->key[1], known->key[2]) = *known;
        fresh.used++;
    }
    ps_known_clear(table);
    *table = fresh;
    return true;
}

void ps_known_put(ps_known_table *table, ps_address a, ps_address b, ps_address c, ps_row *row)
{
    ps_known *place = table->capacity ? place_of(table, a, b, c) : NULL;
    if (!place || !ps_address_known(place->key[0])) {
        if (table->used * 4 >= table->capacity * 3) {
            if (!make_room(table)) return;
            place = place_of(table, a, b, c);
        }
        table->used++;
    }
    *place = (ps_known){{a, b, c}, row, ps_known_epoch};
}

void ps_known_clear(ps_known_table *table)
{
    ps_memory_give(table->places, table->capacity * sizeof(*table->places));
    *table = (ps_known_table){0};
}

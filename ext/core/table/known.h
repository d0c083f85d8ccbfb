/*
 * A cache of what is known of an event's objects, by their addresses: mostly a row. Rows are named
 * after methods and classes, and finding a name at each event is expensive. Nothing of ours keeps
 * the objects alive, so later an address may belong to another object. That is what stamps are for:
 * an entry whose stamps are those of the event is current. Otherwise it is a guess. Code that finds
 * the same names at the addresses calls ps_known_renew(); a guess still saves most of the work.
 *
 * When room is needed, entries are dropped that are not current and that nothing has found since
 * room was made.
 *
 * Called with the VM lock.
 */
#ifndef PS_KNOWN_H
#define PS_KNOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/address.h"
#include "base/atomic.h"

/* What an event is about. What there is none of is 0. Passed by value: it then stays in registers. */
typedef struct ps_key {
    ps_address of_class; /* of an exception, an object or a receiver */
    ps_address code;     /* a method, a frame, a file or a code object */
    uint64_t number;     /* a line, an instruction, a size or the like: not an object, never stale */
    /*
     * Ruby: {ps_known_epoch, 0}. CPython: {the version of the class << 32 | code objects freed at
     * such addresses, the address of the class's qualified name}.
     */
    uint64_t stamp[2];
} ps_key;

typedef struct ps_known {
    ps_key key;
    void *what; /* NULL in an empty place */
    bool again; /* found since room was made */
} ps_known;

/* Zeros at the start, except `now`. */
typedef struct ps_known_table {
    ps_known *places; /* open addressing */
    uint32_t capacity, used;
    /* The first stamp of all current entries, if the VM has one for all of them; else NULL. */
    const uint64_t *now;
} ps_known_table;

static inline uint32_t ps_key_hash(ps_key key)
{
    uint64_t hash = key.of_class.value * 0x9e3779b97f4a7c15u ^ key.code.value * 0xc2b2ae3d27d4eb4fu ^
                    key.number * 0xbf58476d1ce4e5b9u;
    hash ^= hash >> 29;
    return (uint32_t)(hash * 0x9e3779b97f4a7c15u >> 32);
}

/* The place of these objects, or the one where they would go. The table has an empty place. */
static inline ps_known *ps_known_place(const ps_known_table *table, ps_key key)
{
    uint32_t mask = table->capacity - 1, i = ps_key_hash(key) & mask;
    for (; table->places[i].what; i = (i + 1) & mask) {
        const ps_key *other = &table->places[i].key;
        if (ps_address_equal(other->code, key.code) && ps_address_equal(other->of_class, key.of_class) &&
            other->number == key.number)
            break;
    }
    return &table->places[i];
}

/*
 * Returns the entry of these addresses, or NULL. Valid until the next ps_known_put() or
 * ps_known_clear() of the table.
 */
static inline ps_known *ps_known_find(const ps_known_table *table, ps_key key)
{
    if (PS_UNLIKELY(!table->capacity)) return NULL;
    ps_known *place = ps_known_place(table, key);
    return place->what ? place : NULL;
}

/* True when the objects at the addresses are certainly those of the entry. */
static inline bool ps_known_is_current(const ps_known *known, ps_key key)
{
    return known->key.stamp[0] == key.stamp[0] && known->key.stamp[1] == key.stamp[1];
}

/* Makes the entry current again. The caller has checked the objects. */
static inline void ps_known_renew(ps_known *known, ps_key key)
{
    known->key = key;
    known->again = true;
}

/*
 * Stores `what`, which is not NULL, under these addresses, and replaces an older entry. Does nothing
 * when there is no memory.
 */
void ps_known_put(ps_known_table *table, ps_key key, void *what);
/* Drops all entries, and frees the memory. */
void ps_known_clear(ps_known_table *table);

#endif

/*
 * What is known of objects of the VM by their addresses, while nothing of ours keeps them alive.
 * Rows are named by what a method or a class is; to find that out for each event is dear, so the
 * row is kept by the addresses that the event brings.
 *
 * An address may come to mean another object, after a moment that the VM tells: a garbage
 * collection. Until then an entry is current. Afterwards it is a guess, which saves most of the
 * work: whoever finds the same names at the address again calls ps_known_renew(). Entries that
 * nobody asked for since the last such moment go when room is needed.
 *
 * Called with the VM lock.
 */
#ifndef PS_KNOWN_H
#define PS_KNOWN_H

#include <stdbool.h>
#include <stdint.h>

#include "address.h"
#include "rows.h"

typedef struct ps_known {
    ps_address key[3]; /* the first is known, or the place is empty */
    ps_row *row;
    uint32_t epoch; /* of ps_known_epoch, when the objects were there */
} ps_known;

/* Zeros at its start. */
typedef struct ps_known_table {
    ps_known *places; /* open addressing */
    uint32_t capacity, used;
} ps_known_table;

/* Raised by the VM's extension whenever addresses may come to mean other objects. */
extern uint32_t ps_known_epoch;

/*
 * The entry of these addresses, or NULL. Valid until the next ps_known_put() or ps_known_clear() of
 * the table.
 */
ps_known *ps_known_find(const ps_known_table *table, ps_address a, ps_address b, ps_address c);
/*
 * Are the objects that it is about those of the entry? Else they may be others at the same
 * addresses.
 */
static inline bool ps_known_is_current(const ps_known *known)
{
    return known->epoch == ps_known_epoch;
}
/* They are: whoever calls it has looked. */
static inline void ps_known_renew(ps_known *known)
{
    known->epoch = ps_known_epoch;
}
/* Keeps it, in place of what was known of these addresses. Without memory nothing is kept. */
void ps_known_put(ps_known_table *table, ps_address a, ps_address b, ps_address c, ps_row *row);
/* Forgets all, and gives the memory back. */
void ps_known_clear(ps_known_table *table);

#endif

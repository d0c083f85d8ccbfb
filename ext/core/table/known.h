/*
 * A cache of rows by the addresses of VM objects. Rows are named after methods and classes, and
 * finding a name at each event is expensive. So the row is kept under the addresses that the event
 * carries. Nothing of ours keeps the objects alive.
 *
 * After a garbage collection an address may belong to another object. An entry is current until the
 * VM reports the next collection. Afterwards it is a guess, which still saves most of the work:
 * code that finds the same names at the address again calls ps_known_renew(). When room is needed,
 * entries that were not renewed since the last collection are dropped.
 *
 * Called with the VM lock.
 */
#ifndef PS_KNOWN_H
#define PS_KNOWN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/address.h"
#include "table/table.h"

typedef struct ps_known {
    ps_address key[3]; /* key[0] is PS_NO_ADDRESS in an empty place */
    ps_row *row;
    uint32_t epoch; /* ps_known_epoch when the objects were seen */
} ps_known;

/* Zeros at the start. */
typedef struct ps_known_table {
    ps_known *places; /* open addressing */
    uint32_t capacity, used;
} ps_known_table;

/* The VM's extension raises this whenever addresses may come to belong to other objects. */
extern uint32_t ps_known_epoch;

/*
 * Returns the entry of these addresses, or NULL. Valid until the next ps_known_put() or
 * ps_known_clear() of the table.
 */
ps_known *ps_known_find(const ps_known_table *table, ps_address a, ps_address b, ps_address c);
/*
 * True when the objects at the addresses are certainly those of the entry. Otherwise they may be
 * others at the same addresses.
 */
static inline bool ps_known_is_current(const ps_known *known)
{
    return known->epoch == ps_known_epoch;
}
/* Makes the entry current again. The caller has checked the objects. */
static inline void ps_known_renew(ps_known *known)
{
    known->epoch = ps_known_epoch;
}
/*
 * Stores the row under these addresses, and replaces an older entry. Does nothing when there is no
 * memory.
 */
void ps_known_put(ps_known_table *table, ps_address a, ps_address b, ps_address c, ps_row *row);
/* Drops all entries, and frees the memory. */
void ps_known_clear(ps_known_table *table);

#endif

/*
 * A reference to a row that is kept for longer than an event. The table may be cleared meanwhile:
 * then the reference is dead, and the row is freed memory. Zeros are a dead reference, too.
 *
 * Called with the VM lock.
 */
#ifndef PS_ROW_REF_H
#define PS_ROW_REF_H

#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"
#include "table/table.h"

typedef struct ps_row_ref {
    ps_row *row;      /* not to be read but by ps_row_of() */
    uint32_t cleared; /* `cleared` of its table when the row was alive */
} ps_row_ref;

static inline ps_row_ref ps_row_keep(const ps_table *table, ps_row *row)
{
    return (ps_row_ref){row, table->cleared};
}

/* NULL: the row is gone, or there was none. */
static inline ps_row *ps_row_of(const ps_table *table, ps_row_ref ref)
{
    return PS_LIKELY(ref.cleared == table->cleared) ? ref.row : NULL;
}

#endif

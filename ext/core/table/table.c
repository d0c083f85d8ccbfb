#include "table/table.h"

#include <string.h>

#include "base/atomic.h"
#include "base/memory.h"

static uint64_t hash_key(uintptr_t key0, uintptr_t key1, uintptr_t key2)
{
    uint64_t hash =
        (uint64_t)key0 * 0x9e3779b97f4a7c15u ^ (uint64_t)key1 * 0xc2b2ae3d27d4eb4fu ^ (uint64_t)key2;
    hash ^= hash >> 29;
    hash *= 0xbf58476d1ce4e5b9u;
    return hash ^ (hash >> 32);
}

ps_row *ps_table_at(const ps_table *table, uint32_t number)
{
    return &PS_READ(table->chunk[number / PS_ROWS_PER_CHUNK])[number % PS_ROWS_PER_CHUNK];
}

static bool grow_index(ps_table *table)
{
    uint32_t capacity = table->index_capacity ? table->index_capacity * 2 : 512;
    uint32_t *index = ps_memory_take(capacity * sizeof(*index));
    if (!index) return false;
    for (uint32_t number = 0; number < table->rows; number++) {
        const ps_row *row = ps_table_at(table, number);
        uint64_t place = hash_key(row->key[0], row->key[1], row->key[2]) & (capacity - 1);
        while (index[place]) place = (place + 1) & (capacity - 1);
        index[place] = number + 1;
    }
    ps_memory_give(table->index, table->index_capacity * sizeof(*index));
    table->index = index;
    table->index_capacity = capacity;
    return true;
}

static ps_row *overflow(ps_table *table)
{
    if (!table->overflow.site) PS_WRITE_RELEASE(table->overflow.site, &ps_site_overflow);
    PS_ADD(table->overflowed, 1);
    return &table->overflow;
}

static ps_row *find(ps_table *table, uint64_t hash, uintptr_t key0, uintptr_t key1, uintptr_t key2)
{
    if (PS_UNLIKELY(!table->index)) return NULL;
    for (uint64_t place = hash & (table->index_capacity - 1); table->index[place];
         place = (place + 1) & (table->index_capacity - 1)) {
        ps_row *row = ps_table_at(table, table->index[place] - 1);
        if (row->key[0] == key0 && row->key[1] == key1 && row->key[2] == key2) return row;
    }
    return NULL;
}

ps_row *ps_table_find(ps_table *table, uintptr_t key0, uintptr_t key1, uintptr_t key2)
{
    return find(table, hash_key(key0, key1, key2), key0, key1, key2);
}

ps_row *ps_table_row(ps_table *table, uintptr_t key0, uintptr_t key1, uintptr_t key2)
{
    ps_row *row = ps_table_try_row(table, key0, key1, key2);
    return PS_LIKELY(row != NULL) ? row : overflow(table);
}

ps_row *ps_table_try_row(ps_table *table, uintptr_t key0, uintptr_t key1, uintptr_t key2)
{
    uint64_t hash = hash_key(key0, key1, key2);
    ps_row *known = find(table, hash, key0, key1, key2);
    if (PS_LIKELY(known != NULL)) return known;
    uint32_t number = table->rows;
    if (number == PS_ROWS_PER_CHUNK * PS_ROW_CHUNKS) return NULL;
    if ((uint64_t)number * 4 >= (uint64_t)table->index_capacity * 3 && !grow_index(table)) return NULL;
    if (number % PS_ROWS_PER_CHUNK == 0 && !table->chunk[number / PS_ROWS_PER_CHUNK]) {
        ps_row *chunk = ps_memory_take(PS_ROWS_PER_CHUNK * sizeof(ps_row));
        if (!chunk) return NULL;
        PS_WRITE_RELEASE(table->chunk[number / PS_ROWS_PER_CHUNK], chunk);
    }
    ps_row *row = ps_table_at(table, number);
    row->key[0] = key0;
    row->key[1] = key1;
    row->key[2] = key2;
    uint64_t place = hash & (table->index_capacity - 1);
    while (table->index[place]) place = (place + 1) & (table->index_capacity - 1);
    table->index[place] = number + 1;
    PS_WRITE_RELEASE(table->rows, number + 1);
    return row;
}

ps_row *ps_table_row_at(ps_table *table, const ps_site *site)
{
    ps_row *row = ps_table_row(table, (uintptr_t)site, 0, 0);
    if (!row->site) PS_WRITE_RELEASE(row->site, site);
    return row;
}

void ps_table_clear(ps_table *table)
{
    if (table->routes) ps_table_clear(table->routes);
    for (uint32_t i = 0; i < PS_ROW_CHUNKS && table->chunk[i]; i++)
        ps_memory_give(table->chunk[i], PS_ROWS_PER_CHUNK * sizeof(ps_row));
    ps_memory_give(table->index, table->index_capacity * sizeof(*table->index));
    /* Cleared in place, because a table is too large for the stack of a fiber. */
    uint64_t overflowed = table->overflowed;
    uint32_t cleared = table->cleared + 1;
    ps_table *routes = table->routes;
    memset(table, 0, sizeof(*table));
    table->overflowed = overflowed;
    table->cleared = cleared;
    table->routes = routes;
}

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/thread_record.h"

static size_t limit = PS_MEMORY_DEFAULT_LIMIT;
static size_t used;

void ps_memory_set_limit(size_t bytes)
{
    PS_WRITE(limit, bytes ? bytes : PS_MEMORY_DEFAULT_LIMIT);
}

size_t ps_memory_limit(void)
{
    return PS_READ(limit);
}

size_t ps_memory_used(void)
{
    return PS_READ(used);
}

void *ps_memory_take(size_t size)
{
    if (size > PS_READ(limit)) return NULL; /* so the sum below cannot wrap around */
    /* Reserve first, so that two threads cannot exceed the limit together. */
    size_t before = PS_FETCH_ADD(used, size);
    if (before + size > PS_READ(limit)) {
        PS_FETCH_ADD(used, -size);
        return NULL;
    }
    bool ours = ps_ours_begin(); /* it may be a system call */
    void *memory = calloc(1, size);
    ps_ours_end(ours);
    if (!memory) PS_FETCH_ADD(used, -size);
    return memory;
}

void ps_memory_give(void *memory, size_t size)
{
    if (!memory) return;
    bool ours = ps_ours_begin();
    free(memory);
    ps_ours_end(ours);
    PS_FETCH_ADD(used, -size);
}

void *ps_memory_grown(void *array, uint32_t count, uint32_t *capacity, size_t size)
{
    if (count < *capacity) return array;
    uint32_t more = *capacity ? *capacity * 2 : 16;
    void *grown = ps_memory_take(more * size);
    if (!grown) return NULL;
    if (count) memcpy(grown, array, count * size);
    ps_memory_give(array, *capacity * size);
    *capacity = more;
    return grown;
}

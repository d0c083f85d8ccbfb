/*
 * Memory with a ceiling. Everything that the core keeps for longer than a call comes from here, so
 * that a process with a million functions costs the agreed number of bytes and not one more; what
 * does not fit is counted by the caller.
 */
#ifndef PS_MEMORY_H
#define PS_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#define PS_MEMORY_DEFAULT_LIMIT ((size_t)32 << 20)

/* limit in bytes; 0 keeps the default. May be called again: what is taken stays taken. */
void ps_memory_set_limit(size_t limit);
size_t ps_memory_limit(void);
size_t ps_memory_used(void);

/*
 * Zeroed memory, or NULL when it would pass the limit or malloc has none. Any thread, no VM lock
 * needed.
 */
void *ps_memory_take(size_t size);
/* size is the one that was taken. NULL is fine. */
void ps_memory_give(void *memory, size_t size);
/*
 * An array of `capacity` elements, of which `count` are used, with room for one more: itself, or
 * one twice as large in its place. NULL: there is no memory, and all is as it was.
 */
void *ps_memory_grown(void *array, uint32_t count, uint32_t *capacity, size_t size);

#endif

/*
 * Memory with a limit. Everything that the core keeps for longer than a call is allocated here. So
 * a process with a million functions never takes more than the agreed number of bytes. The caller
 * counts what does not fit.
 */
#ifndef PS_MEMORY_H
#define PS_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#define PS_MEMORY_DEFAULT_LIMIT ((size_t)32 << 20)

/* limit in bytes; 0 sets the default. May be called again. A lower limit frees nothing. */
void ps_memory_set_limit(size_t limit);
size_t ps_memory_limit(void);
size_t ps_memory_used(void);

/*
 * Returns zeroed memory. NULL when it would exceed the limit, or malloc fails. Any thread, no VM
 * lock needed.
 */
void *ps_memory_take(size_t size);
/* size: as in ps_memory_take(). NULL is allowed. */
void ps_memory_give(void *memory, size_t size);
/*
 * Makes room for one more element in an array of `capacity` elements, of which `count` are used.
 * Returns the array, or a copy twice as large that replaces it. Returns NULL when there is no
 * memory: then nothing has changed.
 */
void *ps_memory_grown(void *array, uint32_t count, uint32_t *capacity, size_t size);

#endif

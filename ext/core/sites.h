/*
 * Names and places with addresses that last: a tracer reads them with str(), from BPF that cannot
 * fault a page in, and may do so at a later event than the one that brought the address. So each
 * string is copied once into memory of ours that was written to, made valid UTF-8, and neither
 * freed nor moved while any probe of the process has a listener. When the last listener has left,
 * ps_sites_clear() gives all of it back (docs/decisions/164-names-are-given-back.md). Equal strings
 * are stored once.
 *
 * Called with the VM lock held (one writer); what it returns may be read by any thread.
 */
#ifndef PS_SITES_H
#define PS_SITES_H

#include <stddef.h>
#include <stdint.h>

/*
 * Bytes of ps_site.file. bpftrace's default string is 64 with its NUL, and 0.20 to 0.22 put ".."
 * behind one that fills it.
 */
#define PS_FILE_MAX 62
#define PS_NAME_MAX 1023 /* longer names and paths are cut: names at the end, paths at the start */

typedef struct ps_site {
    const char *name; /* function, type or class */
    const char *file; /* at most PS_FILE_MAX bytes, shortened from the left */
    const char *path; /* the whole of it */
    uint64_t line;
} ps_site;

/* The site for what has no place of its own any more: memory is full. */
extern const ps_site ps_site_overflow;
/* For a pointer that must not be NULL: all strings empty. */
extern const ps_site ps_site_none;

/*
 * The site of this name and place; ps_site_overflow when memory is full. The strings need no NUL.
 */
const ps_site *ps_site_intern(const char *name, size_t name_size, const char *path, size_t path_size,
                              uint64_t line);

/*
 * Raised by each ps_sites_clear(): sites of an earlier generation are freed memory. Whoever keeps a
 * site compares it.
 */
extern uint32_t ps_sites_generation;
/*
 * Gives the memory of all names and sites back. No hook may be in, all tables are clear, and the
 * caller holds the VM lock and ps_stats_lock.
 */
void ps_sites_clear(void);

/*
 * Copies at most capacity - 1 bytes as valid UTF-8 without NULs, with '?' for each byte that is
 * not, and ends it with a NUL. Cuts between characters. Returns the length.
 */
size_t ps_copy_utf8(char *to, size_t capacity, const char *from, size_t size);
/* The end of a valid path that fits into PS_FILE_MAX bytes, marked as cut. Returns its length. */
size_t ps_shorten(char *to, const char *path, size_t size);

#endif

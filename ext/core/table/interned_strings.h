/*
 * Names and places at addresses that last. A tracer reads them with str(), from BPF, which cannot
 * fault a page in. It may read them at a later event than the one that carried the address. So each
 * string is copied once, as valid UTF-8, into memory of ours that was written to. It is neither
 * freed nor moved while any probe of the process has a listener. When the last listener has left,
 * ps_sites_clear() frees all of them (docs/decisions/164-names-are-given-back.md). Equal strings
 * are stored once.
 *
 * Called with the VM lock held, so there is one writer. Any thread may read what is returned.
 */
#ifndef PS_INTERNED_STRINGS_H
#define PS_INTERNED_STRINGS_H

#include <stddef.h>
#include <stdint.h>

/*
 * Bytes of ps_site.file. bpftrace's default string has 64 bytes with its NUL, and 0.20 to 0.22
 * append ".." to a string that fills it.
 */
#define PS_FILE_MAX 62
#define PS_NAME_MAX 1023 /* longer names are cut at the end, longer paths at the start */

typedef struct ps_site {
    const char *name; /* function, type or class */
    const char *file; /* at most PS_FILE_MAX bytes, shortened from the left */
    const char *path; /* the whole path */
    uint64_t line;
} ps_site;

/* The site that stands for others when memory is full. */
extern const ps_site ps_site_overflow;
/* For a pointer that must not be NULL: all strings are empty. */
extern const ps_site ps_site_none;

/*
 * Returns the site of this name and place, or ps_site_overflow when memory is full. The strings
 * need no NUL.
 */
const ps_site *ps_site_intern(const char *name, size_t name_size, const char *path, size_t path_size,
                              uint64_t line);

/*
 * Raised by each ps_sites_clear(). Sites of an earlier generation are freed memory. Code that keeps
 * a site compares the generation before it reads the site.
 */
extern uint32_t ps_sites_generation;
/*
 * Frees all names and sites. No hook may run, all tables are clear, and the caller holds the VM
 * lock and ps_flush_lock.
 */
void ps_sites_clear(void);

/*
 * Copies at most capacity - 1 bytes as valid UTF-8, and appends a NUL. Each invalid byte, and each
 * NUL, becomes '?'. Cuts between characters. Returns the length.
 */
size_t ps_copy_utf8(char *to, size_t capacity, const char *from, size_t size);
/*
 * Appends to a name, which has room for PS_NAME_MAX bytes and a NUL; cut to the room that is left.
 * size: the name's length so far. Returns the new length.
 */
size_t ps_name_append(char *name, size_t size, const char *text, size_t length);
/*
 * Writes the end of a valid path, at most PS_FILE_MAX bytes. A path that was cut begins with "...".
 * Returns the length.
 */
size_t ps_shorten(char *to, const char *path, size_t size);

#endif

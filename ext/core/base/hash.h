/*
 * FNV-1a, 64 bits (http://www.isthe.com/chongo/tech/comp/fnv/). It serves tables and names, where
 * an attacker gains nothing by a collision.
 */
#ifndef PS_HASH_H
#define PS_HASH_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t ps_fnv1a(const void *bytes, size_t size)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return hash;
}

/*
 * Returns a number for a text, never 0. It has 48 bits, so a double holds it exactly: many programs
 * read JSON's numbers as doubles.
 */
static inline uint64_t ps_number_of_text(const char *text, size_t size)
{
    return (ps_fnv1a(text, size) >> 16) | 1;
}

#endif

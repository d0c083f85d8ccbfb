/*
 * Returns what a counter grew by since the last call. `before` stores the counter's value at that
 * call. Each caller has a `before` of its own.
 */
#ifndef PS_GROWTH_H
#define PS_GROWTH_H

#include <stdint.h>

static inline uint64_t ps_growth(uint64_t now, uint64_t *before)
{
    uint64_t grown = now - *before;
    *before = now;
    return grown;
}

#endif

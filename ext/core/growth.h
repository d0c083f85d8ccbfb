/*
 * What a counter grew by since the last time it was asked; `before` is where that is kept, one for
 * each who asks.
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

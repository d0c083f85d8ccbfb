/*
 * Numbers for jitter, by xorshift (Marsaglia 2003). The state is the caller's own; it begins with
 * any number but 0.
 */
#ifndef PS_RANDOM_H
#define PS_RANDOM_H

#include <stdint.h>

static inline uint32_t ps_random(uint32_t *state)
{
    uint32_t random = *state;
    random ^= random << 13;
    random ^= random >> 17;
    random ^= random << 5;
    return *state = random;
}

/* A period within 10 % of the given one, so that samples do not fall into step with the program. */
static inline uint64_t ps_jittered(uint64_t period, uint32_t *state)
{
    return period - period / 10 + ps_random(state) % (period / 5);
}

#endif

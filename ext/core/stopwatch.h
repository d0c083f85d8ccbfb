/*
 * Time that this thread was on a CPU, in ticks. On a busy machine most of the time between two
 * moments is others', and what is timed may sleep. The CPU's clock is a system call and counts half
 * of itself; where nothing came between, the ticks are fewer.
 */
#ifndef PS_STOPWATCH_H
#define PS_STOPWATCH_H

#include "clock.h"

typedef struct ps_stopwatch {
    uint64_t cpu, ticks;
} ps_stopwatch;

static inline ps_stopwatch ps_stopwatch_start(void)
{
    uint64_t cpu = ps_clock_read(CLOCK_THREAD_CPUTIME_ID);
    return (ps_stopwatch){.cpu = cpu, .ticks = ps_ticks()};
}

/* Ticks since the start, as far as this thread was on a CPU. */
static inline uint64_t ps_stopwatch_stop(ps_stopwatch since)
{
    uint64_t ticks = ps_ticks() - since.ticks;
    uint64_t cpu = ps_ns_to_ticks(ps_clock_read(CLOCK_THREAD_CPUTIME_ID) - since.cpu);
    return cpu && cpu < ticks ? cpu : ticks;
}

#endif

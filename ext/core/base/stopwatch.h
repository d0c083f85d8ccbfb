/*
 * Time that this thread was on a CPU, in ticks. Wall time is too long: on a busy machine other
 * threads run in between, and the timed code may sleep. The CPU clock alone is too long, too: it is
 * read by a system call, and includes half of that call's time. So the smaller of the two is used.
 * Where nothing came in between, that is the ticks.
 */
#ifndef PS_STOPWATCH_H
#define PS_STOPWATCH_H

#include "base/clock.h"

typedef struct ps_stopwatch {
    uint64_t cpu, ticks;
} ps_stopwatch;

static inline ps_stopwatch ps_stopwatch_start(void)
{
    uint64_t cpu = ps_clock_read(CLOCK_THREAD_CPUTIME_ID);
    return (ps_stopwatch){.cpu = cpu, .ticks = ps_ticks()};
}

/* Ticks on a CPU since the start. */
static inline uint64_t ps_stopwatch_stop(ps_stopwatch since)
{
    uint64_t ticks = ps_ticks() - since.ticks;
    uint64_t cpu = ps_ns_to_ticks(ps_clock_read(CLOCK_THREAD_CPUTIME_ID) - since.cpu);
    return cpu && cpu < ticks ? cpu : ticks;
}

#endif

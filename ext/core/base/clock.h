/*
 * Time: in ticks on the hot path, in ns everywhere else.
 *
 * A tick is a cycle of the CPU's counter (10 ns to read) where the counter can be trusted.
 * Otherwise it is a ns of CLOCK_MONOTONIC from the vDSO (24-34 ns to read). The counter is trusted
 * when the CPU reports it as invariant, the kernel itself uses it to keep time, and two readings at
 * least 40 ms apart give a rate. Ticks from before and after ps_clock_choose() cannot be compared,
 * so it is called only while no hook is in.
 */
#ifndef PS_CLOCK_H
#define PS_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/thread_record.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

struct ps_clock {
    bool counter;   /* ticks are cycles */
    uint64_t scale; /* ns of a tick, times 2^32 */
};
extern struct ps_clock ps_clock;

/* A CPU clock is read by a system call. */
static inline uint64_t ps_clock_read(clockid_t id)
{
    struct timespec t;
    bool ours = id != CLOCK_MONOTONIC && ps_ours_begin();
    clock_gettime(id, &t);
    ps_ours_end(ours);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The same, or 0 where there is no such clock, because the thread has ended. */
static inline uint64_t ps_clock_try(clockid_t id)
{
    struct timespec t;
    bool ours = ps_ours_begin();
    int error = clock_gettime(id, &t);
    ps_ours_end(ours);
    if (error) return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t ps_monotonic_ns(void)
{
    return ps_clock_read(CLOCK_MONOTONIC);
}

static inline uint64_t ps_process_cpu_ns(void)
{
    return ps_clock_read(CLOCK_PROCESS_CPUTIME_ID);
}

static inline uint64_t ps_clock_counter(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    uint64_t value;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
    return value;
#else
    return 0;
#endif
}

static inline uint64_t ps_ticks(void)
{
    return ps_clock.counter ? ps_clock_counter() : ps_monotonic_ns();
}

static inline uint64_t ps_ticks_to_ns(uint64_t ticks)
{
    return ps_clock.counter ? (uint64_t)(((unsigned __int128)ticks * ps_clock.scale) >> 32) : ticks;
}

/* The smallest number of ticks that last at least `ns`. */
static inline uint64_t ps_ns_to_ticks(uint64_t ns)
{
    if (!ps_clock.counter) return ns;
    return (uint64_t)((((unsigned __int128)ns << 32) + ps_clock.scale - 1) / ps_clock.scale);
}

/* Takes the first of two readings. Call it as early as possible. */
void ps_clock_start(void);
/*
 * Takes the second reading and decides. Returns true when ticks are cycles. PROBESCOPE_CLOCK=vdso
 * forces CLOCK_MONOTONIC.
 */
bool ps_clock_choose(void);

#endif

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define MINIMUM_BASELINE_NS 40000000u

struct ps_clock ps_clock = {false, 0};

struct reading {
    uint64_t ns;
    uint64_t counter;
};
static struct reading first;

/*
 * Takes a few pairs of readings, and returns the one whose halves are closest together. A
 * preemption between the halves would distort the rate.
 */
static struct reading read_both(void)
{
    struct reading best = {0, 0};
    uint64_t best_gap = UINT64_MAX;
    for (int i = 0; i < 8; i++) {
        uint64_t before = ps_clock_counter();
        uint64_t ns = ps_monotonic_ns();
        uint64_t after = ps_clock_counter();
        if (after - before < best_gap) {
            best_gap = after - before;
            best = (struct reading){ns, before + (after - before) / 2};
        }
    }
    return best;
}

#if defined(__x86_64__)
static bool kernel_uses_tsc(void)
{
    char name[16] = "";
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
    if (!file) return false;
    bool is_tsc = fgets(name, sizeof(name), file) && strcmp(name, "tsc\n") == 0;
    fclose(file);
    return is_tsc;
}

static bool counter_is_invariant(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(0x80000007, &a, &b, &c, &d)) return false;
    return (d & (1u << 8)) && kernel_uses_tsc();
}
#elif defined(__aarch64__)
/* The architecture guarantees a constant rate, the same on all cores. */
static bool counter_is_invariant(void)
{
    return true;
}
#else
static bool counter_is_invariant(void)
{
    return false;
}
#endif

void ps_clock_start(void)
{
    if (!first.ns) first = read_both();
}

bool ps_clock_choose(void)
{
    const char *forced = getenv("PROBESCOPE_CLOCK");
    if (forced && strcmp(forced, "vdso") == 0) return ps_clock.counter = false;
    struct reading now = read_both();
    uint64_t ns = now.ns - first.ns, cycles = now.counter - first.counter;
    if (!first.ns || ns < MINIMUM_BASELINE_NS || !cycles || !counter_is_invariant())
        return ps_clock.counter = false;
    ps_clock.scale = (uint64_t)(((unsigned __int128)ns << 32) / cycles);
    return ps_clock.counter = true;
}

#include <stdlib.h>

#include "check.h"
#include "base/clock.h"

#define BASELINE_NS 40000000u

/* A moment in ticks, and readings of CLOCK_MONOTONIC from before and after it. */
struct moment {
    uint64_t before, ticks, after;
};

static struct moment now(void)
{
    struct moment moment = {.before = ps_monotonic_ns()};
    moment.ticks = ps_ticks();
    moment.after = ps_monotonic_ns();
    return moment;
}

static void await_ns(uint64_t ns)
{
    uint64_t end = ps_monotonic_ns() + ns;
    AWAIT(ps_monotonic_ns() >= end);
}

/*
 * Checks an interval of any length. It lies between the inner and the outer readings, to a tenth of
 * a percent.
 */
static void check_interval(void)
{
    struct moment first = now();
    await_ns(100000000);
    struct moment last = now();
    uint64_t elapsed = ps_ticks_to_ns(last.ticks - first.ticks);
    uint64_t shortest = last.before - first.after, longest = last.after - first.before;
    CHECK(elapsed >= shortest - shortest / 1000);
    CHECK(elapsed <= longest + longest / 1000);
}

static void is_the_vdso_before_a_first_reading(void)
{
    CHECK(!ps_clock_choose());
    CHECK(!ps_clock.counter);
}

static void does_not_trust_readings_that_are_too_close(void)
{
    uint64_t before = ps_monotonic_ns();
    ps_clock_start();
    bool counter = ps_clock_choose();
    if (ps_monotonic_ns() - before < BASELINE_NS) CHECK(!counter);
}

static void counts_like_clock_monotonic(void)
{
    await_ns(BASELINE_NS);
    ps_clock_start(); /* keeps the first reading */
    bool counter = ps_clock_choose();
    CHECK(counter == ps_clock.counter);
    printf("clock: ticks are %s\n", counter ? "cycles" : "ns of the vDSO");
    check_interval();
}

static void obeys_probescope_clock_vdso(void)
{
    setenv("PROBESCOPE_CLOCK", "vdso", 1);
    CHECK(!ps_clock_choose());
    CHECK(!ps_clock.counter);
    uint64_t before = ps_monotonic_ns(), ticks = ps_ticks(), after = ps_monotonic_ns();
    CHECK(before <= ticks && ticks <= after);
    CHECK_EQUAL(ps_ticks_to_ns(12345), 12345);
    check_interval();

    setenv("PROBESCOPE_CLOCK", "", 1);
    ps_clock_choose();
    check_interval();
    unsetenv("PROBESCOPE_CLOCK");
}

static void converts_any_number_of_ticks(void)
{
    struct ps_clock before = ps_clock;
    ps_clock = (struct ps_clock){.counter = true, .scale = 1u << 31};
    CHECK_EQUAL(ps_ticks_to_ns(0), 0);
    CHECK_EQUAL(ps_ticks_to_ns((uint64_t)1 << 40), (uint64_t)1 << 39);
    CHECK_EQUAL(ps_ticks_to_ns(UINT64_MAX), UINT64_MAX / 2);
    /* A counter slower than 1 GHz, as on most aarch64: 62.5 MHz. */
    ps_clock.scale = (uint64_t)16 << 32;
    CHECK_EQUAL(ps_ticks_to_ns(62500000), 1000000000);
    ps_clock = before;
}

static void measures_the_cpu_time_of_the_process(void)
{
    uint64_t start = ps_process_cpu_ns(), end = start + 5000000;
    while (ps_process_cpu_ns() < end) {
    }
    CHECK(ps_process_cpu_ns() - start >= 5000000);
}

int main(void)
{
    unsetenv("PROBESCOPE_CLOCK");
    RUN(is_the_vdso_before_a_first_reading);
    RUN(does_not_trust_readings_that_are_too_close);
    RUN(counts_like_clock_monotonic);
    RUN(obeys_probescope_clock_vdso);
    RUN(converts_any_number_of_ticks);
    RUN(measures_the_cpu_time_of_the_process);
    return check_report("clock");
}

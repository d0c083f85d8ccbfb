#include "calls/suspended_calls.h"

#include "base/memory.h"
#include "check.h"

static ps_suspended call(uintptr_t frame, uint64_t first)
{
    return (ps_suspended){.frame = PS_ADDRESS(frame), .first = first};
}

static bool takes(uintptr_t frame, uint64_t first)
{
    ps_suspended taken;
    return ps_suspended_take(&ps_suspended_calls, PS_ADDRESS(frame), &taken) &&
           ps_address_equal(taken.frame, PS_ADDRESS(frame)) && taken.first == first;
}

static void takes_what_was_put_once(void)
{
    ps_suspended kept = call(64, 7), taken;
    CHECK(!ps_suspended_take(&ps_suspended_calls, PS_ADDRESS(64), &taken));
    CHECK(ps_suspended_put(&ps_suspended_calls, &kept));
    CHECK(!ps_suspended_take(&ps_suspended_calls, PS_ADDRESS(128), &taken));
    CHECK(takes(64, 7));
    CHECK(!ps_suspended_take(&ps_suspended_calls, PS_ADDRESS(64), &taken));
    ps_suspended_clear(&ps_suspended_calls);
}

static void replaces_what_was_known_of_a_frame(void)
{
    ps_suspended old = call(64, 1), new = call(64, 2), taken;
    ps_suspended_put(&ps_suspended_calls, &old);
    ps_suspended_put(&ps_suspended_calls, &new);
    CHECK(takes(64, 2));
    CHECK(!ps_suspended_take(&ps_suspended_calls, PS_ADDRESS(64), &taken));
    ps_suspended_clear(&ps_suspended_calls);
}

/* The same random puts and takes on a plain array, over many growths and chains. */
static void agrees_with_an_array(void)
{
    enum { FRAMES = 3000, STEPS = 200000 };
    static uint64_t first[FRAMES]; /* 0: not suspended */
    uint64_t random = 88172645463325252u;
    for (int step = 1; step <= STEPS; step++) {
        uint64_t i = check_random(&random) % FRAMES;
        uintptr_t frame = (uintptr_t)(i + 1) * 16;
        ps_suspended taken, kept = call(frame, (uint64_t)step);
        if (check_random(&random) % 2) {
            CHECK(ps_suspended_put(&ps_suspended_calls, &kept));
            first[i] = (uint64_t)step;
        } else {
            bool known = ps_suspended_take(&ps_suspended_calls, PS_ADDRESS(frame), &taken);
            CHECK_EQUAL(known, first[i] != 0);
            if (known) CHECK_EQUAL(taken.first, first[i]);
            first[i] = 0;
        }
    }
    for (uint64_t i = 0; i < FRAMES; i++)
        if (first[i]) CHECK(takes((uintptr_t)(i + 1) * 16, first[i]));
    ps_suspended_clear(&ps_suspended_calls);
}

static void gives_its_memory_back_and_does_without(void)
{
    size_t before = ps_memory_used();
    ps_memory_set_limit(before + 64 * sizeof(ps_suspended));
    int kept = 0;
    for (uintptr_t frame = 16; frame <= 16 * 200; frame += 16) {
        ps_suspended one = call(frame, frame);
        kept += ps_suspended_put(&ps_suspended_calls, &one);
    }
    CHECK(kept > 32 && kept < 64);
    ps_suspended none;
    /* The search ends, although the table is nearly full. */
    CHECK(!ps_suspended_take(&ps_suspended_calls, PS_ADDRESS(16 * 200), &none));
    CHECK(takes(16, 16));
    ps_suspended_clear(&ps_suspended_calls);
    CHECK_EQUAL(ps_memory_used(), before);
    ps_memory_set_limit(0);
}

int main(void)
{
    RUN(takes_what_was_put_once);
    RUN(replaces_what_was_known_of_a_frame);
    RUN(agrees_with_an_array);
    RUN(gives_its_memory_back_and_does_without);
    return check_report("suspended_calls");
}

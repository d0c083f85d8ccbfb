#include "calls/open_calls.h"

#include "base/memory.h"
#include "check.h"

static uint32_t frames;

static uint32_t real_depth(void)
{
    return frames;
}

static void enter(ps_open_calls *calls, uint64_t key, uint64_t now)
{
    ps_open_call *call = ps_open_calls_enter(calls, key);
    if (call) call->start_ns = now;
}

/* Returns when the call began that this exit closes; 0: none. */
static uint64_t leave(ps_open_calls *calls, uint64_t key)
{
    ps_open_call left = {0};
    return ps_open_calls_leave(calls, key, real_depth, &left) ? left.start_ns : 0;
}

static void pairs_entries_and_exits(void)
{
    ps_open_calls *calls = ps_open_calls_new();
    CHECK_EQUAL(leave(calls, 1), 0);
    enter(calls, 1, 10);
    enter(calls, 2, 20);
    enter(calls, 1, 30);
    CHECK_EQUAL(leave(calls, 1), 30);
    CHECK_EQUAL(leave(calls, 2), 20);
    CHECK_EQUAL(leave(calls, 1), 10);
    CHECK_EQUAL(leave(calls, 1), 0);
    ps_open_calls_free(calls);
    CHECK_EQUAL(ps_memory_used(), 0);
}

static void ignores_strange_exits_and_drops_what_they_leave_open(void)
{
    ps_open_calls *calls = ps_open_calls_new();
    enter(calls, 1, 10);
    enter(calls, 2, 20);
    CHECK_EQUAL(leave(calls, 3), 0);
    CHECK_EQUAL(calls->depth, 2);
    CHECK_EQUAL(leave(calls, 1), 10);
    CHECK_EQUAL(leave(calls, 2), 0);
    ps_open_calls_free(calls);
}

static void begins_again_when_the_vm_has_fewer_frames(void)
{
    ps_open_calls *calls = ps_open_calls_new();
    for (uint64_t i = 1; i <= 2000; i++) enter(calls, 1, i);
    frames = 2000;
    CHECK_EQUAL(leave(calls, 1), 2000);
    /* The recursion has turned back already. The VM is not asked until calls are entered again. */
    frames = 3;
    CHECK_EQUAL(leave(calls, 1), 1999);
    enter(calls, 1, 5000);
    CHECK_EQUAL(leave(calls, 1), 5000);
    CHECK_EQUAL(calls->depth, 0);
    for (uint64_t i = 1; i <= 2000; i++) enter(calls, 1, i);
    CHECK_EQUAL(leave(calls, 2), 0);
    enter(calls, 2, 6000);
    CHECK_EQUAL(leave(calls, 2), 6000);
    ps_open_calls_free(calls);
}

static void counts_those_without_memory(void)
{
    ps_open_calls *calls = ps_open_calls_new();
    frames = UINT32_MAX;
    for (uint64_t i = 1; i <= PS_OPEN_CALLS_MAX + 10; i++) enter(calls, 1, i);
    for (int i = 0; i < 10; i++) CHECK_EQUAL(leave(calls, 1), 0);
    CHECK_EQUAL(leave(calls, 1), PS_OPEN_CALLS_MAX);
    ps_open_calls_free(calls);
    CHECK_EQUAL(ps_memory_used(), 0);
}

int main(void)
{
    RUN(pairs_entries_and_exits);
    RUN(ignores_strange_exits_and_drops_what_they_leave_open);
    RUN(begins_again_when_the_vm_has_fewer_frames);
    RUN(counts_those_without_memory);
    return check_report("open_calls");
}

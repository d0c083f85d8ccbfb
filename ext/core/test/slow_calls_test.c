#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "agent/watcher.h"
#include "base/clock.h"
#include "calls/shadow_stack.h"
#include "features/requests.h"
#include "features/slow_calls.h"
#include "table/table.h"
#include "recorder.h"
#include "test_vm.h"

enum { MS = 1000000 };

#define SPAN "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

static const enum ps_probe probes[] = {PS_PROBE_FUNCTION__SLOW1MS, PS_PROBE_FUNCTION__SLOW10MS,
                                       PS_PROBE_FUNCTION__SLOW100MS};

static ps_row *function(const char *name)
{
    const ps_site *site = ps_site_intern(name, strlen(name), "/app/a.rb", 9, 12);
    ps_row *row = ps_table_row(&ps_function_table, (uintptr_t)site, 0, 0);
    row->site = site;
    return row;
}

static void enter(ps_stack *stack, const char *name, uint64_t now)
{
    ps_stack_enter(stack, function(name), NULL)->start = now;
}

static void leave(ps_stack *stack, const char *name, uint64_t now, int outcome)
{
    ps_call call;
    ps_row *row = function(name);
    CHECK(ps_stack_leave(stack, row, now, outcome, &call));
    if (ps_slow_reached(&call)) ps_slow_fire(row, stack, &call, outcome);
}

static void returns(ps_stack *stack, const char *name, uint64_t now)
{
    leave(stack, name, now, PS_OUTCOME_RETURNED);
}

static void listen(bool ms1, bool ms10, bool ms100)
{
    recorder_semaphore(PS_PROBE_FUNCTION__SLOW1MS, ms1);
    recorder_semaphore(PS_PROBE_FUNCTION__SLOW10MS, ms10);
    recorder_semaphore(PS_PROBE_FUNCTION__SLOW100MS, ms100);
    ps_slow_listen((ms1 ? PS_BIT(FUNCTION__SLOW1MS) : 0) | (ms10 ? PS_BIT(FUNCTION__SLOW10MS) : 0) |
                   (ms100 ? PS_BIT(FUNCTION__SLOW100MS) : 0));
}

static void begin_again(void)
{
    listen(false, false, false);
    recorder_forget();
    ps_stack_epoch++;
    ps_table_clear(&ps_function_table);
}

static void fires_every_threshold_that_a_call_reached(void)
{
    ps_stack *stack = ps_stack_new();
    static const uint64_t elapsed[] = {1 * MS - 1, 1 * MS, 10 * MS - 1, 10 * MS, 100 * MS};
    static const int fired[] = {0, 1, 1, 2, 3};
    for (int i = 0; i < 5; i++) {
        listen(true, true, true);
        enter(stack, "f", 1000);
        returns(stack, "f", 1000 + elapsed[i]);
        CHECK_EQUAL(recorder_total(), fired[i]);
        uint64_t id = recorder_at(0).more.slow.span_id;
        for (int t = 0; t < fired[i]; t++) {
            struct recorded event = recorder_last(probes[t], "f");
            CHECK_EQUAL(event.arg[2], 12);
            CHECK_EQUAL(event.arg[3], elapsed[i]);
            CHECK_EQUAL(event.arg[4], elapsed[i]);
            CHECK_STRING(event.more.slow.path, "/app/a.rb");
            CHECK_STRING(event.traceparent, SPAN);
            CHECK_EQUAL(event.more.slow.thread_id, gettid());
            CHECK_EQUAL(event.more.slow.span_id, id);
            CHECK(id != 0);
        }
        recorder_forget();
    }
    ps_stack_free(stack);
    begin_again();
}

static void fires_what_is_listened_to_alone(void)
{
    ps_stack *stack = ps_stack_new();
    for (int t = 0; t < 3; t++) {
        listen(t == 0, t == 1, t == 2);
        enter(stack, "f", 0);
        returns(stack, "f", 500 * MS);
        CHECK_EQUAL(recorder_total(), 1);
        CHECK_EQUAL(recorder_count(probes[t], "f"), 1);
        recorder_forget();
    }
    listen(false, false, false);
    enter(stack, "f", 0);
    returns(stack, "f", 500 * MS);
    CHECK_EQUAL(recorder_total(), 0);
    ps_stack_free(stack);
    begin_again();
}

static void names_the_enclosing_call_which_fires_later_with_that_id(void)
{
    ps_stack *stack = ps_stack_new();
    listen(true, false, false);
    enter(stack, "outer", 0);
    enter(stack, "middle", 1 * MS);
    enter(stack, "quick", 1 * MS);
    returns(stack, "quick", 1 * MS + 10);
    enter(stack, "a", 2 * MS);
    leave(stack, "a", 4 * MS, PS_OUTCOME_RAISED);
    enter(stack, "b", 5 * MS);
    returns(stack, "b", 8 * MS);
    returns(stack, "middle", 9 * MS);
    returns(stack, "outer", 10 * MS);
    CHECK_EQUAL(recorder_total(), 4);
    struct ps_more_function__slow1ms a = recorder_at(0).more.slow, b = recorder_at(1).more.slow;
    struct ps_more_function__slow1ms middle = recorder_at(2).more.slow, outer = recorder_at(3).more.slow;
    CHECK_EQUAL(a.parent_id, middle.span_id);
    CHECK_EQUAL(b.parent_id, middle.span_id);
    CHECK_EQUAL(middle.parent_id, outer.span_id);
    CHECK_EQUAL(outer.parent_id, 0);
    CHECK_EQUAL(outer.request_id, 77);
    CHECK(a.span_id != b.span_id && a.span_id != middle.span_id && middle.span_id != outer.span_id);
    CHECK_EQUAL(a.outcome, PS_OUTCOME_RAISED);
    CHECK_EQUAL(b.outcome, PS_OUTCOME_RETURNED);
    CHECK_EQUAL(recorder_at(2).arg[4], 3 * MS - 10); /* 8 ms without 10 ns, 2 ms and 3 ms */
    CHECK_EQUAL(recorder_at(3).arg[4], 2 * MS);
    ps_stack_free(stack);
    begin_again();
}

static void takes_suspensions_from_self_and_not_from_elapsed(void)
{
    ps_stack *stack = ps_stack_new();
    listen(true, false, false);
    enter(stack, "outer", 0);
    enter(stack, "inner", 1 * MS);
    ps_stack_suspend(stack, 2 * MS);
    ps_stack_resume(stack, 12 * MS);
    returns(stack, "inner", 13 * MS);
    ps_stack_suspend(stack, 14 * MS);
    ps_stack_resume(stack, 34 * MS);
    returns(stack, "outer", 35 * MS);
    CHECK_EQUAL(recorder_at(0).arg[3], 12 * MS);
    CHECK_EQUAL(recorder_at(0).arg[4], 2 * MS);
    CHECK_EQUAL(recorder_at(1).arg[3], 35 * MS);
    CHECK_EQUAL(recorder_at(1).arg[4], 3 * MS);
    /* In statistics, self time includes the time of waiting: self and callees add up to elapsed. */
    CHECK_EQUAL(function("outer")->count[PS_FUNCTION_SELF], 23 * MS);
    ps_stack_free(stack);
    begin_again();
}

static void takes_the_suspensions_of_abandoned_callees_with_them(void)
{
    ps_stack *stack = ps_stack_new();
    listen(true, false, false);
    enter(stack, "outer", 0);
    enter(stack, "abandoned", 1 * MS);
    ps_stack_suspend(stack, 2 * MS);
    ps_stack_resume(stack, 12 * MS);
    returns(stack, "outer", 13 * MS);
    CHECK_EQUAL(recorder_total(), 1);
    CHECK_EQUAL(recorder_at(0).arg[4], 3 * MS);
    ps_stack_free(stack);
    begin_again();
}

static void knows_no_suspension_of_an_earlier_attach(void)
{
    ps_stack *stack = ps_stack_new();
    enter(stack, "f", 0);
    ps_stack_suspend(stack, 1 * MS);
    begin_again();
    listen(true, false, false);
    ps_stack_resume(stack, 5 * MS);
    enter(stack, "f", 10 * MS);
    returns(stack, "f", 20 * MS);
    CHECK_EQUAL(recorder_at(0).arg[4], 10 * MS);
    ps_stack_suspend(stack, 30 * MS);
    begin_again();
    listen(true, false, false);
    enter(stack, "f", 40 * MS);
    ps_stack_resume(stack, 45 * MS);
    returns(stack, "f", 50 * MS);
    CHECK_EQUAL(recorder_at(0).arg[4], 10 * MS);
    ps_stack_free(stack);
    begin_again();
}

static void gives_a_forked_child_other_ids_for_the_same_calls(void)
{
    ps_stack *stack = ps_stack_new();
    listen(true, false, false);
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    enter(stack, "outer", 0);
    enter(stack, "inner", 0);
    returns(stack, "inner", 2 * MS);
    uint64_t before = recorder_at(0).more.slow.parent_id;
    pid_t child = fork();
    if (child == 0) {
        returns(stack, "outer", 3 * MS);
        uint64_t id = recorder_at(1).more.slow.span_id;
        _exit(write(pipes[1], &id, sizeof(id)) == sizeof(id) ? 0 : 1);
    }
    returns(stack, "outer", 3 * MS);
    uint64_t id = 0;
    CHECK(read(pipes[0], &id, sizeof(id)) == sizeof(id));
    waitpid(child, NULL, 0);
    CHECK_EQUAL(recorder_at(1).more.slow.span_id, before);
    CHECK(id && id != before);
    close(pipes[0]);
    close(pipes[1]);
    ps_stack_free(stack);
    begin_again();
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void never_gives_an_id_twice(void)
{
    enum { CALLS = 20000 };
    static uint64_t ids[CALLS];
    ps_stack *stack = ps_stack_new();
    listen(true, false, false);
    int high = 0;
    for (int i = 0; i < CALLS; i++) {
        enter(stack, "f", 0);
        returns(stack, "f", 1 * MS);
        ids[i] = recorder_at(0).more.slow.span_id;
        high += ids[i] >> 63;
        recorder_forget();
    }
    qsort(ids, CALLS, sizeof(ids[0]), compare);
    bool twice = false;
    for (int i = 1; i < CALLS; i++) twice |= ids[i] == ids[i - 1];
    CHECK(!twice && ids[0]);
    /* The ids look random: as many begin with a 1 as with a 0, within 8 standard deviations. */
    CHECK(high > CALLS / 2 - 566 && high < CALLS / 2 + 566);
    ps_stack_free(stack);
    begin_again();
}

int main(void)
{
    ps_request request = {.span_id = 77};
    test_vm.request = &request;
    test_vm_set_span(SPAN);
    RUN(fires_every_threshold_that_a_call_reached);
    RUN(fires_what_is_listened_to_alone);
    RUN(names_the_enclosing_call_which_fires_later_with_that_id);
    RUN(takes_suspensions_from_self_and_not_from_elapsed);
    RUN(takes_the_suspensions_of_abandoned_callees_with_them);
    RUN(knows_no_suspension_of_an_earlier_attach);
    RUN_FORKING(gives_a_forked_child_other_ids_for_the_same_calls);
    RUN(never_gives_an_id_twice);
    return check_report("slow_calls");
}

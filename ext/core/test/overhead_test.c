#include "agent/overhead.h"

#include <stdlib.h>

#include "agent/switching.h"
#include "agent/watcher.h"
#include "base/atomic.h"
#include "calls/shadow_stack.h"
#include "features/backtraces.h"
#include "features/exceptions.h"
#include "features/functions.h"
#include "features/lines.h"
#include "features/objects.h"
#include "table/flush.h"
#include "table/table.h"
#include "usdt/info.h"
#include "check.h"
#include "recorder.h"

#define MS 1000000u

static ps_row *rows[6];

static void limit(const char *text)
{
    if (text) setenv("PROBESCOPE_MAX_OVERHEAD", text, 1);
    else unsetenv("PROBESCOPE_MAX_OVERHEAD");
    ps_info_note("");
    ps_overhead_start();
}

/* Makes functions 0 to 5, each with its own name. */
static void begin_again(void)
{
    ps_overhead_listened(0);
    ps_overhead_begin();
    ps_table_clear(&ps_function_table);
    for (int i = 0; i < 6; i++) {
        char name[] = {(char)('a' + i), 0};
        const ps_site *site = ps_site_intern(name, 1, "/app/a.rb", 9, (uint64_t)i + 1);
        rows[i] = ps_table_row(&ps_function_table, (uintptr_t)site, 0, 0);
        rows[i]->site = site;
    }
    limit("5%");
}

static void call(int function, uint64_t times)
{
    rows[function]->count[PS_FUNCTION_CALLS] += times;
}

static ps_overhead_window window_of(ps_look_kind kind, uint64_t ns, uint64_t runs)
{
    ps_overhead_window window = {.cpu_ns = 200 * MS};
    window.looked.ns[kind] = ns;
    window.looked.runs[kind] = runs;
    return window;
}

static void reads_percentages(void)
{
    static const struct {
        const char *text;
        uint32_t limit;
    } right[] = {{"5%", 50000},  {"5", 50000},      {"0.5%", 5000}, {"12.25%", 122500},
                 {"05%", 50000}, {"100%", 1000000}, {"0.0001%", 1}, {"2.%", 20000}};
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        limit(right[i].text);
        CHECK_EQUAL(ps_overhead_limit, right[i].limit);
        CHECK_STRING(probescope_info.note, "");
    }
    limit(NULL);
    CHECK_EQUAL(ps_overhead_limit, 0);
    CHECK_STRING(probescope_info.note, "");
}

static void has_no_limit_and_says_so_where_it_is_no_percentage(void)
{
    static const char *const wrong[] = {
        "abc", "-3%", "200%", "", "0", "%", "5%%", "5 %", "1e1%", "99999999999999999999", "0.00000001%"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        limit(wrong[i]);
        CHECK_EQUAL(ps_overhead_limit, 0);
        CHECK(strstr(probescope_info.note, wrong[i]) && strstr(probescope_info.note, "is no percentage"));
    }
    limit(NULL);
}

/* Judges a window of 200 ms CPU time in which the hooks of calls took `ns`. */
static uint32_t judge_calls(uint64_t ns, uint64_t runs)
{
    ps_overhead_window window = window_of(PS_LOOK_FUNCTION, ns, runs);
    return ps_overhead_judge(&window, PS_BIT(FUNCTION__STATS), 12345);
}

static void leaves_all_where_hooks_are_below_the_limit(void)
{
    begin_again();
    for (int i = 0; i < 5; i++) {
        call(0, 4000);
        CHECK_EQUAL(judge_calls(8 * MS, 8000), 0);
    }
    CHECK(!rows[0]->function.excluded && rows[0]->function.out_ns == 0);
}

static void takes_nothing_for_one_window_above_it(void)
{
    begin_again();
    for (int i = 0; i < 6; i++) {
        call(0, 100000);
        CHECK_EQUAL(judge_calls(i % 2 ? 100 * MS : MS, 200000), 0);
    }
    CHECK(!rows[0]->function.excluded);
}

/* As many as needed and no more, the most called first. */
static void takes_the_most_called_functions(void)
{
    static const uint64_t calls[] = {100, 60000, 500, 30000, 9000, 0};
    begin_again();
    call(0, 5000000); /* before the windows */
    CHECK_EQUAL(judge_calls(100 * MS, 200000), 0);
    for (int i = 0; i < 6; i++) call(i, calls[i]);
    CHECK_EQUAL(judge_calls(99600 * 1000u, 199200), 0);
    CHECK(rows[1]->function.excluded && rows[1]->function.out_ns == 12345);
    CHECK(rows[3]->function.excluded && rows[3]->function.out_ns == 12345);
    /* An event takes 0.5 us. The remaining 9,600 calls take 9.6 ms of 110 ms. */
    CHECK(rows[4]->function.excluded);
    CHECK(!rows[0]->function.excluded && !rows[2]->function.excluded && !rows[5]->function.excluded);
    CHECK_EQUAL(ps_info_state_of(PS_PROBE_FUNCTION__STATS), PS_STATE_DEGRADED);
    CHECK_STRING(probescope_info.probes[PS_PROBE_FUNCTION__STATS].reason,
                 "3 functions are not counted any more: PROBESCOPE_MAX_OVERHEAD=5%");
}

/*
 * Hooks whose time belongs to no function. When the VM cannot leave a function out (CPython 3.11),
 * it still calls the hooks.
 */
static void takes_the_probe_where_functions_are_not_enough(void)
{
    begin_again();
    CHECK_EQUAL(judge_calls(100 * MS, 200000), 0);
    call(0, 10);
    CHECK_EQUAL(judge_calls(100 * MS, 200000), ps_functions_feature.probes);
    CHECK(!rows[0]->function.excluded);
}

/* Functions are taken out only where that is enough. */
static void takes_the_dearest_probe_where_the_others_alone_are_too_dear(void)
{
    begin_again();
    ps_probe_set wanted = PS_BIT(FUNCTION__STATS) | PS_BIT(OBJECT__STATS) | PS_BIT(EXCEPTION__STATS);
    for (int i = 0; i < 2; i++) {
        call(0, 10000);
        ps_overhead_window window = window_of(PS_LOOK_FUNCTION, 20 * MS, 20000);
        window.looked.ns[PS_LOOK_OBJECT] = 30 * MS;
        window.looked.ns[PS_LOOK_EXCEPTION] = 20 * MS;
        window.looked.ns[PS_LOOK_BACKTRACE] = 15 * MS;
        /* No tracer listens to lines: these runs are older than the window. */
        window.looked.ns[PS_LOOK_LINE] = 100 * MS;
        ps_probe_set out = ps_overhead_judge(&window, wanted, 12345);
        CHECK_EQUAL(out, i ? ps_exceptions_feature.probes | ps_backtraces_feature.probes : 0);
    }
    CHECK(!rows[0]->function.excluded);
}

static void says_what_is_out_until_nobody_listens_to_it(void)
{
    begin_again();
    ps_overhead_take_out(ps_objects_feature.probes, 777);
    CHECK_EQUAL(ps_info_state_of(PS_PROBE_OBJECT__STATS), PS_STATE_REFUSED);
    CHECK_EQUAL(probescope_info.probes[PS_PROBE_OBJECT__STATS].out_ns, 777);
    CHECK_EQUAL(ps_overhead_listened(PS_BIT(OBJECT__STATS) | PS_BIT(LINE)), PS_BIT(OBJECT__STATS));
    CHECK_EQUAL(ps_overhead_listened(PS_BIT(OBJECT__ALLOC)), PS_BIT(OBJECT__ALLOC));
    CHECK_EQUAL(ps_overhead_listened(PS_BIT(LINE)), 0);
    CHECK_EQUAL(ps_overhead_listened(PS_BIT(OBJECT__STATS)), 0);
    CHECK_EQUAL(ps_info_state_of(PS_PROBE_OBJECT__STATS), PS_STATE_OFF);
    CHECK_EQUAL(probescope_info.probes[PS_PROBE_OBJECT__STATS].out_ns, 0);
}

static void has_everything_again_in_a_forked_child(void)
{
    begin_again();
    CHECK(!ps_overhead_after_fork());
    CHECK_EQUAL(judge_calls(100 * MS, 200000), 0);
    call(0, 100000);
    judge_calls(100 * MS, 200000);
    ps_overhead_take_out(ps_lines_feature.probes, 777);
    CHECK(rows[0]->function.excluded);
    CHECK(ps_overhead_after_fork());
    CHECK(!rows[0]->function.excluded && rows[0]->function.out_ns == 0);
    CHECK_EQUAL(ps_overhead_out, 0);
}

/*
 * A function that was taken out is fired at each flush, with the moment. What it had counted is
 * fired once.
 */
static void tells_of_a_function_that_is_out(void)
{
    begin_again();
    recorder_lower_all();
    RAISE(FUNCTION__STATS);
    call(0, 7);
    rows[0]->function.out_ns = 4321;
    for (int i = 0; i < 2; i++) {
        recorder_forget();
        ps_flush();
        CHECK_EQUAL(recorder_count(PS_PROBE_FUNCTION__STATS, NULL), 1);
        struct recorded told = recorder_last(PS_PROBE_FUNCTION__STATS, "a");
        CHECK_EQUAL(told.arg[3], i ? 0 : 7);
        CHECK_EQUAL(told.more.function.out, 4321);
    }
    recorder_lower_all();
}

/*
 * A call whose function is taken out while it is open counts as if it had not been there. The calls
 * that it made keep their own time. The rest belongs to its caller.
 */
static void leaves_no_call_of_a_function_that_is_out_on_a_stack(void)
{
    begin_again();
    ps_stack *stack = ps_stack_new();
    ps_call left;
    ps_stack_enter(stack, rows[0], NULL)->start = 100;
    ps_stack_enter(stack, rows[1], NULL)->start = 200;
    ps_stack_enter(stack, rows[2], NULL)->start = 210;
    CHECK(ps_stack_leave(stack, rows[2], 250, PS_OUTCOME_RETURNED, &left));
    rows[1]->function.excluded = PS_NOT_COVERED;
    PS_WRITE(ps_overhead_functions, true);
    ps_stack_enter(stack, rows[2], NULL)->start = 300;
    CHECK_EQUAL(ps_stack_depth(stack), 2);
    CHECK(ps_stack_leave(stack, rows[2], 350, PS_OUTCOME_RETURNED, &left));
    CHECK(ps_stack_leave(stack, rows[0], 1000, PS_OUTCOME_RETURNED, &left));
    CHECK_EQUAL(left.elapsed, 900);
    CHECK_EQUAL(left.self, 900 - 40 - 50);
    CHECK_EQUAL(rows[1]->count[PS_FUNCTION_CALLS], 0);
    CHECK_EQUAL(rows[1]->count[PS_FUNCTION_RAISED], 0);
    CHECK(rows[1]->function.active == NULL);
    ps_stack_free(stack);
}

int main(void)
{
    RUN(reads_percentages);
    RUN(has_no_limit_and_says_so_where_it_is_no_percentage);
    RUN(leaves_all_where_hooks_are_below_the_limit);
    RUN(takes_nothing_for_one_window_above_it);
    RUN(takes_the_most_called_functions);
    RUN(takes_the_probe_where_functions_are_not_enough);
    RUN(takes_the_dearest_probe_where_the_others_alone_are_too_dear);
    RUN(says_what_is_out_until_nobody_listens_to_it);
    RUN(has_everything_again_in_a_forked_child);
    RUN(tells_of_a_function_that_is_out);
    RUN(leaves_no_call_of_a_function_that_is_out_on_a_stack);
    return check_report("overhead");
}

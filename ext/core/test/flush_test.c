#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/memory.h"
#include "calls/shadow_stack.h"
#include "features/exceptions.h"
#include "features/objects.h"
#include "features/samples.h"
#include "table/flush.h"
#include "table/table.h"
#include "usdt/info.h"
#include "check.h"
#include "recorder.h"

static ps_table *const tables[] = {&ps_function_table, &ps_exception_table, &ps_object_table,
                                   &ps_sample_table};

static ps_row *row_of(ps_table *table, const char *name)
{
    const ps_site *site = ps_site_intern(name, strlen(name), "/app/a.rb", 9, 12);
    ps_row *row = ps_table_row(table, (uintptr_t)site, 0, 0);
    if (!row->site) PS_WRITE_RELEASE(row->site, site);
    return row;
}

static const ps_site *place(const char *name, const char *path, uint64_t line)
{
    return ps_site_intern(name, strlen(name), path, strlen(path), line);
}

static void begin_again(void)
{
    recorder_lower_all();
    for (int i = 0; i < 4; i++) ps_table_clear(tables[i]);
    ps_flush();
    recorder_forget();
}

/* Flushes, and returns the event that ended the flush. */
static struct recorded flush(void)
{
    recorder_forget();
    ps_flush();
    return recorder_last(PS_PROBE_STATS__DONE, NULL);
}

static void fires_nothing_that_nobody_listens_to(void)
{
    CHECK(!ps_flush_wanted());
    for (int i = 0; i < 4; i++) row_of(tables[i], "f")->count[i == 3 ? PS_SAMPLE_TOTAL_SAMPLES : 0] = 5;
    flush();
    CHECK_EQUAL(recorder_total(), 0);
    RAISE(OBJECT__STATS);
    flush();
    CHECK_EQUAL(recorder_total(), 1);
    CHECK_EQUAL(recorder_count(PS_PROBE_OBJECT__STATS, "f"), 1);
    begin_again();
}

static void knows_which_probes_it_serves(void)
{
    static const enum ps_probe served[] = {
        PS_PROBE_FUNCTION__STATS, PS_PROBE_EXCEPTION__STATS, PS_PROBE_OBJECT__STATS,
        PS_PROBE_SAMPLE__STATS,   PS_PROBE_SAMPLE__FRAME,    PS_PROBE_STACK__FRAME,
        PS_PROBE_WAIT__STATS,     PS_PROBE_STATS__DONE,      PS_PROBE_STATUS};
    for (int probe = 0; probe < PS_PROBE_COUNT; probe++) {
        bool is_served = false;
        for (size_t i = 0; i < sizeof(served) / sizeof(served[0]); i++)
            is_served |= served[i] == (enum ps_probe)probe;
        recorder_semaphore((enum ps_probe)probe, 1);
        CHECK(ps_flush_wanted() == is_served);
        recorder_lower_all();
    }
}

static void fires_what_a_function_grew_by(void)
{
    RAISE(FUNCTION__STATS);
    ps_row *f = row_of(&ps_function_table, "f");
    f->count[PS_FUNCTION_CALLS] = 3;
    f->count[PS_FUNCTION_SELF] = 100;
    f->count[PS_FUNCTION_ELAPSED] = 300;
    f->count[PS_FUNCTION_RAISED] = 1;
    f->count[PS_FUNCTION_MAX] = 250;
    flush();
    struct recorded event = recorder_last(PS_PROBE_FUNCTION__STATS, "f");
    CHECK_STRING(event.text[1], "/app/a.rb");
    CHECK_EQUAL(event.arg[2], 12);
    CHECK_EQUAL(event.arg[3], 3);
    CHECK_EQUAL(event.arg[4], 100);
    CHECK_STRING(event.more.function.path, "/app/a.rb");
    CHECK_EQUAL(event.more.function.elapsed, 300);
    CHECK_EQUAL(event.more.function.max, 250);
    CHECK_EQUAL(event.more.function.raised, 1);
    CHECK_EQUAL(event.more.function.resumed, 0);

    f->count[PS_FUNCTION_CALLS] += 2;
    f->count[PS_FUNCTION_SELF] += 7;
    f->count[PS_FUNCTION_ELAPSED] += 9;
    f->count[PS_FUNCTION_RESUMED] += 4;
    f->count[PS_FUNCTION_MAX] = 5; /* hooks find 0 after a flush */
    flush();
    event = recorder_last(PS_PROBE_FUNCTION__STATS, "f");
    CHECK_EQUAL(event.arg[3], 2);
    CHECK_EQUAL(event.arg[4], 7);
    CHECK_EQUAL(event.more.function.elapsed, 9);
    CHECK_EQUAL(event.more.function.max, 5);
    CHECK_EQUAL(event.more.function.raised, 0);
    CHECK_EQUAL(event.more.function.resumed, 4);
    begin_again();
}

static void turns_ticks_into_ns(void)
{
    RAISE(FUNCTION__STATS);
    RAISE(SAMPLE__STATS);
    ps_clock = (struct ps_clock){.counter = true, .scale = 1u << 31}; /* 2 GHz */
    ps_row *f = row_of(&ps_function_table, "f"), *sampled = row_of(&ps_sample_table, "f");
    f->count[PS_FUNCTION_CALLS] = 1;
    f->count[PS_FUNCTION_SELF] = 2000;
    f->count[PS_FUNCTION_ELAPSED] = 3000;
    f->count[PS_FUNCTION_MAX] = 4000;
    sampled->count[PS_SAMPLE_SELF] = 5000; /* CPU time, already in ns */
    sampled->count[PS_SAMPLE_TOTAL_SAMPLES] = 1;
    flush();
    struct recorded event = recorder_last(PS_PROBE_FUNCTION__STATS, "f");
    CHECK_EQUAL(event.arg[4], 1000);
    CHECK_EQUAL(event.more.function.elapsed, 1500);
    CHECK_EQUAL(event.more.function.max, 2000);
    CHECK_EQUAL(recorder_last(PS_PROBE_SAMPLE__STATS, "f").arg[3], 5000);
    ps_clock = (struct ps_clock){false, 0};
    begin_again();
}

static void is_silent_about_rows_that_did_not_change(void)
{
    for (int i = 0; i < PS_PROBE_COUNT; i++) recorder_semaphore((enum ps_probe)i, 1);
    for (int i = 0; i < 4; i++) {
        row_of(tables[i], "f")->count[0] = 1;
        row_of(tables[i], "g")->count[0] = 1;
        row_of(tables[i], "never");
    }
    row_of(&ps_sample_table, "f")->count[PS_SAMPLE_TOTAL_SAMPLES] =
        row_of(&ps_sample_table, "g")->count[PS_SAMPLE_TOTAL_SAMPLES] = 1;
    CHECK_EQUAL(flush().arg[3], 8);
    CHECK_EQUAL(recorder_total(), 9);
    CHECK_EQUAL(recorder_count(PS_PROBE_OBJECT__STATS, "never"), 0);
    CHECK_EQUAL(flush().arg[3], 0);
    CHECK_EQUAL(recorder_total(), 1);
    row_of(&ps_function_table, "g")->count[PS_FUNCTION_CALLS]++;
    CHECK_EQUAL(flush().arg[3], 1);
    CHECK_EQUAL(recorder_count(PS_PROBE_FUNCTION__STATS, "g"), 1);
    begin_again();
}

static void waits_for_the_name_of_a_row(void)
{
    RAISE(OBJECT__STATS);
    ps_row *row = ps_table_row(&ps_object_table, 1, 2, 3);
    row->count[PS_OBJECT_COUNT] = 4;
    row->count[PS_OBJECT_BYTES] = 160;
    flush();
    CHECK_EQUAL(recorder_total(), 0);
    row->site = place("String", "a.rb", 1);
    flush();
    CHECK_EQUAL(recorder_last(PS_PROBE_OBJECT__STATS, "String").arg[3], 4);
    CHECK_EQUAL(recorder_last(PS_PROBE_OBJECT__STATS, "String").arg[4], 160);
    begin_again();
}

static void counts_as_dropped_what_there_was_no_memory_to_name(void)
{
    RAISE(OBJECT__STATS);
    RAISE(STATS__DONE);
    flush();
    ps_row *row = ps_table_row(&ps_object_table, 1, 2, 3);
    row->site = &ps_site_overflow;
    row->count[PS_OBJECT_COUNT] = 4;
    CHECK_EQUAL(flush().arg[4], 4);
    CHECK_EQUAL(recorder_last(PS_PROBE_OBJECT__STATS, "(overflow)").arg[3], 4);
    CHECK_EQUAL(flush().arg[4], 0);
    begin_again();
}

static void fires_an_exception_with_all_its_places(void)
{
    RAISE(EXCEPTION__STATS);
    ps_row *row = row_of(&ps_exception_table, "KeyError");
    row->count[PS_EXCEPTION_RAISED] = 2;
    row->count[PS_EXCEPTION_COST] = 5000;
    row->count[PS_EXCEPTION_DEPTH] = 90;
    row->count[PS_EXCEPTION_DEPTH_MAX] = 60;
    flush();
    struct recorded event = recorder_last(PS_PROBE_EXCEPTION__STATS, "KeyError");
    CHECK_EQUAL(event.arg[3], 2);
    CHECK_EQUAL(event.arg[4], 5000);
    CHECK_EQUAL(event.more.exception.depth_sum, 90);
    CHECK_EQUAL(event.more.exception.depth_max, 60);
    CHECK_STRING(event.more.exception.function, ""); /* unknown, but never NULL */
    CHECK_STRING(event.more.exception.rescue_file, "");
    CHECK_STRING(event.more.exception.asked_file, "");
    CHECK_STRING(event.more.exception.app_file, "");

    row->count[PS_EXCEPTION_RESCUED] = 1; /* a change without a raise */
    row->at[PS_EXCEPTION_RAISED_IN] = place("Parser#parse", "p.rb", 1);
    row->at[PS_EXCEPTION_RESCUED_AT] = place("Parser#run", "run.rb", 20);
    row->at[PS_EXCEPTION_ASKED_AT] = place("Logger#log", "log.rb", 30);
    row->at[PS_EXCEPTION_APP_AT] = place("", "app.rb", 40);
    flush();
    event = recorder_last(PS_PROBE_EXCEPTION__STATS, "KeyError");
    CHECK_EQUAL(event.arg[3], 0);
    CHECK_EQUAL(event.more.exception.depth_max, 0);
    CHECK_EQUAL(event.more.exception.rescued, 1);
    CHECK_STRING(event.more.exception.function, "Parser#parse");
    CHECK_STRING(event.more.exception.rescue_file, "run.rb");
    CHECK_EQUAL(event.more.exception.rescue_line, 20);
    CHECK_STRING(event.more.exception.asked_file, "log.rb");
    CHECK_EQUAL(event.more.exception.asked_line, 30);
    CHECK_STRING(event.more.exception.app_file, "app.rb");
    CHECK_EQUAL(event.more.exception.app_line, 40);

    row->count[PS_EXCEPTION_STRINGS] = 77;
    flush();
    CHECK_EQUAL(recorder_last(PS_PROBE_EXCEPTION__STATS, "KeyError").more.exception.string_cost, 77);
    begin_again();
}

static void fires_samples_in_ns_and_numbers(void)
{
    RAISE(SAMPLE__STATS);
    ps_sample_frame stack[] = {{row_of(&ps_sample_table, "crc"), 3}, {row_of(&ps_sample_table, "main"), 20}};
    ps_samples_add(stack, 2, 0, NULL, 10000, 1, NULL, false);
    ps_samples_add(stack + 1, 1, 0, NULL, 500, 1, NULL, false);
    flush();
    struct recorded main = recorder_last(PS_PROBE_SAMPLE__STATS, "main"),
                    crc = recorder_last(PS_PROBE_SAMPLE__STATS, "crc");
    CHECK_EQUAL(crc.arg[3], 10000);
    CHECK_EQUAL(crc.arg[4], 10000);
    CHECK_EQUAL(crc.more.sampled.self_samples, 1);
    CHECK_EQUAL(main.arg[3], 500);
    CHECK_EQUAL(main.arg[4], 10500);
    CHECK_EQUAL(main.more.sampled.self_samples, 1);
    CHECK_EQUAL(main.more.sampled.total_samples, 2);
    CHECK_STRING(main.more.sampled.builtin, "");
    CHECK_EQUAL(main.more.sampled.builtin_number, 0);
    begin_again();
}

static void fires_the_self_time_in_a_builtin_as_one_more_row(void)
{
    RAISE(SAMPLE__STATS);
    ps_sample_frame stack[] = {{row_of(&ps_sample_table, "crc32"), 0},
                               {row_of(&ps_sample_table, "main"), 20}};
    ps_samples_add(stack, 2, 1, stack[0].row, 10000, 1, NULL, false);
    flush();
    CHECK_EQUAL(recorder_count(PS_PROBE_SAMPLE__STATS, "main"), 2);
    struct recorded in_builtin = recorder_last(PS_PROBE_SAMPLE__STATS, "main");
    CHECK_EQUAL(in_builtin.arg[3], 10000);
    CHECK_EQUAL(in_builtin.arg[4], 0);
    CHECK_EQUAL(in_builtin.more.sampled.self_samples, 1);
    CHECK_EQUAL(in_builtin.more.sampled.total_samples, 0);
    CHECK_STRING(in_builtin.more.sampled.builtin, "crc32");
    CHECK(in_builtin.more.sampled.builtin_number != 0);
    flush();
    CHECK_EQUAL(recorder_count(PS_PROBE_SAMPLE__STATS, "main"), 0);
    begin_again();
}

static void ends_with_stats_done(void)
{
    for (int i = 0; i < PS_PROBE_COUNT; i++) recorder_semaphore((enum ps_probe)i, 1);
    for (int i = 0; i < 4; i++) row_of(tables[i], "f")->count[i == 3 ? PS_SAMPLE_TOTAL_SAMPLES : 0] = 5;
    ps_sample_frame leaf = {row_of(&ps_sample_table, "f"), 3};
    ps_samples_add(&leaf, 1, 0, NULL, 1, 1, NULL, false);
    ps_info_state(PS_PROBE_LINE, PS_STATE_UNSUPPORTED, "not yet");
    struct recorded first = flush();
    CHECK_EQUAL(recorder_count(PS_PROBE_STATS__DONE, NULL), 1);
    CHECK_EQUAL(recorder_at(recorder_total() - 1).probe, PS_PROBE_STATS__DONE);
    CHECK_EQUAL(first.arg[3], 5); /* four rows and a frame; a status is not a row */
    CHECK_EQUAL(recorder_total(), 7);
    uint64_t flushes = probescope_info.flushes;
    CHECK_EQUAL(flush().arg[0], first.arg[0] + 1);
    CHECK_EQUAL(probescope_info.flushes, flushes + 1);
    ps_info_state(PS_PROBE_LINE, PS_STATE_OFF, NULL);
    begin_again();
}

static void covers_the_time_since_the_flush_before(void)
{
    RAISE(STATS__DONE);
    uint64_t before = ps_monotonic_ns(), cpu_before = ps_process_cpu_ns();
    ps_flush_begin();
    uint64_t began = ps_monotonic_ns(), cpu_began = ps_process_cpu_ns();
    AWAIT(ps_monotonic_ns() - began > 2000000);
    struct recorded first = flush();
    struct recorded second = flush();
    uint64_t elapsed = ps_monotonic_ns() - before, cpu = ps_process_cpu_ns() - cpu_before;
    CHECK(first.arg[1] >= 2000000);
    CHECK(first.arg[1] + second.arg[1] <= elapsed);
    CHECK(first.arg[2] + second.arg[2] <= cpu);
    CHECK(cpu_began >= cpu_before);
    begin_again();
}

/* Each event takes 2 ms, in which every function is called once more. */
static void call_all(void)
{
    uint64_t began = ps_monotonic_ns();
    for (uint32_t i = 0; i < ps_function_table.rows; i++)
        PS_ADD(ps_table_at(&ps_function_table, i)->count[PS_FUNCTION_CALLS], 1);
    AWAIT(ps_monotonic_ns() - began > 2000000);
}

static void tells_all_rows_as_of_one_moment(void)
{
    enum { ROWS = 20 };
    RAISE(STATS__DONE);
    RAISE(FUNCTION__STATS);
    char name[16];
    for (int i = 0; i < ROWS; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        row_of(&ps_function_table, name)->count[PS_FUNCTION_CALLS] = 7;
    }
    uint64_t before = ps_monotonic_ns();
    recorder_meanwhile = call_all;
    struct recorded done = flush();
    recorder_meanwhile = NULL;
    CHECK_EQUAL(recorder_count(PS_PROBE_FUNCTION__STATS, NULL), ROWS);
    CHECK_EQUAL(recorder_sum(PS_PROBE_FUNCTION__STATS, NULL, 3), ROWS * 7);
    uint64_t until = done.more.done.cut;
    CHECK(until >= before && until <= recorder_at(0).at_ns);
    CHECK(done.at_ns - until >= ROWS * 2000000u);
    CHECK_EQUAL(probescope_info.cut, until);

    struct recorded next = flush();
    CHECK_EQUAL(recorder_sum(PS_PROBE_FUNCTION__STATS, NULL, 3),
                ROWS * (ROWS + 1)); /* once at each row's event, and once at stats__done */
    CHECK_EQUAL(next.arg[1], next.more.done.cut - until);
    begin_again();
}

static bool hooks_are_in;

static bool covered(void)
{
    return hooks_are_in;
}

static void ends_no_interval_while_hooks_of_a_tracer_are_missing_that_came_meanwhile(void)
{
    RAISE(STATS__DONE);
    RAISE(FUNCTION__STATS);
    hooks_are_in = false;
    PS_ADD(row_of(&ps_function_table, "f")->count[PS_FUNCTION_CALLS], 2);
    CHECK(!ps_flush_covered(covered));
    CHECK_EQUAL(recorder_count(PS_PROBE_STATS__DONE, NULL), 0);
    hooks_are_in = true;
    PS_ADD(row_of(&ps_function_table, "f")->count[PS_FUNCTION_CALLS], 3);
    CHECK(ps_flush_covered(covered));
    CHECK_EQUAL(recorder_sum(PS_PROBE_FUNCTION__STATS, "f", 3), 5);
    CHECK_EQUAL(recorder_last(PS_PROBE_STATS__DONE, NULL).arg[3], 2);
    CHECK_EQUAL(flush().arg[3], 0);
    begin_again();
}

static void tells_how_much_was_lost_since_the_flush_before(void)
{
    RAISE(STATS__DONE);
    uint64_t known = probescope_info.rows_dropped;
    ps_memory_set_limit(1);
    for (uintptr_t i = 0; i < 10; i++) ps_table_row(&ps_function_table, i, 0, 0);
    for (uintptr_t i = 0; i < 5; i++) ps_table_row(&ps_object_table, i, 0, 0);
    ps_details_suppressed += 3;
    ps_samples_missed += 2;
    ps_samples_taken += 97;
    struct recorded done = flush();
    CHECK_EQUAL(done.arg[4], 15);
    CHECK_EQUAL(done.more.done.details_suppressed, 3);
    CHECK_EQUAL(done.more.done.samples_missed, 2);
    CHECK_EQUAL(done.more.done.samples_taken, 97);
    CHECK_EQUAL(probescope_info.rows_dropped, known + 15);
    done = flush();
    CHECK_EQUAL(done.arg[4], 0);
    CHECK_EQUAL(done.more.done.details_suppressed, 0);
    CHECK_EQUAL(done.more.done.samples_missed, 0);
    CHECK_EQUAL(done.more.done.samples_taken, 0);

    /* One table is cleared, another one is kept. */
    ps_table_row(&ps_function_table, 0, 0, 0);
    ps_table_clear(&ps_function_table);
    CHECK_EQUAL(flush().arg[4], 1);
    ps_table_row(&ps_object_table, 0, 0, 0);
    CHECK_EQUAL(flush().arg[4], 1);
    CHECK_EQUAL(flush().arg[4], 0);
    CHECK_EQUAL(probescope_info.rows_dropped, known + 17);
    ps_memory_set_limit(0);
    begin_again();
}

static void shows_what_does_not_fit_as_one_row(void)
{
    RAISE(FUNCTION__STATS);
    ps_memory_set_limit(1);
    for (uintptr_t i = 0; i < 10; i++) ps_table_row(&ps_function_table, i, 0, 0)->count[PS_FUNCTION_CALLS]++;
    ps_memory_set_limit(0);
    flush();
    CHECK_EQUAL(recorder_total(), 1);
    CHECK_EQUAL(recorder_last(PS_PROBE_FUNCTION__STATS, "(overflow)").arg[3], 10);
    flush();
    CHECK_EQUAL(recorder_total(), 0);
    begin_again();
}

static void tells_why_a_raised_probe_is_refused(void)
{
    RAISE(STATUS);
    ps_info_state(PS_PROBE_FUNCTION__ENTRY, PS_STATE_REFUSED, "YJIT");
    ps_info_state(PS_PROBE_FUNCTION__STATS, PS_STATE_ON, NULL);
    flush();
    CHECK_EQUAL(recorder_total(), 0); /* no tracer listens to the probe */
    RAISE(FUNCTION__ENTRY);
    RAISE(FUNCTION__STATS);
    flush();
    CHECK_EQUAL(recorder_count(PS_PROBE_STATUS, NULL), 1);
    struct recorded event = recorder_last(PS_PROBE_STATUS, "function__entry");
    CHECK_EQUAL(event.arg[1], PS_STATE_REFUSED);
    CHECK_STRING(event.text[1], "YJIT");
    ps_info_state(PS_PROBE_FUNCTION__ENTRY, PS_STATE_OFF, NULL);
    begin_again();
}

static void leaves_to_the_parent_what_it_had_not_fired(void)
{
    for (int i = 0; i < PS_PROBE_COUNT; i++) recorder_semaphore((enum ps_probe)i, 1);
    ps_row *f = row_of(&ps_function_table, "f"), *e = row_of(&ps_exception_table, "KeyError");
    f->count[PS_FUNCTION_CALLS] = 3;
    f->count[PS_FUNCTION_MAX] = 1000;
    e->count[PS_EXCEPTION_RAISED] = 1;
    e->count[PS_EXCEPTION_DEPTH_MAX] = 80;
    row_of(&ps_sample_table, "f")->count[PS_SAMPLE_TOTAL_SAMPLES] = 3;
    ps_memory_set_limit(1);
    ps_row *overflow = ps_table_row(&ps_object_table, 999, 0, 0);
    overflow->count[PS_OBJECT_COUNT] = 8;
    ps_memory_set_limit(0);
    row_of(&ps_object_table, "String")->count[PS_OBJECT_COUNT] = 3;
    ps_details_suppressed += 3;
    ps_samples_missed += 2;
    ps_samples_taken += 97;

    uint64_t began = ps_monotonic_ns();
    AWAIT(ps_monotonic_ns() - began > 2000000);
    uint64_t forked = ps_monotonic_ns(), forked_cpu = ps_process_cpu_ns();
    ps_flush_after_fork();
    struct recorded done = flush();
    CHECK(done.arg[1] <= ps_monotonic_ns() - forked);
    CHECK(done.arg[2] <= ps_process_cpu_ns() - forked_cpu);
    CHECK_EQUAL(recorder_total(), 1);
    CHECK_EQUAL(done.arg[3], 0);
    CHECK_EQUAL(done.arg[4], 0);
    CHECK_EQUAL(done.more.done.details_suppressed, 0);
    CHECK_EQUAL(done.more.done.samples_missed, 0);
    CHECK_EQUAL(done.more.done.samples_taken, 0);

    f->count[PS_FUNCTION_CALLS]++;
    e->count[PS_EXCEPTION_RAISED]++;
    overflow->count[PS_OBJECT_COUNT]++;
    flush();
    CHECK_EQUAL(recorder_last(PS_PROBE_FUNCTION__STATS, "f").arg[3], 1);
    CHECK_EQUAL(recorder_last(PS_PROBE_FUNCTION__STATS, "f").more.function.max, 0);
    CHECK_EQUAL(recorder_last(PS_PROBE_EXCEPTION__STATS, "KeyError").more.exception.depth_max, 0);
    CHECK_EQUAL(recorder_last(PS_PROBE_OBJECT__STATS, "(overflow)").arg[3], 1);
    begin_again();
}

static void flush_as_a_child(uint64_t before)
{
    uint64_t looked = probescope_info.looked_cpu_ns;
    ps_flush_after_fork();
    struct recorded done = flush();
    CHECK_EQUAL(done.arg[3], 0);
    CHECK(done.arg[1] <= ps_monotonic_ns() - before);
    CHECK(done.arg[2] <= ps_process_cpu_ns());
    CHECK_EQUAL(probescope_info.looked_cpu_ns - looked, done.arg[2]);
}

/* The CPU clock of a child begins at 0. */
static void begins_the_first_interval_of_a_child_at_the_fork(void)
{
    RAISE(STATS__DONE);
    RAISE(FUNCTION__STATS);
    uint64_t began = ps_process_cpu_ns();
    AWAIT(ps_process_cpu_ns() - began > 20000000);
    flush();
    /* Rows of an interval that has not ended. */
    row_of(&ps_function_table, "f")->count[PS_FUNCTION_CALLS]++;
    hooks_are_in = false;
    CHECK(!ps_flush_covered(covered));
    check_sleep_ms(1);
    uint64_t before = ps_monotonic_ns();
    pid_t child = fork();
    if (child == 0) {
        check_failures = 0;
        flush_as_a_child(before);
        _exit(check_failures != 0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    hooks_are_in = true;
    CHECK_EQUAL(flush().arg[3], 1);
    begin_again();
}

static void lets_nobody_clear_a_table_in_a_flush(void)
{
    CHECK(ps_flush_try_lock());
    CHECK(!ps_flush_try_lock());
    ps_flush_unlock();
    CHECK(ps_flush_try_lock());
    ps_flush_unlock();
}

/* ---- The VM counts while the watcher flushes ---- */

enum { FUNCTIONS = 1500, CALLS = 300000, CLEARS = 3 };

static bool counted_all;

/* Flushes until the VM is done, and once more for the rest. */
static void *flush_until_done(void *unused)
{
    bool done;
    do {
        done = PS_READ_ACQUIRE(counted_all);
        ps_flush();
        sched_yield(); /* without the lock, so that a thread that tries the lock gets it at some time */
    } while (!done);
    return unused;
}

static void count_calls(uint64_t *seed)
{
    for (int i = 0; i < CALLS; i++) {
        uintptr_t number = check_random(seed) % FUNCTIONS;
        ps_row *row = ps_table_row(&ps_function_table, number + 1, 0, 0);
        if (!row->site) {
            char name[32];
            snprintf(name, sizeof(name), "f%d", (int)number);
            PS_WRITE_RELEASE(row->site, place(name, "a.rb", number));
        }
        PS_ADD(row->count[PS_FUNCTION_CALLS], 1);
        PS_ADD(row->count[PS_FUNCTION_SELF], 10);
        if (10 > PS_READ(row->count[PS_FUNCTION_MAX])) PS_WRITE(row->count[PS_FUNCTION_MAX], 10);
        ps_sample_frame leaf = {row_of(&ps_sample_table, "leaf"), (uint32_t)number};
        if (i % 100 == 0) ps_samples_add(&leaf, 1, 0, NULL, 1, 1, NULL, false);
    }
}

static void loses_no_count_to_a_flush_at_the_same_time(void)
{
    uint64_t seed = 42;
    row_of(&ps_sample_table, "leaf");
    RAISE(FUNCTION__STATS);
    RAISE(SAMPLE__STATS);
    RAISE(SAMPLE__FRAME);
    RAISE(STATS__DONE);
    recorder_forget();
    pthread_t watcher;
    counted_all = false;
    pthread_create(&watcher, NULL, flush_until_done, NULL);
    count_calls(&seed);
    PS_WRITE_RELEASE(counted_all, true);
    pthread_join(watcher, NULL);
    CHECK_EQUAL(recorder_sum(PS_PROBE_FUNCTION__STATS, NULL, 3), CALLS);
    CHECK(recorder_sum(PS_PROBE_FUNCTION__STATS, NULL, 4) <= CALLS * 10);
    CHECK_EQUAL(recorder_sum(PS_PROBE_SAMPLE__STATS, "leaf", 3), CALLS / 100);
    begin_again();
}

/* As a detach and the next attach do. */
static void survives_clears_between_its_flushes(void)
{
    uint64_t seed = 43;
    RAISE(FUNCTION__STATS);
    pthread_t watcher;
    counted_all = false;
    pthread_create(&watcher, NULL, flush_until_done, NULL);
    for (int i = 0; i < CLEARS; i++) {
        count_calls(&seed);
        while (!ps_flush_try_lock()) sched_yield();
        ps_table_clear(&ps_function_table);
        ps_flush_unlock();
    }
    PS_WRITE_RELEASE(counted_all, true);
    pthread_join(watcher, NULL);
    CHECK(recorder_sum(PS_PROBE_FUNCTION__STATS, NULL, 3) <= (uint64_t)CLEARS * CALLS);
    CHECK_EQUAL(ps_function_table.rows, 0);
    begin_again();
}

int main(void)
{
    RUN(fires_nothing_that_nobody_listens_to);
    RUN(knows_which_probes_it_serves);
    RUN(fires_what_a_function_grew_by);
    RUN(turns_ticks_into_ns);
    RUN(is_silent_about_rows_that_did_not_change);
    RUN(waits_for_the_name_of_a_row);
    RUN(counts_as_dropped_what_there_was_no_memory_to_name);
    RUN(fires_an_exception_with_all_its_places);
    RUN(fires_samples_in_ns_and_numbers);
    RUN(fires_the_self_time_in_a_builtin_as_one_more_row);
    RUN(ends_with_stats_done);
    RUN(covers_the_time_since_the_flush_before);
    RUN(tells_all_rows_as_of_one_moment);
    RUN(ends_no_interval_while_hooks_of_a_tracer_are_missing_that_came_meanwhile);
    RUN(tells_how_much_was_lost_since_the_flush_before);
    RUN(shows_what_does_not_fit_as_one_row);
    RUN(tells_why_a_raised_probe_is_refused);
    RUN(leaves_to_the_parent_what_it_had_not_fired);
    RUN_FORKING(begins_the_first_interval_of_a_child_at_the_fork);
    RUN(lets_nobody_clear_a_table_in_a_flush);
    RUN(loses_no_count_to_a_flush_at_the_same_time);
    RUN(survives_clears_between_its_flushes);
    return check_report("flush");
}

#include <stdlib.h>

#include "check.h"
#include "agent/watcher.h"
#include "base/clock.h"
#include "base/memory.h"
#include "features/samples.h"
#include "table/flush.h"
#include "table/table.h"
#include "usdt/info.h"
#include "usdt/probe.h"
#include "usdt/probe_groups.h"
#include "recorder.h"

static ps_row *function(const char *name)
{
    const ps_site *site = ps_site_intern(name, strlen(name), "a.rb", 4, 1);
    ps_row *row = ps_table_row(&ps_sample_table, (uintptr_t)site, 0, 0);
    row->site = site;
    return row;
}

static void check_counts(const ps_row *row, uint64_t self, uint64_t self_samples, uint64_t total,
                         uint64_t total_samples)
{
    CHECK_EQUAL(row->count[PS_SAMPLE_SELF], self);
    CHECK_EQUAL(row->count[PS_SAMPLE_SELF_SAMPLES], self_samples);
    CHECK_EQUAL(row->count[PS_SAMPLE_TOTAL], total);
    CHECK_EQUAL(row->count[PS_SAMPLE_TOTAL_SAMPLES], total_samples);
}

static void begin_again(void)
{
    recorder_lower_all();
    recorder_forget();
    ps_table_clear(&ps_sample_table);
    ps_samples_begin();
}

static void use_cpu(uint64_t ns)
{
    uint64_t end = ps_process_cpu_ns() + ns;
    while (ps_process_cpu_ns() < end) {
    }
}

/*
 * Takes samples until one counts. A sample that is weighed at once counts, unless another process
 * had the CPU for too long.
 */
static uint64_t next_weight(void)
{
    uint64_t weight = 0;
    for (int i = 0; i < 1000 && !weight; i++) {
        ps_samples_tick();
        weight = ps_samples_weigh();
    }
    return weight;
}

static void weighs_nothing_that_was_not_asked_for(void)
{
    ps_samples_begin();
    CHECK_EQUAL(ps_samples_weigh(), 0);
    CHECK(next_weight() > 0);
    CHECK_EQUAL(ps_samples_weigh(), 0);
}

static void weighs_cpu_time_once(void)
{
    uint64_t before = ps_process_cpu_ns(), sum = 0, last = 0;
    ps_samples_begin();
    uint64_t began = ps_process_cpu_ns();
    for (int i = 0; i < 20; i++) {
        use_cpu(500000);
        ps_samples_tick();
        uint64_t cpu = ps_process_cpu_ns(), weight = ps_samples_weigh();
        if (weight) last = cpu;
        sum += weight;
    }
    uint64_t after = ps_process_cpu_ns();
    CHECK(sum <= after - before);
    if (last) CHECK(sum >= last - began);
}

/*
 * Sleeps until the CPU time since `since_ns` is a small part of the wait. It sleeps a few times for
 * long. Many short sleeps would use more CPU time, most of all under an emulator.
 */
static void sleep_mostly(uint64_t since_ns, uint64_t cpu_ns)
{
    for (long ms = 20; ms < 60000; ms *= 2) {
        check_sleep_ms(ms);
        if (ps_monotonic_ns() - since_ns > 20000000 + 4 * (ps_process_cpu_ns() - cpu_ns)) return;
    }
    CHECK(!"ever asleep");
}

static void weighs_a_sleeper_with_nothing(void)
{
    ps_samples_begin();
    use_cpu(2000000);
    ps_samples_tick();
    uint64_t ticked = ps_monotonic_ns(), cpu = ps_process_cpu_ns();
    sleep_mostly(ticked, cpu);
    CHECK_EQUAL(ps_samples_weigh(), 0);
    /* The request is finished. What was used before the sleep is weighed with the next sample. */
    CHECK_EQUAL(ps_samples_weigh(), 0);
    CHECK(next_weight() >= 2000000);
}

/*
 * Weighs a late sample. Tries again until the process had the CPU for most of the wait, because the
 * machine may be busy.
 */
static void weighs_a_busy_process_that_is_late(void)
{
    for (int i = 0; i < 1000; i++) {
        ps_samples_begin();
        ps_samples_tick();
        uint64_t ticked = ps_monotonic_ns(), cpu = ps_process_cpu_ns();
        use_cpu(1000000); /* less than a time slice of the scheduler */
        uint64_t used = ps_process_cpu_ns() - cpu;
        uint64_t weight = ps_samples_weigh();
        if (used > (ps_monotonic_ns() - ticked) * 6 / 10) {
            CHECK(weight >= 1000000);
            return;
        }
    }
    CHECK(!"ever had the CPU for 1 ms");
}

static void counts_a_tick_as_missed_only_when_busy(void)
{
    ps_samples_begin();
    ps_samples_tick();
    uint64_t ticked = ps_monotonic_ns(), cpu = ps_process_cpu_ns(), missed = ps_samples_missed;
    sleep_mostly(ticked, cpu);
    ps_samples_tick();
    CHECK_EQUAL(ps_samples_missed, missed);

    ps_samples_begin();
    missed = ps_samples_missed;
    ps_samples_tick();
    use_cpu(5 * PS_SAMPLE_NS / 2);
    ps_samples_tick();
    CHECK_EQUAL(ps_samples_missed, missed + 2);
}

/* The request was answered, and the next tick comes late. */
static void counts_what_the_watcher_slept_through(void)
{
    ps_samples_begin();
    ps_samples_tick();
    ps_samples_weigh();
    uint64_t missed = ps_samples_missed;
    use_cpu(9 * PS_SAMPLE_NS / 2);
    ps_samples_tick();
    CHECK_EQUAL(ps_samples_missed, missed + 3);
}

static void adds_to_the_leaf_and_once_to_each_function(void)
{
    begin_again();
    ps_row *main = function("main"), *parse = function("parse"), *crc = function("crc");
    /* crc <- parse <- parse <- main */
    ps_sample_frame deep[] = {{crc, 3}, {parse, 8}, {parse, 9}, {main, 20}};
    ps_samples_add(deep, 4, 0, NULL, 1000, 1, NULL, false);
    check_counts(crc, 1000, 1, 1000, 1);
    check_counts(parse, 0, 0, 1000, 1);
    check_counts(main, 0, 0, 1000, 1);

    /* A recursion of the leaf. */
    ps_sample_frame recursion[] = {{parse, 8}, {parse, 9}, {main, 20}};
    ps_samples_add(recursion, 3, 0, NULL, 10, 1, NULL, false);
    check_counts(crc, 1000, 1, 1000, 1);
    check_counts(parse, 10, 1, 1010, 2);
    check_counts(main, 0, 0, 1010, 2);

    ps_samples_add(deep, 0, 0, NULL, 5000, 1, NULL, false); /* no frames */
    check_counts(main, 0, 0, 1010, 2);
    CHECK_EQUAL(recorder_total(), 0);
    begin_again();
}

static void counts_self_time_in_a_builtin_in_a_row_of_its_own(void)
{
    begin_again();
    ps_row *main = function("main"), *crc32 = function("Zlib.crc32"), *generate = function("JSON.generate");
    crc32->sample.builtin = generate->sample.builtin = true;
    ps_sample_frame in_crc32[] = {{crc32, 0}, {main, 20}}, in_json[] = {{generate, 0}, {main, 21}};
    ps_samples_add(in_crc32, 2, 1, crc32, 1000, 1, NULL, false);
    ps_samples_add(in_crc32, 2, 1, crc32, 100, 1, NULL, false);
    ps_samples_add(in_json, 2, 1, generate, 10, 1, NULL, false);
    ps_samples_add(in_crc32 + 1, 1, 0, NULL, 1, 1, NULL, false);
    check_counts(main, 1, 1, 1111, 4);
    check_counts(crc32, 0, 0, 1100, 2);
    ps_row *row = ps_table_find(&ps_sample_table, (uintptr_t)main, (uintptr_t)crc32, 0);
    check_counts(row, 1100, 2, 0, 0);
    CHECK(row->site == main->site);
    check_counts(ps_table_find(&ps_sample_table, (uintptr_t)main, (uintptr_t)generate, 0), 10, 1, 0, 0);
    begin_again();
}

static void counts_the_first_sample_after_a_clear(void)
{
    begin_again();
    ps_sample_frame leaf = {function("f"), 1};
    ps_samples_add(&leaf, 1, 0, NULL, 7, 1, NULL, false);
    ps_table_clear(&ps_sample_table);
    leaf.row = function("f");
    ps_samples_add(&leaf, 1, 0, NULL, 9, 1, NULL, false);
    check_counts(leaf.row, 9, 1, 9, 1);
    begin_again();
}

static void fires_a_sample_with_its_stacks_id(void)
{
    begin_again();
    RAISE(SAMPLE);
    RAISE(SAMPLE__FRAME);
    ps_sample_frame stack[] = {{function("crc"), 3}, {function("main"), 20}};
    ps_samples_add(stack, 2, 0, NULL, 1000, 4711, NULL, false);
    struct recorded sample = recorder_last(PS_PROBE_SAMPLE, "crc");
    CHECK_STRING(sample.text[1], "a.rb");
    CHECK_EQUAL(sample.arg[2], 3); /* the line that runs, not the line of the function */
    CHECK_EQUAL(sample.arg[3], 1000);
    CHECK_EQUAL(sample.more.sample.thread_id, 4711);
    CHECK_STRING(sample.more.sample.path, "a.rb");

    CHECK_EQUAL(ps_samples_feature.fire_events(), 2);
    struct recorded leaf = recorder_last(PS_PROBE_SAMPLE__FRAME, "crc");
    struct recorded root = recorder_last(PS_PROBE_SAMPLE__FRAME, "main");
    CHECK_EQUAL(leaf.arg[2], 3);
    CHECK_EQUAL(leaf.arg[3], sample.arg[4]);
    CHECK_EQUAL(leaf.arg[4], 0);
    CHECK_EQUAL(root.arg[2], 20);
    CHECK_EQUAL(root.arg[3], sample.arg[4]);
    CHECK_EQUAL(root.arg[4], 1);
    begin_again();
}

static void fires_each_stack_once_a_second(void)
{
    begin_again();
    RAISE(SAMPLE__FRAME);
    size_t used = ps_memory_used();
    ps_sample_frame a[] = {{function("f"), 3}, {function("main"), 20}},
                    b[] = {{function("f"), 4}, {function("main"), 20}};
    size_t with_rows = ps_memory_used();
    for (int i = 0; i < 5; i++) {
        ps_samples_add(a, 2, 0, NULL, 1, 1, NULL, false);
        ps_samples_add(b, 2, 0, NULL, 1, 1, NULL, false);
    }
    CHECK_EQUAL(recorder_total(), 0);
    CHECK_EQUAL(ps_samples_feature.fire_events(), 4);
    CHECK_EQUAL(recorder_count(PS_PROBE_SAMPLE__FRAME, "f"), 2);
    CHECK_EQUAL(recorder_count(PS_PROBE_SAMPLE__FRAME, "main"), 2);
    CHECK_EQUAL(recorder_count(PS_PROBE_SAMPLE, NULL), 0);
    CHECK_EQUAL(ps_samples_feature.fire_events(), 0);
    CHECK_EQUAL(ps_memory_used(), with_rows);

    ps_samples_add(a, 2, 0, NULL, 1, 1, NULL, false); /* the next second */
    CHECK_EQUAL(ps_samples_feature.fire_events(), 2);
    begin_again();
    CHECK_EQUAL(ps_memory_used(), used);
}

static void keeps_no_more_stacks_than_agreed(void)
{
    begin_again();
    RAISE(SAMPLE__FRAME);
    ps_row *f = function("f");
    size_t used = ps_memory_used();
    for (uint32_t line = 1; line <= PS_STACKS_MAX + 50; line++) {
        ps_sample_frame leaf = {f, line};
        ps_samples_add(&leaf, 1, 0, NULL, 1, 1, NULL, false);
    }
    CHECK(ps_memory_used() > used);
    CHECK_EQUAL(f->count[PS_SAMPLE_SELF_SAMPLES], PS_STACKS_MAX + 50);
    CHECK_EQUAL(ps_samples_feature.fire_events(), PS_STACKS_MAX);
    CHECK_EQUAL(ps_memory_used(), used);
    begin_again();
}

static void keeps_the_deepest_stack_whole(void)
{
    begin_again();
    RAISE(SAMPLE__FRAME);
    static ps_sample_frame frames[PS_SAMPLE_FRAMES_MAX];
    for (uint32_t i = 0; i < PS_SAMPLE_FRAMES_MAX; i++) frames[i] = (ps_sample_frame){function("f"), i};
    ps_samples_add(frames, PS_SAMPLE_FRAMES_MAX, 0, NULL, 1, 1, NULL, false);
    CHECK_EQUAL(ps_samples_feature.fire_events(), PS_SAMPLE_FRAMES_MAX);
    begin_again();
}

static void keeps_no_stack_without_memory_or_listener(void)
{
    begin_again();
    ps_sample_frame leaf = {function("f"), 1};
    ps_samples_add(&leaf, 1, 0, NULL, 1, 1, NULL, false);
    CHECK_EQUAL(ps_samples_feature.fire_events(), 0);

    RAISE(SAMPLE__FRAME);
    ps_memory_set_limit(1);
    ps_samples_add(&leaf, 1, 0, NULL, 1, 1, NULL, false);
    ps_memory_set_limit(0);
    CHECK_EQUAL(ps_samples_feature.fire_events(), 0);
    CHECK_EQUAL(leaf.row->count[PS_SAMPLE_SELF_SAMPLES], 2);
    begin_again();
}

static void forgets_stacks_that_an_earlier_listener_left(void)
{
    begin_again();
    RAISE(SAMPLE__FRAME);
    ps_sample_frame leaf = {function("f"), 1};
    size_t used = ps_memory_used();
    ps_samples_add(&leaf, 1, 0, NULL, 1, 1, NULL, false);
    LOWER(SAMPLE__FRAME);
    ps_samples_begin();
    CHECK_EQUAL(ps_memory_used(), used);
    RAISE(SAMPLE__FRAME);
    CHECK_EQUAL(ps_samples_feature.fire_events(), 0);
    begin_again();
}

/*
 * A listener may leave and another one come between two looks of the watcher. Then the watcher
 * never ends sampling.
 */
static void forgets_stacks_whose_names_are_given_back(void)
{
    begin_again();
    RAISE(SAMPLE__FRAME);
    ps_samples_add(&(ps_sample_frame){function("f"), 1}, 1, 0, NULL, 1, 1, NULL, false);
    ps_table_clear(&ps_sample_table);
    ps_samples_feature.forget();
    ps_sites_clear();
    CHECK_EQUAL(ps_memory_used(), 0);
    CHECK_EQUAL(ps_samples_feature.fire_events(), 0);
    begin_again();
}

static void has_one_row_for_collections(void)
{
    begin_again();
    ps_row *row = ps_samples_row_of_collections();
    CHECK_STRING(row->site->name, "(garbage collection)");
    CHECK_STRING(row->site->path, "");
    CHECK(ps_samples_row_of_collections() == row);
    CHECK_EQUAL(ps_sample_table.rows, 1);
    begin_again();
}

static void degrades_the_probes_of_samples_alone(void)
{
    ps_samples_degrade(PS_BIT(SAMPLE) | PS_BIT(LINE), "filtered");
    CHECK_EQUAL(ps_info_probes_in(PS_STATE_DEGRADED), PS_BIT(SAMPLE));
    CHECK_STRING(probescope_info.probes[PS_PROBE_SAMPLE].reason, "filtered");
    ps_samples_degrade(ps_samples_feature.probes, NULL);
    CHECK_EQUAL(ps_info_probes_in(PS_STATE_ON), PS_BIT(SAMPLE)); /* the others are still off */
    CHECK_STRING(probescope_info.probes[PS_PROBE_SAMPLE].reason, "");
    ps_info_off(PS_PROBE_SAMPLE);
}

static void leaves_the_parents_stacks_to_the_parent(void)
{
    begin_again();
    RAISE(SAMPLE__FRAME);
    ps_sample_frame leaf = {function("f"), 1};
    size_t used = ps_memory_used();
    ps_samples_add(&leaf, 1, 0, NULL, 1, 1, NULL, false);
    ps_samples_tick();
    ps_samples_after_fork();
    CHECK_EQUAL(ps_memory_used(), used);
    CHECK_EQUAL(ps_samples_feature.fire_events(), 0);
    CHECK_EQUAL(ps_samples_weigh(), 0); /* the request was the parent's */
    begin_again();
}

int main(void)
{
    RUN(weighs_nothing_that_was_not_asked_for);
    RUN(weighs_cpu_time_once);
    RUN(weighs_a_sleeper_with_nothing);
    RUN(weighs_a_busy_process_that_is_late);
    RUN(counts_a_tick_as_missed_only_when_busy);
    RUN(counts_what_the_watcher_slept_through);
    RUN(adds_to_the_leaf_and_once_to_each_function);
    RUN(counts_self_time_in_a_builtin_in_a_row_of_its_own);
    RUN(counts_the_first_sample_after_a_clear);
    RUN(fires_a_sample_with_its_stacks_id);
    RUN(fires_each_stack_once_a_second);
    RUN(keeps_no_more_stacks_than_agreed);
    RUN(keeps_the_deepest_stack_whole);
    RUN(keeps_no_stack_without_memory_or_listener);
    RUN(forgets_stacks_that_an_earlier_listener_left);
    RUN(forgets_stacks_whose_names_are_given_back);
    RUN(has_one_row_for_collections);
    RUN(degrades_the_probes_of_samples_alone);
    RUN(leaves_the_parents_stacks_to_the_parent);
    return check_report("samples");
}

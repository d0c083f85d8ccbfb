#include "features/call_paths.h"

#include <stdlib.h>

#include "base/memory.h"
#include "features/samples.h"
#include "table/flush.h"
#include "table/table.h"
#include "usdt/probe.h"
#include "check.h"
#include "recorder.h"

static const ps_site *site(const char *name)
{
    return ps_site_intern(name, strlen(name), "/app/a.rb", 9, 4);
}

static ps_path *path(ps_path *parent, const char *name, uint32_t line)
{
    return ps_path_child(parent, site(name), line, false);
}

static void add(ps_path *path, uint64_t weight)
{
    ps_paths_add(PS_PATH_CPU, path, 7, &ps_site_none, 1, weight, 1);
}

static void listen(bool on)
{
    recorder_semaphore(PS_PROBE_STACK__FRAME, on);
    recorder_semaphore(PS_PROBE_STACK__CPU, on);
    ps_call_paths_feature.listen(on ? PS_BIT(STACK__FRAME) | PS_BIT(STACK__CPU) : 0);
}

static void begin_again(void)
{
    ps_call_paths_feature.forget();
    listen(true);
    recorder_forget();
}

static void end(void)
{
    listen(false);
    ps_call_paths_feature.forget();
}

/* The id with which the frame of this function fired last. */
static uint64_t id_of(const char *name)
{
    return recorder_last(PS_PROBE_STACK__FRAME, name).arg[3];
}

static uint64_t weights(void)
{
    return recorder_sum(PS_PROBE_STACK__CPU, NULL, 3);
}

static void fires_parents_first_and_then_the_figures(void)
{
    begin_again();
    ps_path *total = path(path(NULL, "<main>", 31), "Order#total", 12);
    add(total, 300);
    add(total, 200);
    ps_flush();
    CHECK_EQUAL(recorder_total(), 3);
    struct recorded main = recorder_at(0), frame = recorder_at(1), figures = recorder_at(2);
    CHECK_STRING(main.text[0], "<main>");
    CHECK_EQUAL(main.arg[4], 0);
    CHECK_STRING(frame.text[0], "Order#total");
    CHECK_STRING(frame.text[1], "/app/a.rb");
    CHECK_EQUAL(frame.arg[2], 12);
    CHECK_EQUAL(frame.arg[4], main.arg[3]);
    CHECK_STRING(frame.more.frame.path, "/app/a.rb");
    CHECK_EQUAL(frame.more.frame.defined, 4);
    CHECK_EQUAL(frame.more.frame.flags, 0);
    CHECK_EQUAL(frame.more.frame.file_number, main.more.frame.file_number);
    CHECK_EQUAL(figures.probe, PS_PROBE_STACK__CPU);
    CHECK_EQUAL(figures.arg[0], frame.arg[3]);
    CHECK_EQUAL(figures.arg[1], 7);
    CHECK_EQUAL(figures.arg[2], 2);
    CHECK_EQUAL(figures.arg[3], 500);
    CHECK_EQUAL(figures.arg[4], 2);
    CHECK_STRING(figures.more.stack.request, "");
    end();
}

static void fires_what_grew_and_each_frame_once_a_flush(void)
{
    begin_again();
    ps_path *main = path(NULL, "<main>", 31);
    add(path(main, "f", 1), 1);
    add(path(main, "g", 2), 10);
    add(main, 100);
    ps_flush();
    CHECK_EQUAL(recorder_count(PS_PROBE_STACK__FRAME, NULL), 3);
    CHECK_EQUAL(weights(), 111);
    recorder_forget();
    ps_flush();
    CHECK_EQUAL(recorder_total(), 0);
    add(path(main, "g", 2), 5);
    ps_flush();
    CHECK_EQUAL(recorder_count(PS_PROBE_STACK__FRAME, NULL), 2);
    CHECK_EQUAL(recorder_count(PS_PROBE_STACK__FRAME, "f"), 0);
    CHECK_EQUAL(weights(), 5);
    end();
}

static void tells_threads_and_requests_apart(void)
{
    begin_again();
    const ps_site *request = ps_site_intern("GET /orders/*", 13, "", 0, 99);
    ps_path *f = path(NULL, "f", 1);
    ps_paths_add(PS_PATH_CPU, f, 7, &ps_site_none, 1, 1, 1);
    ps_paths_add(PS_PATH_CPU, f, 8, &ps_site_none, 1, 10, 1);
    ps_paths_add(PS_PATH_CPU, f, 8, request, 1, 100, 1);
    ps_flush();
    CHECK_EQUAL(recorder_count(PS_PROBE_STACK__CPU, NULL), 3);
    struct recorded last = recorder_last(PS_PROBE_STACK__CPU, NULL);
    CHECK_STRING(last.more.stack.request, "GET /orders/*");
    CHECK_EQUAL(last.more.stack.request_number, 99);
    CHECK_EQUAL(last.arg[3], 100);
    end();
}

/* A recursion is a path of its own for each depth. A line makes a difference, too. */
static void gives_each_frame_of_a_path_an_id(void)
{
    begin_again();
    ps_path *f = path(NULL, "f", 1), *ff = path(f, "f", 1), *other = path(f, "f", 2);
    CHECK(f != ff);
    CHECK(ff != other);
    CHECK(path(f, "f", 1) == ff);
    add(f, 1);
    add(ff, 1);
    add(other, 1);
    ps_flush();
    uint64_t ids[3];
    for (size_t i = 0, found = 0; i < recorder_total(); i++)
        if (recorder_at(i).probe == PS_PROBE_STACK__FRAME) ids[found++] = recorder_at(i).arg[3];
    CHECK(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
    end();
}

static void gives_the_same_ids_after_a_detach(void)
{
    uint64_t before = 0;
    for (int round = 0; round < 2; round++) {
        begin_again();
        if (round) path(NULL, "something else", 1);
        add(path(path(NULL, "<main>", 31), "f", 1), 1);
        ps_flush();
        if (round) CHECK_EQUAL(id_of("f"), before);
        before = id_of("f");
        CHECK(before != 0);
        end();
        ps_sites_clear();
    }
}

static void counts_what_has_no_room(void)
{
    begin_again();
    ps_flush();
    recorder_forget();
    recorder_semaphore(PS_PROBE_STATS__DONE, 1);
    for (uint32_t line = 0; line < PS_PATHS_MAX + 10; line++) add(path(NULL, "f", line), 1);
    ps_flush();
    CHECK_EQUAL(recorder_sum(PS_PROBE_STACK__CPU, NULL, 2), PS_PATHS_MAX + 10);
    CHECK_EQUAL(recorder_last(PS_PROBE_STATS__DONE, NULL).arg[4], PS_PATHS_MAX + 10 - PS_PATH_CELLS_MAX);
    CHECK_EQUAL(recorder_last(PS_PROBE_STACK__CPU, NULL).arg[2], PS_PATHS_MAX + 10 - PS_PATH_CELLS_MAX);
    CHECK_EQUAL(recorder_last(PS_PROBE_STACK__CPU, NULL).arg[0], id_of("(overflow)"));
    CHECK_EQUAL(recorder_last(PS_PROBE_STACK__FRAME, "(overflow)").more.frame.flags, 2);
    recorder_semaphore(PS_PROBE_STATS__DONE, 0);
    end();
}

static void forgets_unused_paths_before_there_is_no_room(void)
{
    begin_again();
    ps_path *main = path(NULL, "<main>", 1);
    for (uint32_t line = 0; !ps_paths_need_upkeep(); line++) add(path(main, "f", line), 1);
    ps_flush();
    recorder_forget();
    add(path(main, "g", 1), 5);
    add(path(path(main, "g", 1), "h", 1), 50);
    uint64_t used = ps_memory_used();
    CHECK(ps_flush_try_lock());
    ps_paths_upkeep(); /* a flush reads the paths: later */
    ps_flush_unlock();
    CHECK(ps_paths_need_upkeep());
    ps_paths_upkeep();
    CHECK(!ps_paths_need_upkeep());
    CHECK(ps_memory_used() < used);
    CHECK(path(NULL, "<main>", 1) == main);
    add(path(main, "f", 3), 500);
    ps_flush();
    CHECK_EQUAL(weights(), 555);
    CHECK_EQUAL(recorder_count(PS_PROBE_STACK__FRAME, NULL), 4);
    end();
}

static void gives_all_memory_back(void)
{
    uint64_t before = ps_memory_used();
    begin_again();
    ps_path *at = NULL;
    const ps_site *f = site("f");
    uint64_t names = ps_memory_used();
    for (uint32_t line = 0; line < 300; line++) add(at = ps_path_child(at, f, line, false), 1);
    ps_flush();
    CHECK(ps_memory_used() > names);
    end();
    CHECK_EQUAL(ps_memory_used(), names);
    CHECK(before <= names);
}

static void survives_without_memory(void)
{
    begin_again();
    const ps_site *f = site("f");
    ps_memory_set_limit(1);
    ps_path *nowhere = ps_path_child(NULL, f, 1, false);
    add(nowhere, 5);
    add(ps_path_child(nowhere, f, 1, false), 50);
    ps_memory_set_limit(0);
    ps_flush();
    CHECK_EQUAL(weights(), 55);
    CHECK_EQUAL(recorder_count(PS_PROBE_STACK__FRAME, "(overflow)"), 1);
    end();
}

static void drops_what_was_counted_before_an_interval_begins(void)
{
    begin_again();
    ps_path *f = path(NULL, "f", 1);
    add(f, 5);
    CHECK(ps_flush_try_lock());
    ps_flush_mark();
    ps_flush_unlock();
    add(f, 50);
    ps_flush();
    CHECK_EQUAL(weights(), 50);
    end();
}

static void counts_the_paths_of_samples(void)
{
    begin_again();
    ps_row *crc = ps_table_row_at(&ps_sample_table, site("crc")),
           *main = ps_table_row_at(&ps_sample_table, site("main"));
    ps_sample_frame stack[] = {{ps_samples_row_of_collections(), 0}, {crc, 3}, {main, 20}};
    ps_samples_add(stack, 3, 0, NULL, 1000, 4711, NULL, false);
    ps_samples_add(stack + 1, 2, 0, NULL, 10, 4711, NULL, false);
    ps_flush();
    CHECK_EQUAL(weights(), 1010);
    CHECK_EQUAL(recorder_last(PS_PROBE_STACK__FRAME, "(garbage collection)").more.frame.flags, 2);
    CHECK_EQUAL(recorder_last(PS_PROBE_STACK__FRAME, "(garbage collection)").arg[4], id_of("crc"));
    CHECK_EQUAL(recorder_last(PS_PROBE_STACK__FRAME, "crc").arg[2], 3);
    /* No tracer has its hooks in. */
    ps_call_paths_feature.listen(0);
    recorder_forget();
    ps_samples_add(stack, 3, 0, NULL, 1000, 4711, NULL, false);
    ps_flush();
    CHECK_EQUAL(weights(), 0);
    end();
    ps_table_clear(&ps_sample_table);
}

static void tells_a_stack_that_was_cut(void)
{
    begin_again();
    static ps_sample_frame deep[PS_SAMPLE_FRAMES_MAX];
    ps_row *f = ps_table_row_at(&ps_sample_table, site("f"));
    for (uint32_t i = 0; i < PS_SAMPLE_FRAMES_MAX; i++) deep[i] = (ps_sample_frame){f, i};
    ps_samples_add(deep, PS_SAMPLE_FRAMES_MAX, 0, NULL, 1, 4711, NULL, false);
    ps_flush();
    CHECK_EQUAL(recorder_count(PS_PROBE_STACK__FRAME, NULL), PS_SAMPLE_FRAMES_MAX);
    recorder_forget();
    /* Frames of the library's are left out, so there are fewer. */
    ps_samples_add(deep, PS_SAMPLE_FRAMES_MAX - 6, 0, NULL, 1, 4711, NULL, true);
    ps_flush();
    struct recorded outermost = recorder_last(PS_PROBE_STACK__FRAME, "(deeper than 256 frames)");
    CHECK_EQUAL(outermost.arg[4], 0);
    CHECK_EQUAL(outermost.more.frame.flags, 2);
    CHECK_EQUAL(recorder_count(PS_PROBE_STACK__FRAME, NULL), PS_SAMPLE_FRAMES_MAX - 6 + 1);
    end();
    ps_table_clear(&ps_sample_table);
}

static void finds_known_paths_without_memory(void)
{
    begin_again();
    ps_path *main = path(NULL, "<main>", 1);
    enum { FULL = 768 }; /* paths, with which the table has to grow before the next one */
    for (uint32_t line = 1; line < FULL; line++) add(path(main, "f", line), 1);
    ps_flush();
    recorder_forget();
    ps_memory_set_limit(ps_memory_used());
    add(path(main, "f", 1), 10);
    add(path(main, "f", FULL - 1), 100);
    add(path(main, "f", FULL), 1000);
    CHECK(path(main, "f", 0) == path(main, "f", FULL)); /* (overflow) */
    ps_flush();
    CHECK_EQUAL(weights(), 1110);
    CHECK_EQUAL(recorder_count(PS_PROBE_STACK__CPU, NULL), 3);
    CHECK_EQUAL(recorder_last(PS_PROBE_STACK__CPU, NULL).arg[0], id_of("(overflow)"));
    CHECK_EQUAL(recorder_last(PS_PROBE_STACK__CPU, NULL).arg[3], 1000);
    CHECK(ps_paths_need_upkeep());
    ps_paths_upkeep();
    CHECK(!ps_paths_need_upkeep());
    recorder_forget();
    add(path(main = path(NULL, "<main>", 1), "f", FULL), 5);
    add(path(main, "f", 1), 50);
    ps_flush();
    CHECK_EQUAL(weights(), 55);
    CHECK_EQUAL(recorder_count(PS_PROBE_STACK__FRAME, "(overflow)"), 0);
    ps_memory_set_limit(0);
    end();
}

/* Without a flush in between nothing more could be forgotten. It would take time in vain. */
static void forgets_once_a_flush(void)
{
    begin_again();
    ps_flush();
    for (uint32_t line = 0; !ps_paths_need_upkeep(); line++) add(path(NULL, "f", line), 1);
    ps_paths_upkeep();
    CHECK(!ps_paths_need_upkeep());
    ps_flush();
    CHECK(ps_paths_need_upkeep());
    ps_paths_upkeep();
    ps_flush();
    CHECK(!ps_paths_need_upkeep());
    end();
}

int main(void)
{
    RUN(fires_parents_first_and_then_the_figures);
    RUN(fires_what_grew_and_each_frame_once_a_flush);
    RUN(tells_threads_and_requests_apart);
    RUN(gives_each_frame_of_a_path_an_id);
    RUN(gives_the_same_ids_after_a_detach);
    RUN(counts_what_has_no_room);
    RUN(forgets_unused_paths_before_there_is_no_room);
    RUN(gives_all_memory_back);
    RUN(survives_without_memory);
    RUN(drops_what_was_counted_before_an_interval_begins);
    RUN(counts_the_paths_of_samples);
    RUN(tells_a_stack_that_was_cut);
    RUN(finds_known_paths_without_memory);
    RUN(forgets_once_a_flush);
    return check_report("call_paths");
}

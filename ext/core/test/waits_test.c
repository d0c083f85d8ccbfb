#include "features/waits.h"

#include "base/memory.h"
#include "table/flush.h"
#include "check.h"
#include "recorder.h"

static const ps_site *site(const char *name, uint64_t line)
{
    return ps_site_intern(name, strlen(name), line ? "/app/shop.rb" : "", line ? 12 : 0, line);
}

static const ps_wait_times one = {.waits = 1, .blocked = 500, .vm_lock = 20, .longest = 520},
                           three = {.waits = 3, .blocked = 900, .vm_lock = 60, .longest = 700};

static void add_in(ps_counted *request, const ps_wait_times *times)
{
    ps_waits_add(site("Thread::Queue#pop", 0), site("Shop#work", 6), &ps_site_none, request, times);
}

static void add(const ps_wait_times *times)
{
    add_in(NULL, times);
}

/* Flushes, and returns the event that ended the flush. */
static struct recorded flush(void)
{
    recorder_forget();
    ps_flush();
    return recorder_last(PS_PROBE_STATS__DONE, NULL);
}

/* As when a tracer leaves and another one comes. */
static void begin_again(void)
{
    ps_waits_feature.forget();
    ps_table_clear(&ps_wait_table);
    flush();
}

/* The waits in all rows that were fired last. */
static uint64_t waits_told(void)
{
    return recorder_sum(PS_PROBE_WAIT__STATS, NULL, 3);
}

static void sums_waits_of_one_place(void)
{
    add(&one);
    add(&three);
    flush();
    struct recorded event = recorder_last(PS_PROBE_WAIT__STATS, "Thread::Queue#pop");
    CHECK_EQUAL(recorder_count(PS_PROBE_WAIT__STATS, NULL), 1);
    CHECK_EQUAL(event.arg[2], 6);
    CHECK_EQUAL(event.arg[3], 4);
    CHECK_EQUAL(event.arg[4], 1400);
    CHECK_EQUAL(event.more.wait.vm_lock, 80);
    CHECK_EQUAL(event.more.wait.longest, 700);
    begin_again();
}

/* The row of this request that the last flush fired. */
static struct recorded row_in(const char *request)
{
    for (size_t i = 0; i < recorder_total(); i++) {
        struct recorded event = recorder_at(i);
        if (event.probe == PS_PROBE_WAIT__STATS && strcmp(event.more.wait.request, request) == 0)
            return event;
    }
    return (struct recorded){0};
}

static void gives_waits_to_the_route_of_their_request(void)
{
    RAISE(STATS__BY_REQUEST);
    ps_counted slow = {0}, quick = {0};
    add_in(&slow, &three);
    add_in(&quick, &one);
    add(&one);
    flush();
    CHECK_EQUAL(waits_told(), 1); /* the routes of the others are not known yet */
    CHECK_STRING(row_in("").text[0], "Thread::Queue#pop");
    CHECK_EQUAL(row_in("").more.wait.request_number, 0);

    ps_routes_known(&slow, "GET", "/orders/:id");
    add_in(&slow, &one);
    ps_routes_end(&slow);
    flush();
    CHECK_EQUAL(waits_told(), 4);
    struct recorded event = row_in("GET /orders/:id");
    CHECK_STRING(event.text[0], "Thread::Queue#pop");
    CHECK_EQUAL(event.arg[2], 6);
    CHECK_EQUAL(event.arg[3], 4);
    CHECK_EQUAL(event.arg[4], 1400);
    CHECK_EQUAL(event.more.wait.vm_lock, 80);
    CHECK_EQUAL(event.more.wait.longest, 700);
    CHECK_STRING(event.more.wait.function, "Shop#work");
    CHECK(event.more.wait.request_number > 0);

    ps_routes_known(&quick, "GET", "/quick");
    ps_routes_end(&quick);
    flush();
    CHECK_EQUAL(waits_told(), 1);
    CHECK_EQUAL(row_in("GET /quick").more.wait.longest, 520);
    begin_again();
    LOWER(STATS__BY_REQUEST);
}

static void counts_in_no_request_what_has_no_memory_for_it(void)
{
    RAISE(STATS__BY_REQUEST);
    ps_counted request = {0};
    add(&one);
    ps_memory_set_limit(1);
    add_in(&request, &three);
    ps_memory_set_limit(0);
    ps_routes_known(&request, "GET", "/orders");
    ps_routes_end(&request);
    flush();
    CHECK_EQUAL(waits_told(), 4);
    CHECK_EQUAL(row_in("").arg[3], 4);
    begin_again();
    LOWER(STATS__BY_REQUEST);
}

static void tells_at_the_flush_what_has_no_name_yet(void)
{
    ps_waits_keep(0, &one);
    ps_waits_keep(7, &three);
    struct recorded done = flush();
    struct recorded event = recorder_last(PS_PROBE_WAIT__STATS, "(unnamed)");
    CHECK_EQUAL(done.arg[3], 1);
    CHECK_EQUAL(done.arg[4], 0);
    CHECK_STRING(event.text[1], "");
    CHECK_EQUAL(event.arg[3], 4);
    CHECK_EQUAL(event.arg[4], 1400);
    CHECK_EQUAL(event.more.wait.vm_lock, 80);
    CHECK_EQUAL(event.more.wait.longest, 700);
    CHECK_EQUAL(event.more.wait.holder_id, 0);
    CHECK_EQUAL(flush().arg[3], 0);
    CHECK_EQUAL(ps_waits_take(7).waits, 0);
    begin_again();
}

static void tells_under_its_name_what_was_named_in_time(void)
{
    ps_waits_keep(0, &one);
    ps_waits_keep(0, &three);
    ps_wait_times taken = ps_waits_take(0);
    CHECK_EQUAL(taken.waits, 4);
    CHECK_EQUAL(taken.blocked, 1400);
    CHECK_EQUAL(taken.vm_lock, 80);
    CHECK_EQUAL(taken.longest, 700);
    add(&taken);
    flush();
    CHECK_EQUAL(recorder_count(PS_PROBE_WAIT__STATS, "(unnamed)"), 0);
    CHECK_EQUAL(waits_told(), 4);
    begin_again();
}

static void gives_no_name_where_there_is_no_room(void)
{
    for (uint32_t i = 0; i < PS_WAITS_KEPT + 10; i++) ps_waits_keep(i, &one);
    flush();
    CHECK_EQUAL(recorder_last(PS_PROBE_WAIT__STATS, "(unnamed)").arg[3], PS_WAITS_KEPT + 10);
    CHECK_EQUAL(recorder_last(PS_PROBE_WAIT__STATS, "(unnamed)").arg[4], (PS_WAITS_KEPT + 10) * 500);
    begin_again();
}

static void leaves_out_what_ended_before_the_interval(void)
{
    ps_waits_keep(0, &one);
    ps_flush_mark();
    ps_waits_keep(0, &three);
    flush();
    CHECK_EQUAL(waits_told(), 3);
    ps_waits_keep(0, &one);
    ps_waits_drop();
    flush();
    CHECK_EQUAL(waits_told(), 0);
    begin_again();
    ps_waits_keep(1, &one);
    begin_again();
    CHECK_EQUAL(waits_told(), 0);
}

/* While the rows are fired, the VM names what was kept after the cut. */
static void name_in_between(void)
{
    ps_waits_keep(3, &one);
    ps_wait_times taken = ps_waits_take(3);
    add(&taken);
}

static void counts_each_wait_once_while_the_vm_names_some(void)
{
    ps_waits_keep(3, &three);
    add(&one);
    recorder_meanwhile = name_in_between;
    flush();
    recorder_meanwhile = NULL;
    CHECK_EQUAL(waits_told(), 4);
    uint64_t fired = recorder_total();
    flush();
    CHECK_EQUAL(waits_told(), fired);
    begin_again();
}

static void reports_waits_without_memory_in_the_overflow_row(void)
{
    ps_memory_set_limit(1);
    ps_waits_keep(0, &three);
    add(&one);
    ps_waits_add_untimed();
    struct recorded done = flush();
    CHECK_EQUAL(recorder_count(PS_PROBE_WAIT__STATS, "(overflow)"),
                recorder_count(PS_PROBE_WAIT__STATS, NULL));
    CHECK_EQUAL(waits_told(), 5);
    CHECK_EQUAL(recorder_sum(PS_PROBE_WAIT__STATS, NULL, 4), 1400);
    CHECK_EQUAL(done.arg[4], 5);
    CHECK_EQUAL(flush().arg[4], 0);
    ps_memory_set_limit(0);
    begin_again();
}

int main(void)
{
    RAISE(WAIT__STATS);
    RAISE(STATS__DONE);
    RUN(reports_waits_without_memory_in_the_overflow_row);
    RUN(sums_waits_of_one_place);
    RUN(counts_in_no_request_what_has_no_memory_for_it);
    RUN(gives_waits_to_the_route_of_their_request);
    RUN(tells_at_the_flush_what_has_no_name_yet);
    RUN(tells_under_its_name_what_was_named_in_time);
    RUN(gives_no_name_where_there_is_no_room);
    RUN(leaves_out_what_ended_before_the_interval);
    RUN(counts_each_wait_once_while_the_vm_names_some);
    return check_report("waits");
}

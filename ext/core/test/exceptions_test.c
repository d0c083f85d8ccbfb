#include "features/exceptions.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/thread_id.h"
#include "table/flush.h"
#include "usdt/probe.h"
#include "check.h"
#include "recorder.h"

static const ps_site *site(const char *name, const char *path, uint64_t line)
{
    return ps_site_intern(name, strlen(name), path, strlen(path), line);
}

/* What stands in for a VM's raise: the places that it would find, and how often it was asked. */
struct raise {
    const ps_site *function, *app;
    int asked;
};

static void find_places(const void *of, const ps_site **function, const ps_site **app)
{
    struct raise *raise = (struct raise *)(uintptr_t)of;
    *function = raise->function;
    *app = raise->app;
    raise->asked++;
}

static ps_row *row_of(const char *type)
{
    struct raise raise = {site("Parser#parse", "/app/p.rb", 3), site("", "/app/run.rb", 40), 0};
    return ps_exceptions_row(site(type, "/app/p.rb", 7), NULL, find_places, &raise);
}

static void begin_again(void)
{
    recorder_lower_all();
    recorder_forget();
    ps_table_clear(&ps_exception_table);
}

static void finds_the_places_of_a_new_row_alone(void)
{
    struct raise raise = {site("Parser#parse", "/app/p.rb", 3), site("", "/app/run.rb", 40), 0};
    const ps_site *raised = site("KeyError", "/app/p.rb", 7);
    ps_row *row = ps_exceptions_row(raised, NULL, find_places, &raise);
    CHECK(row->site == raised);
    CHECK(row->at[PS_EXCEPTION_RAISED_IN] == raise.function);
    CHECK(row->at[PS_EXCEPTION_APP_AT] == raise.app);
    CHECK(ps_exceptions_row(raised, NULL, find_places, &raise) == row);
    CHECK_EQUAL(raise.asked, 1);
    begin_again();
}

static void keeps_a_row_whose_stack_has_no_line_of_the_application(void)
{
    struct raise raise = {site("Parser#parse", "/app/p.rb", 3), NULL, 0};
    const ps_site *raised = site("KeyError", "/app/p.rb", 7);
    ps_row *row = ps_exceptions_row(raised, NULL, find_places, &raise);
    CHECK(!row->at[PS_EXCEPTION_APP_AT]);
    ps_exceptions_row(raised, NULL, find_places, &raise);
    CHECK_EQUAL(raise.asked, 1);
    begin_again();
}

static void gives_functions_rows_of_their_own_where_the_vm_splits_them(void)
{
    const ps_site *raised = site("KeyError", "/app/p.rb", 7);
    struct raise one = {site("one", "/app/p.rb", 7), NULL, 0},
                 other = {site("other", "/app/p.rb", 7), NULL, 0};
    ps_row *first = ps_exceptions_row(raised, one.function, find_places, &one);
    ps_row *second = ps_exceptions_row(raised, other.function, find_places, &other);
    CHECK(first != second);
    CHECK(first->at[PS_EXCEPTION_RAISED_IN] == one.function);
    CHECK(second->at[PS_EXCEPTION_RAISED_IN] == other.function);
    CHECK(ps_exceptions_row(raised, NULL, find_places, &one) != first);
    begin_again();
}

static void finds_the_places_of_a_row_that_was_made_for_a_raise_that_was_not_seen(void)
{
    struct raise raise = {site("Parser#parse", "/app/p.rb", 3), site("", "/app/run.rb", 40), 0};
    const ps_site *raised = site("KeyError", "/app/p.rb", 7);
    ps_row *row = ps_exceptions_row(raised, NULL, NULL, NULL);
    CHECK(row->site == raised);
    CHECK(!row->at[PS_EXCEPTION_RAISED_IN]);
    CHECK(ps_exceptions_row(raised, NULL, find_places, &raise) == row);
    CHECK(row->at[PS_EXCEPTION_RAISED_IN] == raise.function);
    begin_again();
}

/* Without memory for their names, raises of many functions are in one row. */
static void names_no_function_of_a_row_that_stands_for_many(void)
{
    struct raise raise = {site("Parser#parse", "/app/p.rb", 3), site("", "/app/run.rb", 40), 0};
    ps_row *row = ps_exceptions_row(&ps_site_overflow, NULL, find_places, &raise);
    CHECK(row->site == &ps_site_overflow);
    CHECK(!row->at[PS_EXCEPTION_RAISED_IN] && !row->at[PS_EXCEPTION_APP_AT]);
    row = ps_exceptions_row(&ps_site_overflow, raise.function, find_places, &raise);
    CHECK(row->at[PS_EXCEPTION_RAISED_IN] == raise.function);
    begin_again();
}

static void puts_what_has_no_memory_into_the_overflow_row(void)
{
    struct raise raise = {site("Parser#parse", "/app/p.rb", 3), NULL, 0};
    const ps_site *raised = site("KeyError", "/app/p.rb", 7);
    uint64_t before = ps_exception_table.overflowed;
    ps_memory_set_limit(1);
    ps_row *row = ps_exceptions_row(raised, NULL, find_places, &raise);
    ps_exceptions_row(raised, NULL, find_places, &raise);
    ps_memory_set_limit(0);
    CHECK(ps_row_is_overflow(&ps_exception_table, row));
    CHECK(row->site == &ps_site_overflow);
    CHECK_EQUAL(ps_exception_table.overflowed, before + 2);
    CHECK_EQUAL(raise.asked, 0);
    begin_again();
}

static void counts_raises_and_rescues(void)
{
    ps_row *row = row_of("KeyError");
    ps_exceptions_raised(row, 10, 500, NULL);
    ps_exceptions_raised(row, 4, 200, NULL);
    ps_exceptions_deeper(row, 12, 2, 30, NULL);
    CHECK_EQUAL(row->count[PS_EXCEPTION_RAISED], 2);
    CHECK_EQUAL(row->count[PS_EXCEPTION_DEPTH], 16);
    CHECK_EQUAL(row->count[PS_EXCEPTION_DEPTH_MAX], 12);
    CHECK_EQUAL(row->count[PS_EXCEPTION_COST], 730);
    const ps_site *rescue = site("Parser#run", "/app/run.rb", 20), *later = site("main", "/app/run.rb", 2);
    ps_exceptions_rescued(row, rescue, true, NULL);
    ps_exceptions_rescued(row, NULL, false, NULL);
    CHECK_EQUAL(row->count[PS_EXCEPTION_RESCUED], 2);
    CHECK_EQUAL(row->count[PS_EXCEPTION_RESCUED_AT_ONCE], 1);
    CHECK(row->at[PS_EXCEPTION_RESCUED_AT] == rescue);
    ps_exceptions_rescued_at(row, later);
    CHECK(row->at[PS_EXCEPTION_RESCUED_AT] == later);
    CHECK_EQUAL(row->count[PS_EXCEPTION_RESCUED], 2);
    begin_again();
}

static void charges_a_raise_with_its_strings(void)
{
    ps_row *row = row_of("KeyError");
    const ps_site *asked = site("Logger#log", "/app/log.rb", 30);
    ps_exceptions_formatted(row, asked, 700, NULL);
    /* An exception that ends a thread is shown by the VM. */
    ps_exceptions_formatted(row, &ps_site_none, 50, NULL);
    CHECK_EQUAL(row->count[PS_EXCEPTION_STRINGS], 750);
    CHECK(row->at[PS_EXCEPTION_ASKED_AT] == asked);
    begin_again();
}

static void counts_for_the_route_of_a_request(void)
{
    ps_counted request = {0};
    RAISE(STATS__BY_REQUEST);
    RAISE(EXCEPTION__STATS);
    ps_row *row = row_of("KeyError");
    ps_exceptions_raised(row, 10, 500, &request);
    ps_exceptions_deeper(row, 14, 4, 60, &request);
    ps_exceptions_rescued(row, NULL, true, &request);
    ps_exceptions_formatted(row, &ps_site_none, 700, &request);
    ps_exceptions_raised(row, 3, 100, NULL);
    ps_routes_known(&request, "GET", "/orders");
    ps_routes_end(&request);
    CHECK_EQUAL(row->count[PS_EXCEPTION_RAISED], 1);
    ps_flush();
    CHECK_EQUAL(recorder_count(PS_PROBE_EXCEPTION__STATS, "KeyError"), 2);
    struct recorded event = recorder_last(PS_PROBE_EXCEPTION__STATS, "KeyError");
    CHECK_STRING(event.more.exception.request, "GET /orders");
    CHECK_EQUAL(event.arg[3], 1);
    CHECK_EQUAL(event.arg[4], ps_ticks_to_ns(560));
    CHECK_EQUAL(event.more.exception.depth_sum, 14);
    CHECK_EQUAL(event.more.exception.depth_max, 14);
    CHECK_EQUAL(event.more.exception.rescued, 1);
    CHECK_EQUAL(event.more.exception.rescued_at_once, 1);
    CHECK_EQUAL(event.more.exception.string_cost, ps_ticks_to_ns(700));
    CHECK_STRING(event.more.exception.function, "Parser#parse");
    begin_again();
    ps_routes_clear();
}

static void fires_a_raise(void)
{
    ps_exceptions_fire_raise(row_of("KeyError"), 12, 345);
    struct recorded event = recorder_last(PS_PROBE_EXCEPTION__RAISE, "KeyError");
    CHECK_STRING(event.text[1], "/app/p.rb");
    CHECK_EQUAL(event.arg[2], 7);
    CHECK_EQUAL(event.arg[3], 12);
    CHECK_EQUAL(event.arg[4], ps_ticks_to_ns(345));
    CHECK_STRING(event.more.raise.path, "/app/p.rb");
    CHECK_STRING(event.more.raise.function, "Parser#parse");
    CHECK_EQUAL(event.more.raise.thread_id, ps_thread_id());
    ps_exceptions_fire_raise(ps_exceptions_row(site("E", "/app/p.rb", 9), NULL, NULL, NULL), 1, 1);
    CHECK_STRING(recorder_last(PS_PROBE_EXCEPTION__RAISE, "E").more.raise.function, "");
    begin_again();
}

static void fires_a_rescue(void)
{
    ps_row *row = row_of("KeyError");
    ps_exceptions_fire_rescue(row, site("Parser#run", "/app/run.rb", 20), 345, 2);
    struct recorded event = recorder_last(PS_PROBE_EXCEPTION__RESCUE, "KeyError");
    CHECK_STRING(event.text[1], "/app/run.rb");
    CHECK_EQUAL(event.arg[2], 20);
    CHECK_EQUAL(event.arg[3], ps_ticks_to_ns(345));
    CHECK_EQUAL(event.arg[4], 2);
    CHECK_STRING(event.more.rescue.path, "/app/run.rb");
    CHECK_STRING(event.more.rescue.function, "Parser#run");
    CHECK_STRING(event.more.rescue.raise_file, "/app/p.rb");
    CHECK_EQUAL(event.more.rescue.raise_line, 7);
    ps_exceptions_fire_rescue(row, NULL, 1, 0);
    event = recorder_last(PS_PROBE_EXCEPTION__RESCUE, "KeyError");
    CHECK_STRING(event.text[1], "");
    CHECK_STRING(event.more.rescue.function, "");
    begin_again();
}

static void fires_a_detail(void)
{
    static const char header[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    ps_span span, none = {.known = false};
    CHECK(ps_span_of_header(&span, header, strlen(header)));
    ps_exceptions_fire_detail(row_of("KeyError"), 12, 345, "no such key", &span);
    struct recorded event = recorder_last(PS_PROBE_EXCEPTION__DETAIL, "KeyError");
    CHECK_STRING(event.text[1], "/app/p.rb");
    CHECK_EQUAL(event.arg[2], 7);
    CHECK_EQUAL(event.arg[3], 12);
    CHECK_EQUAL(event.arg[4], ps_ticks_to_ns(345));
    CHECK_STRING(event.more.detail.path, "/app/p.rb");
    CHECK_STRING(event.more.detail.function, "Parser#parse");
    CHECK_STRING(event.more.detail.message, "no such key");
    CHECK_STRING(event.traceparent, header);
    CHECK_STRING(event.more.detail.app_file, "/app/run.rb");
    CHECK_EQUAL(event.more.detail.app_line, 40);
    CHECK_EQUAL(event.more.detail.thread_id, ps_thread_id());
    ps_exceptions_fire_detail(ps_exceptions_row(site("E", "/app/p.rb", 9), NULL, NULL, NULL), 1, 1, "",
                              &none);
    event = recorder_last(PS_PROBE_EXCEPTION__DETAIL, "E");
    CHECK_STRING(event.more.detail.app_file, "");
    CHECK_EQUAL(event.more.detail.app_line, 0);
    CHECK_STRING(event.traceparent, "");
    begin_again();
}

static void allows_ten_details_a_second_for_each_row(void)
{
    enum { EVENTS = 25 };
    ps_row *row = row_of("KeyError"), *other = row_of("Other");
    uint64_t due, of_other, suppressed;
    uint32_t second;
    /* Once more if a second ended meanwhile. */
    do {
        row->exception.window = other->exception.window = 0;
        suppressed = ps_details_suppressed;
        due = of_other = 0;
        due += ps_exceptions_detail_due(row);
        second = row->exception.window;
        for (int i = 1; i < EVENTS; i++) due += ps_exceptions_detail_due(row);
        of_other = ps_exceptions_detail_due(other);
    } while (row->exception.window != second || other->exception.window != second);
    CHECK_EQUAL(due, PS_DETAILS_PER_SECOND);
    CHECK_EQUAL(of_other, 1);
    CHECK_EQUAL(ps_details_suppressed - suppressed, EVENTS - PS_DETAILS_PER_SECOND);
    row->exception.window--;
    CHECK(ps_exceptions_detail_due(row));
    begin_again();
}

/* Without a GIL another thread may be naming the row. */
static void fires_nothing_for_a_row_without_a_name(void)
{
    ps_row *row = ps_table_row(&ps_exception_table, 1, 2, 3);
    uint64_t suppressed = ps_details_suppressed;
    ps_exceptions_fire_raise(row, 1, 1);
    ps_exceptions_fire_rescue(row, NULL, 1, 1);
    for (int i = 0; i < 20; i++) CHECK(!ps_exceptions_detail_due(row));
    CHECK_EQUAL(ps_details_suppressed, suppressed);
    CHECK_EQUAL(recorder_total(), 0);
    begin_again();
}

int main(void)
{
    RUN(finds_the_places_of_a_new_row_alone);
    RUN(keeps_a_row_whose_stack_has_no_line_of_the_application);
    RUN(gives_functions_rows_of_their_own_where_the_vm_splits_them);
    RUN(finds_the_places_of_a_row_that_was_made_for_a_raise_that_was_not_seen);
    RUN(names_no_function_of_a_row_that_stands_for_many);
    RUN(puts_what_has_no_memory_into_the_overflow_row);
    RUN(counts_raises_and_rescues);
    RUN(charges_a_raise_with_its_strings);
    RUN(counts_for_the_route_of_a_request);
    RUN(fires_a_raise);
    RUN(fires_a_rescue);
    RUN(fires_a_detail);
    RUN(allows_ten_details_a_second_for_each_row);
    RUN(fires_nothing_for_a_row_without_a_name);
    return check_report("exceptions");
}

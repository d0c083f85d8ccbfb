#include <stdio.h>

#include "features/exceptions.h"
#include "features/objects.h"
#include "base/memory.h"
#include "features/samples.h"
#include "table/flush.h"
#include "table/routes.h"
#include "check.h"
#include "recorder.h"

static ps_row *row_of(ps_table *table, const char *name)
{
    const ps_site *site = ps_site_intern(name, strlen(name), "/app/a.rb", 9, 12);
    ps_row *row = ps_table_row(table, (uintptr_t)site, 0, 0);
    if (!row->site) PS_WRITE_RELEASE(row->site, site);
    return row;
}

static void begin_again(void)
{
    recorder_lower_all();
    ps_table_clear(&ps_exception_table);
    ps_table_clear(&ps_object_table);
    ps_table_clear(&ps_sample_table);
    ps_flush();
    recorder_forget();
    RAISE(STATS__BY_REQUEST);
    RAISE(EXCEPTION__STATS);
    RAISE(OBJECT__STATS);
    RAISE(SAMPLE__STATS);
    RAISE(STATS__DONE);
}

/* The number of objects that the last flush fired for a request. */
static uint64_t objects_of(const char *request)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < recorder_total(); i++) {
        struct recorded event = recorder_at(i);
        if (event.probe == PS_PROBE_OBJECT__STATS && strcmp(event.more.object.request, request) == 0)
            sum += event.arg[3];
    }
    return sum;
}

static void flush(void)
{
    recorder_forget();
    ps_flush();
}

static void gives_to_a_route_what_was_counted_before_it_was_known(void)
{
    begin_again();
    ps_row *row = row_of(&ps_object_table, "String");
    ps_counted request = {0};
    ps_objects_add(row, 40, &request);
    ps_objects_add(row, 40, &request);
    ps_objects_add(row, 40, NULL);
    flush();
    CHECK_EQUAL(objects_of(""), 1);
    /* The route of the others is not known yet. */
    CHECK_EQUAL(recorder_count(PS_PROBE_OBJECT__STATS, NULL), 1);

    ps_routes_known(&request, "GET", "/orders/:id");
    ps_objects_add(row, 40, &request);
    ps_routes_end(&request);
    flush();
    CHECK_EQUAL(objects_of(""), 0);
    CHECK_EQUAL(objects_of("GET /orders/:id"), 3);
    struct recorded event = recorder_last(PS_PROBE_OBJECT__STATS, "String");
    CHECK_EQUAL(event.arg[4], 120);
    CHECK(event.more.object.request_number > 0 && event.more.object.request_number < 1ull << 48);
    CHECK_STRING(event.more.object.path, "/app/a.rb");
}

static void keeps_requests_at_a_time_apart_and_their_rows_for_the_next(void)
{
    begin_again();
    ps_row *row = row_of(&ps_object_table, "Array");
    for (int round = 0; round < 100; round++) {
        ps_counted one = {0}, other = {0};
        for (int i = 0; i < 3; i++) ps_objects_add(row, 40, &one);
        ps_objects_add(row, 40, &other);
        ps_routes_known(&other, "POST", "/b");
        ps_routes_known(&one, "GET", "/a");
        ps_routes_known(&one, "GET", "/late"); /* it has a route already */
        ps_routes_end(&one);
        ps_routes_end(&other);
        ps_routes_end(&other);
    }
    flush();
    CHECK_EQUAL(objects_of("GET /a"), 300);
    CHECK_EQUAL(objects_of("POST /b"), 100);
    CHECK_EQUAL(objects_of("GET /late"), 0);
    /* Two rows each, for the place and for the rest, of two requests and of two routes. */
    CHECK_EQUAL(ps_object_table.routes->rows, 8);
}

static void gives_exceptions_with_their_places_and_the_deepest(void)
{
    begin_again();
    ps_row *row = row_of(&ps_exception_table, "Failure");
    row->at[PS_EXCEPTION_RAISED_IN] = ps_site_intern("Shop#sell", 9, "/app/a.rb", 9, 12);
    ps_counted request = {0};
    uint64_t *count = ps_routes_row(&ps_exception_table, row, &request)->count;
    count[PS_EXCEPTION_RAISED] = 2;
    count[PS_EXCEPTION_DEPTH] = 70;
    count[PS_EXCEPTION_DEPTH_MAX] = 40;
    ps_routes_known(&request, "JOB", "Mail");
    ps_routes_end(&request);
    flush();
    struct recorded event = recorder_last(PS_PROBE_EXCEPTION__STATS, "Failure");
    CHECK_EQUAL(event.arg[3], 2);
    CHECK_EQUAL(event.more.exception.depth_sum, 70);
    CHECK_EQUAL(event.more.exception.depth_max, 40);
    CHECK_STRING(event.more.exception.function, "Shop#sell");
    CHECK_STRING(event.more.exception.request, "JOB Mail");
    flush();
    CHECK_EQUAL(recorder_count(PS_PROBE_EXCEPTION__STATS, NULL), 0);
}

static void gives_samples_with_recursion_counted_once(void)
{
    begin_again();
    ps_row *f = row_of(&ps_sample_table, "f"), *g = row_of(&ps_sample_table, "g");
    const ps_sample_frame stack[] = {{g, 1}, {f, 1}, {f, 1}};
    ps_counted request = {0};
    ps_samples_add(stack, 3, 0, NULL, 1000, 1, &request, false);
    ps_samples_add(stack, 3, 0, NULL, 10, 1, NULL, false);
    ps_routes_known(&request, "GET", "/");
    ps_samples_add(stack, 3, 0, NULL, 1000, 1, &request, false);
    ps_routes_end(&request);
    flush();
    CHECK_EQUAL(recorder_count(PS_PROBE_SAMPLE__STATS, NULL), 4);
    /* The rows of routes are fired after those without a request. */
    struct recorded event = recorder_last(PS_PROBE_SAMPLE__STATS, "f");
    CHECK_STRING(event.more.sampled.request, "GET /");
    CHECK_EQUAL(event.arg[3], 0);
    CHECK_EQUAL(event.arg[4], 2000);
    CHECK_EQUAL(event.more.sampled.total_samples, 2);
    CHECK_EQUAL(recorder_sum(PS_PROBE_SAMPLE__STATS, "g", 3), 2010);
}

static void counts_where_it_was_when_nobody_wants_to_know(void)
{
    begin_again();
    LOWER(STATS__BY_REQUEST);
    ps_counted request = {0};
    ps_routes_known(&request, "GET", "/");
    CHECK(!request.label);
    ps_routes_end(&request);
    /* A tracer attaches in the middle of the request. */
    RAISE(STATS__BY_REQUEST);
    ps_objects_add(row_of(&ps_object_table, "Hash"), 40, &request);
    LOWER(STATS__BY_REQUEST);
    ps_routes_known(&request, "GET", "/");
    ps_routes_end(&request);
    flush();
    CHECK_EQUAL(objects_of("GET /"), 1);
}

static void forgets_what_a_cleared_table_had(void)
{
    begin_again();
    ps_counted request = {0};
    ps_objects_add(row_of(&ps_object_table, "Set"), 40, &request);
    ps_samples_add(&(ps_sample_frame){row_of(&ps_sample_table, "f"), 1}, 1, 0, NULL, 5, 1, &request, false);
    ps_table_clear(&ps_object_table);
    ps_routes_known(&request, "GET", "/");
    ps_routes_end(&request);
    flush();
    CHECK_EQUAL(recorder_count(PS_PROBE_OBJECT__STATS, NULL), 0);
    CHECK_EQUAL(recorder_count(PS_PROBE_SAMPLE__STATS, "f"), 1);
}

static void leaves_the_parents_part_to_the_parent(void)
{
    begin_again();
    ps_row *row = row_of(&ps_object_table, "Range");
    ps_counted request = {0};
    ps_objects_add(row, 40, &request);
    ps_flush_after_fork();
    ps_objects_add(row, 40, &request);
    ps_routes_known(&request, "GET", "/");
    ps_routes_end(&request);
    flush();
    CHECK_EQUAL(objects_of("GET /"), 1);
}

/* Where no template is known the routes are paths, and clients can make up any number of paths. */
static void has_a_bound_for_routes(void)
{
    begin_again();
    ps_row *row = row_of(&ps_object_table, "String");
    for (int i = 0; i < 3000; i++) {
        char path[64];
        snprintf(path, sizeof(path), i % 2 ? "/wp-%d" : "/\xff%d", i);
        ps_counted request = {0};
        ps_objects_add(row, 40, &request);
        ps_routes_known(&request, "GET", path);
        ps_routes_end(&request);
    }
    flush();
    CHECK_EQUAL(recorder_sum(PS_PROBE_OBJECT__STATS, "String", 3), 3000);
    CHECK(objects_of("(others)") > 1900);
    CHECK_EQUAL(objects_of("GET /?0"), 1);
    CHECK(recorder_total() < 1100);
}

/* As after the last listener has left. */
static void give_all_back(void)
{
    recorder_lower_all();
    ps_table_clear(&ps_exception_table);
    ps_table_clear(&ps_object_table);
    ps_table_clear(&ps_sample_table);
    ps_routes_clear();
    ps_sites_clear();
}

/* AddressSanitizer reports a use of the route's name, because it is freed memory then. */
static void names_a_route_anew_when_names_were_given_back_during_its_request(void)
{
    begin_again();
    ps_counted request = {0}, unknown = {0};
    ps_routes_known(&request, "GET", "/long");
    ps_objects_add(row_of(&ps_object_table, "Proc"), 40, &request);
    ps_objects_add(row_of(&ps_object_table, "Proc"), 40, &unknown);

    give_all_back();

    begin_again();
    ps_row *row = row_of(&ps_object_table, "Proc");
    for (int i = 0; i < 5; i++) ps_objects_add(row, 40, &request);
    flush();
    CHECK_EQUAL(objects_of("GET /long"), 0);
    ps_routes_known(&request, "GET", "/long");
    ps_routes_known(&unknown, "GET", "/unknown");
    ps_routes_end(&request);
    ps_routes_end(&unknown);
    flush();
    CHECK_EQUAL(objects_of("GET /long"), 5);
    CHECK_EQUAL(recorder_sum(PS_PROBE_OBJECT__STATS, NULL, 3), 5);
}

static void gives_all_memory_back(void)
{
    give_all_back();
    CHECK_EQUAL(ps_memory_used(), 0);
}

/* The number of objects that the flush fired for this route and class. */
static uint64_t objects_of_class(const char *request, const char *class)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < recorder_total(); i++) {
        struct recorded event = recorder_at(i);
        if (event.probe == PS_PROBE_OBJECT__STATS && strcmp(event.more.object.request, request) == 0 &&
            strcmp(event.text[0], class) == 0)
            sum += event.arg[3];
    }
    return sum;
}

static void ask(const char *route, ps_row *const *rows, int number, int times)
{
    ps_counted request = {0};
    for (int i = 0; i < number * times; i++) ps_objects_add(rows[i % number], 40, &request);
    ps_routes_known(&request, "GET", route);
    ps_routes_end(&request);
}

/*
 * First come 2,000 small rows, where there is room for some 1,300. Then come large ones: some at
 * once, one little by little.
 */
static void keeps_the_large_rows_whatever_comes_before_them(void)
{
    enum { ROUTES = 40, PLACES = 50, LARGE = 30 };
    begin_again();
    ps_row *rows[PLACES], *large[LARGE], *slow = row_of(&ps_object_table, "Slow");
    char name[32];
    for (int i = 0; i < PLACES; i++) {
        snprintf(name, sizeof(name), "Small%d", i);
        rows[i] = row_of(&ps_object_table, name);
    }
    for (int i = 0; i < LARGE; i++) {
        snprintf(name, sizeof(name), "Large%d", i);
        large[i] = row_of(&ps_object_table, name);
    }
    size_t limit = ps_memory_limit();
    ps_memory_set_limit(1u << 20);
    for (int i = 0; i < ROUTES; i++) {
        snprintf(name, sizeof(name), "/small/%d", i);
        ask(name, rows, PLACES, 2);
    }
    ask("/large", large, LARGE, 1000);
    for (int i = 0; i < 2000; i++) ask("/slow", &slow, 1, 1);
    ps_memory_set_limit(limit);
    flush();
    for (int i = 0; i < ROUTES; i++) {
        snprintf(name, sizeof(name), "GET /small/%d", i);
        CHECK_EQUAL(objects_of(name), PLACES * 2); /* each route has all of its counts */
    }
    CHECK(recorder_total() < 1400);
    CHECK_EQUAL(objects_of_class("GET /small/39", "(overflow)"), PLACES * 2);
    CHECK_EQUAL(objects_of_class("GET /small/0", "(overflow)"), 0);
    for (int i = 0; i < LARGE; i++) {
        snprintf(name, sizeof(name), "Large%d", i);
        CHECK_EQUAL(objects_of_class("GET /large", name), 1000);
    }
    CHECK(objects_of_class("GET /slow", "Slow") > 1000);
    CHECK_EQUAL(objects_of("GET /slow"), 2000);
    /* Counts without a row of their own are reported. */
    struct recorded done = recorder_last(PS_PROBE_STATS__DONE, NULL);
    CHECK(done.arg[4] >= PLACES * 2);
    /* Clearing the table also resets what is known of its room. */
    begin_again();
    ps_row *again = row_of(&ps_object_table, "Small0");
    ask("/small/0", &again, 1, 2);
    flush();
    CHECK_EQUAL(objects_of_class("GET /small/0", "Small0"), 2);
}

/* Concurrent requests have rows of their own, which may be many. */
static void knows_the_route_of_what_a_request_had_no_memory_for(void)
{
    enum { PLACES = 4000 };
    begin_again();
    static ps_row *rows[PLACES];
    char name[32];
    for (int i = 0; i < PLACES; i++) {
        snprintf(name, sizeof(name), "Place%d", i);
        rows[i] = row_of(&ps_object_table, name);
    }
    ask("/a", rows, 1, 1);
    flush();
    size_t limit = ps_memory_limit();
    ps_memory_set_limit(ps_memory_used() + 200 * 1024);
    ask("/a", rows, PLACES, 1);
    ps_memory_set_limit(limit);
    flush();
    CHECK_EQUAL(objects_of("GET /a"), PLACES);
    CHECK(objects_of_class("GET /a", "(overflow)") > PLACES / 2);
}

/* A tracer's maps may have room for only some of the rows. These should be the large ones. */
static void fires_large_rows_first(void)
{
    begin_again();
    char name[32];
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "Class%d", i);
        ps_row *row = row_of(&ps_object_table, name);
        for (int n = i < 2900 ? 1 : 50; n > 0; n--) ps_objects_add(row, 40, NULL);
    }
    flush();
    for (size_t i = 0; i < 100; i++) CHECK_EQUAL(recorder_at(i).arg[3], 50);
    CHECK_EQUAL(recorder_count(PS_PROBE_OBJECT__STATS, NULL), 3000);
}

static void counts_where_it_was_when_memory_is_full(void)
{
    begin_again();
    ps_row *row = row_of(&ps_object_table, "Proc");
    size_t limit = ps_memory_limit();
    ps_memory_set_limit(1);
    ps_counted request = {0};
    for (int i = 0; i < 10; i++) ps_objects_add(row, 40, &request);
    ps_routes_known(&request, "GET", "/");
    ps_routes_end(&request);
    ps_memory_set_limit(limit);
    flush();
    CHECK_EQUAL(recorder_sum(PS_PROBE_OBJECT__STATS, NULL, 3), 10);
}

int main(void)
{
    ps_flush();
    RUN(gives_to_a_route_what_was_counted_before_it_was_known);
    RUN(keeps_requests_at_a_time_apart_and_their_rows_for_the_next);
    RUN(gives_exceptions_with_their_places_and_the_deepest);
    RUN(gives_samples_with_recursion_counted_once);
    RUN(counts_where_it_was_when_nobody_wants_to_know);
    RUN(forgets_what_a_cleared_table_had);
    RUN(leaves_the_parents_part_to_the_parent);
    RUN(counts_where_it_was_when_memory_is_full);
    RUN(keeps_the_large_rows_whatever_comes_before_them);
    RUN(knows_the_route_of_what_a_request_had_no_memory_for);
    RUN(fires_large_rows_first);
    RUN(has_a_bound_for_routes);
    RUN(names_a_route_anew_when_names_were_given_back_during_its_request);
    RUN(gives_all_memory_back);
    return check_report("routes");
}

#include "features/requests.h"

#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "recorder.h"

#define PARENT "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

static ps_text text(const char *bytes)
{
    return (ps_text){bytes, bytes ? strlen(bytes) : 0};
}

static void start(ps_request *request, const char *path, const char *header, bool own, const char *current)
{
    ps_request_start(request, text("GET"), text(path), text("https"), text(header), own, current);
}

static void raise_both(void)
{
    recorder_lower_all();
    recorder_forget();
    RAISE(REQUEST__START);
    RAISE(REQUEST__DONE);
}

static void takes_a_traceparent_as_the_standard_has_it_and_no_other(void)
{
    static const struct {
        const char *text;
        uint64_t flags; /* or REFUSED */
    } cases[] = {
#define REFUSED 0x100
        {PARENT, 1},
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", 0},
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff", 3},
        {"00-00000000000000000000000000000001-0000000000000001-02", 2},
        {"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", 1},
        {"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what the future brings", 1},
        {"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.what the future brings", REFUSED},
        {"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", REFUSED},
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-", REFUSED},
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0", REFUSED},
        {"00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01", REFUSED},
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333g-01", REFUSED},
        {"00-00000000000000000000000000000000-b7ad6b7169203331-01", REFUSED},
        {"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", REFUSED},
        {"00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", REFUSED},
        {" 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0", REFUSED},
        {"", REFUSED},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ps_trace trace;
        bool taken = ps_traceparent_read(&trace, cases[i].text, strlen(cases[i].text));
        CHECK_EQUAL(taken ? trace.flags : REFUSED, cases[i].flags);
    }
    ps_trace trace;
    char written[PS_TRACEPARENT_BUFFER];
    CHECK(ps_traceparent_read(&trace, PARENT, strlen(PARENT)));
    CHECK_EQUAL(trace.span_id, 0xb7ad6b7169203331u);
    ps_traceparent_write(written, &trace);
    CHECK_STRING(written, PARENT);
}

/* The trace and the flags come from the header. The span is the request's own. */
static void goes_on_with_the_trace_that_came_and_begins_one_where_none_did(void)
{
    ps_request request;
    raise_both();
    start(&request, "/labels/7", PARENT, true, "");
    CHECK_EQUAL(recorder_count(PS_PROBE_REQUEST__START, "/labels/7"), 1);
    struct recorded event = recorder_at(0);
    CHECK_STRING(event.text[1], "GET");
    char own[PS_TRACEPARENT_BUFFER];
    snprintf(own, sizeof(own), "00-0af7651916cd43dd8448eb211c80319c-%016" PRIx64 "-01",
             event.more.request.span_id);
    CHECK_STRING(request.traceparent, own);
    CHECK_EQUAL(event.more.request.parent_id, 0xb7ad6b7169203331u);
    CHECK_EQUAL(event.more.request.thread_id, gettid());
    CHECK(event.more.request.span_id && event.more.request.span_id != event.more.request.parent_id);

    static const char *const none[] = {NULL, "", "00-bad"};
    uint64_t last = 0;
    for (int i = 0; i < 3; i++) {
        ps_request other;
        ps_trace trace;
        start(&other, "/", none[i], true, "");
        CHECK(ps_traceparent_read(&trace, other.traceparent, strlen(other.traceparent)));
        CHECK_EQUAL(trace.span_id, other.span_id);
        CHECK_EQUAL(trace.flags, 1);
        CHECK_EQUAL(other.parent_id, 0);
        CHECK(trace.trace_id[0] != last);
        last = trace.trace_id[0];
    }
}

static void leaves_the_trace_to_an_application_that_has_one(void)
{
    ps_request request;
    raise_both();
    static const char current[] = "00-11111111111111111111111111111111-2222222222222222-01";
    start(&request, "/", PARENT, false, current);
    CHECK_STRING(recorder_at(0).traceparent, current);
    CHECK_STRING(request.traceparent, PARENT); /* used where no span is current */
    CHECK(request.span_id != 0);
    ps_request_done(&request, text(NULL), 200, "");
    CHECK_STRING(recorder_at(1).traceparent, PARENT);
    start(&request, "/", NULL, false, "");
    CHECK_STRING(request.traceparent, "");
    start(&request, "/", NULL, true, current);
    CHECK(strcmp(recorder_at(3).traceparent, request.traceparent) == 0 &&
          strcmp(request.traceparent, current) != 0);
}

/* For example a job that runs at once. */
static void made_in_another_is_its_child_unless_a_header_says_otherwise(void)
{
    ps_request outer, inner;
    raise_both();
    start(&outer, "/", PARENT, true, "");
    ps_request_start_job(&inner, text("Mail"), text(NULL), true, outer.traceparent, text("inline"),
                         text(NULL));
    CHECK_EQUAL(inner.parent_id, outer.span_id);
    CHECK(strncmp(inner.traceparent, PARENT, 35) == 0 && inner.span_id != outer.span_id);
    static const char other[] = "00-11111111111111111111111111111111-2222222222222222-00";
    ps_request_start_job(&inner, text("Mail"), text(other), true, outer.traceparent, text("inline"),
                         text(NULL));
    CHECK_EQUAL(inner.parent_id, 0x2222222222222222u);
    CHECK(strcmp(inner.traceparent + 53, "00") == 0);
    start(&inner, "/", NULL, false, outer.traceparent); /* the spans are the application's own */
    CHECK_EQUAL(inner.parent_id, 0);
}

static void is_done_once_with_its_template_status_and_time(void)
{
    ps_request request;
    raise_both();
    start(&request, "/labels/7", PARENT, true, "");
    check_sleep_ms(2);
    ps_request_done(&request, text("/labels/:number"), 404, "");
    ps_request_done(&request, text("/labels/:number"), 200, "");
    CHECK_EQUAL(recorder_total(), 2);
    struct recorded done = recorder_at(1);
    CHECK_STRING(done.text[0], "/labels/:number");
    CHECK_STRING(done.text[1], "GET");
    CHECK_EQUAL(done.arg[2], 404);
    CHECK(done.arg[3] >= 2000000 && done.arg[3] < 60000000000u);
    CHECK_EQUAL(done.more.request.span_id, recorder_at(0).more.request.span_id);
    CHECK_STRING(done.traceparent, request.traceparent);
    CHECK_STRING(done.path, "/labels/7");
    CHECK_STRING(done.template, "/labels/:number");
    start(&request, "/favicon.ico", NULL, true, "");
    ps_request_done(&request, text(NULL), 200, "");
    CHECK_EQUAL(recorder_count(PS_PROBE_REQUEST__DONE, "/favicon.ico"), 1);
    CHECK_STRING(recorder_at(3).template, "");
}

/*
 * Otherwise each order would be a route of its own, and a scanner would make thousands of routes.
 */
static void is_counted_without_its_ids_where_nobody_knows_a_template(void)
{
    static const char *const cases[][2] = {
        {"/orders/4711", "/orders/*"},
        {"/orders/4711/items/8/", "/orders/*/items/*/"},
        {"/files/0af76519-16cd-43dd-8448-eb211c80319C", "/files/*"},
        {"/commits/deadbeef1", "/commits/*"},
        {"/api/v2/orders", "/api/v2/orders"},
        {"/cafe/facade-deed/a1", "/cafe/facade-deed/a1"}, /* words */
        {"//7//x7", "//*//x7"},
        {"/", "/"},
        {"7", "*"},
        {"", ""},
    };
    ps_request request;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        raise_both();
        start(&request, cases[i][0], NULL, true, "");
        ps_request_done(&request, text(NULL), 200, "");
        CHECK_STRING(recorder_at(0).text[0], cases[i][0]);
        CHECK_STRING(recorder_at(1).text[0], cases[i][1]);
        CHECK_STRING(recorder_at(1).path, cases[i][0]);
        CHECK_STRING(recorder_at(1).template, "");
        start(&request, cases[i][0], NULL, true, "");
        ps_request_done(&request, text(NULL), 404, "");
        CHECK_STRING(recorder_at(3).text[0], "(not found)");
        CHECK_STRING(recorder_at(3).path, cases[i][0]);
    }
    /* A template is used unchanged. */
    start(&request, "/years/2026", NULL, true, "");
    ps_request_done(&request, text("/years/2026"), 404, "");
    CHECK_STRING(recorder_at(5).text[0], "/years/2026");
}

static void bounds_and_cleans_what_comes_from_outside(void)
{
    ps_request request;
    raise_both();
    static const char hostile[] = "/a\0b\x1b[31m\x7f\xff\xc2\x9b"
                                  "31m\xc3\xa9\n";
    ps_text path = {hostile, sizeof(hostile) - 1};
    ps_request_start(&request, (ps_text){"GE\r\nT", 5}, path, path, text(NULL), true, "");
    /* Each bad byte becomes one '?', and U+009B has two bytes. */
    CHECK_STRING(request.path, "/a?b?[31m????31m\xc3\xa9?");
    CHECK_STRING(request.method, "GE??T");
    CHECK_STRING(request.scheme, "/a?b?[31m????31");

    static char long_path[100000];
    memset(long_path, 'x', sizeof(long_path));
    memcpy(long_path, "/begin", 6);
    ps_request_start(&request, (ps_text){long_path, sizeof(long_path)},
                     (ps_text){long_path, sizeof(long_path)}, text(NULL), text(NULL), true, "");
    CHECK_EQUAL(strlen(request.path), PS_ROUTE_MAX);
    CHECK_EQUAL(strlen(request.method), PS_METHOD_MAX);
    ps_request_done(&request, (ps_text){long_path, sizeof(long_path)}, 200, "");
    struct recorded done = recorder_at(2);
    CHECK_EQUAL(strlen(done.text[0]), 62);
    CHECK(strncmp(done.text[0], "...xxx", 6) == 0);
    CHECK_EQUAL(strlen(done.template), 127); /* the recorder keeps no more */

    ps_request_start(&request, text(NULL), text(NULL), text(NULL), text(NULL), true, "");
    ps_request_done(&request, text(NULL), 0, "");
    CHECK_STRING(recorder_at(4).text[0], "");
    /* A client cannot make its request a job. */
    ps_request_start(&request, text("JOB"), text("Mail"), text("http"), text(NULL), true, "");
    CHECK_STRING(request.method, "JOB?");
    ps_request_start_job(&request, text("Mail"), text(NULL), true, "", text("sidekiq"), text("mails"));
    CHECK_STRING(request.method, "JOB");
    CHECK_STRING(request.scheme, "");
}

static void fires_what_is_listened_to_alone_and_is_wanted_for_what_carries_a_trace(void)
{
    static const enum ps_probe wanted[] = {PS_PROBE_REQUEST__START,      PS_PROBE_REQUEST__DONE,
                                           PS_PROBE_FUNCTION__SLOW1MS,   PS_PROBE_FUNCTION__SLOW10MS,
                                           PS_PROBE_FUNCTION__SLOW100MS, PS_PROBE_EXCEPTION__DETAIL,
                                           PS_PROBE_STATS__BY_REQUEST};
    int count = 0;
    for (int probe = 0; probe < PS_PROBE_COUNT; probe++) {
        bool listed = false;
        for (int i = 0; i < 7; i++) listed |= wanted[i] == (enum ps_probe)probe;
        recorder_lower_all();
        recorder_forget();
        CHECK(!ps_requests_wanted());
        recorder_semaphore((enum ps_probe)probe, 1);
        CHECK_EQUAL(ps_requests_wanted(), listed);
        count += listed;
        ps_request request;
        start(&request, "/", NULL, true, "");
        ps_request_done(&request, text(NULL), 200, "");
        CHECK_EQUAL(recorder_total(), probe == PS_PROBE_REQUEST__START || probe == PS_PROBE_REQUEST__DONE);
    }
    CHECK_EQUAL(count, 7);
}

static void has_ids_of_its_own_in_a_forked_child(void)
{
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    ps_request here, there, before;
    raise_both();
    start(&before, "/", NULL, true, "");
    pid_t child = fork();
    if (child == 0) {
        /* As when the child unwinds from what its parent was doing. */
        ps_request_done(&before, text(NULL), 500, "");
        if (recorder_count(PS_PROBE_REQUEST__DONE, NULL)) _exit(2);
        start(&there, "/", NULL, true, "");
        _exit(write(pipes[1], &there, sizeof(there)) == sizeof(there) ? 0 : 1);
    }
    start(&here, "/", NULL, true, "");
    CHECK(read(pipes[0], &there, sizeof(there)) == sizeof(there));
    waitpid(child, NULL, 0);
    CHECK(here.span_id != there.span_id && strncmp(here.traceparent, there.traceparent, 35) != 0);
    close(pipes[0]);
    close(pipes[1]);
}

int main(void)
{
    RUN(takes_a_traceparent_as_the_standard_has_it_and_no_other);
    RUN(goes_on_with_the_trace_that_came_and_begins_one_where_none_did);
    RUN(leaves_the_trace_to_an_application_that_has_one);
    RUN(made_in_another_is_its_child_unless_a_header_says_otherwise);
    RUN(is_done_once_with_its_template_status_and_time);
    RUN(is_counted_without_its_ids_where_nobody_knows_a_template);
    RUN(bounds_and_cleans_what_comes_from_outside);
    RUN(fires_what_is_listened_to_alone_and_is_wanted_for_what_carries_a_trace);
    RUN_FORKING(has_ids_of_its_own_in_a_forked_child);
    return check_report("requests");
}

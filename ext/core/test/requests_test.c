#include "features/requests.h"

#include <sys/wait.h>
#include <unistd.h>

#include "calls/shadow_stack.h"
#include "usdt/info.h"
#include "usdt/probe_groups.h"
#include "check.h"
#include "recorder.h"
#include "test_vm.h"

#define PARENT "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

static ps_text text(const char *bytes)
{
    return (ps_text){bytes, bytes ? strlen(bytes) : 0};
}

/* own: the application has no OpenTelemetry. current: its span, or "". */
static void start(ps_request *request, const char *path, const char *header, bool own, const char *current)
{
    test_vm.sends_spans = !own;
    test_vm_set_span(*current ? current : NULL);
    ps_request_start(request, text("GET"), text(path), text("https"), text(header));
}

static void done(ps_request *request, ps_text template, uint64_t status)
{
    test_vm_set_span(NULL);
    ps_request_done(request, template, status);
}

/* The text lasts until the next but one. */
static const char *traceparent(const ps_request *request)
{
    static char texts[2][PS_TRACEPARENT_BUFFER];
    static int last;
    return ps_span_text(texts[last ^= 1], &request->span);
}

static void raise_both(void)
{
    recorder_lower_all();
    recorder_forget();
    RAISE(REQUEST__START);
    RAISE(REQUEST__DONE);
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
    CHECK_STRING(traceparent(&request), own);
    CHECK_STRING(event.traceparent, own);
    CHECK_EQUAL(event.more.request.parent_id, 0xb7ad6b7169203331u);
    CHECK_EQUAL(event.more.request.thread_id, gettid());
    CHECK(event.more.request.span_id && event.more.request.span_id != event.more.request.parent_id);

    static const char *const none[] = {NULL, "", "00-bad"};
    uint64_t last = 0;
    for (int i = 0; i < 3; i++) {
        ps_request other;
        ps_span read;
        start(&other, "/", none[i], true, "");
        CHECK(ps_span_of_header(&read, traceparent(&other), PS_TRACEPARENT_BUFFER - 1));
        CHECK(memcmp(&read, &other.span, sizeof(read)) == 0);
        CHECK_EQUAL(ps_span_number(read.span_id), other.span_id);
        CHECK_EQUAL(read.flags, 1);
        CHECK_EQUAL(other.parent_id, 0);
        CHECK(ps_span_number(read.trace_id) != last);
        last = ps_span_number(read.trace_id);
    }
}

static void leaves_the_trace_to_an_application_that_has_one(void)
{
    ps_request request;
    raise_both();
    static const char current[] = "00-11111111111111111111111111111111-2222222222222222-01";
    start(&request, "/", PARENT, false, current);
    CHECK_STRING(recorder_at(0).traceparent, current);
    CHECK_STRING(traceparent(&request), PARENT); /* used where no span is current */
    CHECK(request.span_id != 0);
    done(&request, text(NULL), 200);
    CHECK_STRING(recorder_at(1).traceparent, PARENT);
    start(&request, "/", NULL, false, "");
    CHECK_STRING(traceparent(&request), "");
    CHECK_STRING(recorder_at(2).traceparent, "");
    start(&request, "/", NULL, true, current);
    CHECK_STRING(recorder_at(3).traceparent, traceparent(&request));
    CHECK(strncmp(traceparent(&request), current, 35) == 0 && strcmp(traceparent(&request), current) != 0);
    CHECK_EQUAL(request.parent_id, 0x2222222222222222u);
    /* At the end another span may be current. */
    start(&request, "/", PARENT, false, "");
    test_vm_set_span(current);
    ps_request_done(&request, text(NULL), 200);
    CHECK_STRING(recorder_at(4).traceparent, PARENT);
    CHECK_STRING(recorder_at(5).traceparent, current);
}

/* For example a job that runs at once. */
static void made_in_another_is_its_child_unless_a_header_says_otherwise(void)
{
    ps_request outer, inner;
    raise_both();
    start(&outer, "/", PARENT, true, "");
    test_vm.request = &outer;
    ps_request_start_job(&inner, text("Mail"), text(NULL), text("inline"), text(NULL));
    CHECK_EQUAL(inner.parent_id, outer.span_id);
    CHECK(strncmp(traceparent(&inner), PARENT, 35) == 0 && inner.span_id != outer.span_id);
    static const char other[] = "00-11111111111111111111111111111111-2222222222222222-00";
    ps_request_start_job(&inner, text("Mail"), text(other), text("inline"), text(NULL));
    CHECK_EQUAL(inner.parent_id, 0x2222222222222222u);
    CHECK(strcmp(traceparent(&inner) + 53, "00") == 0);
    start(&inner, "/", NULL, false, ""); /* the spans are the application's own */
    CHECK_EQUAL(inner.parent_id, 0);
    CHECK_STRING(recorder_at(3).traceparent, traceparent(&outer));
    test_vm.request = NULL;
}

static void is_done_once_with_its_template_status_and_time(void)
{
    ps_request request;
    raise_both();
    start(&request, "/labels/7", PARENT, true, "");
    check_sleep_ms(2);
    done(&request, text("/labels/:number"), 404);
    done(&request, text("/labels/:number"), 200);
    CHECK_EQUAL(recorder_total(), 2);
    struct recorded event = recorder_at(1);
    CHECK_STRING(event.text[0], "/labels/:number");
    CHECK_STRING(event.text[1], "GET");
    CHECK_EQUAL(event.arg[2], 404);
    CHECK(event.arg[3] >= 2000000 && event.arg[3] < 60000000000u);
    CHECK_EQUAL(event.more.request.span_id, recorder_at(0).more.request.span_id);
    CHECK_STRING(event.traceparent, traceparent(&request));
    CHECK_STRING(event.path, "/labels/7");
    CHECK_STRING(event.template, "/labels/:number");
    start(&request, "/favicon.ico", NULL, true, "");
    done(&request, text(NULL), 200);
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
        {"/orders/4711.json", "/orders/*.json"},
        {"/files/0af76519-16cd-43dd-8448-eb211c80319C.tar.gz/7", "/files/*.tar.gz/*"},
        {"/releases/3.14/3.14.json/7./7", "/releases/3.14/3.14.json/7./*"}, /* versions */
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
        done(&request, text(NULL), 200);
        CHECK_STRING(recorder_at(0).text[0], cases[i][0]);
        CHECK_STRING(recorder_at(1).text[0], cases[i][1]);
        CHECK_STRING(recorder_at(1).path, cases[i][0]);
        CHECK_STRING(recorder_at(1).template, "");
        start(&request, cases[i][0], NULL, true, "");
        done(&request, text(NULL), 404);
        CHECK_STRING(recorder_at(3).text[0], "(not found)");
        CHECK_STRING(recorder_at(3).path, cases[i][0]);
    }
    /* A template is used unchanged. */
    start(&request, "/years/2026", NULL, true, "");
    done(&request, text("/years/2026"), 404);
    CHECK_STRING(recorder_at(5).text[0], "/years/2026");
}

static void bounds_and_cleans_what_comes_from_outside(void)
{
    ps_request request;
    raise_both();
    static const char hostile[] = "/a\0b\x1b[31m\x7f\xff\xc2\x9b"
                                  "31m\xc3\xa9\n";
    ps_text path = {hostile, sizeof(hostile) - 1};
    ps_request_start(&request, (ps_text){"GE\r\nT", 5}, path, path, text(NULL));
    /* Each bad byte becomes one '?', and U+009B has two bytes. */
    CHECK_STRING(request.path, "/a?b?[31m????31m\xc3\xa9?");
    CHECK_STRING(request.method, "GE??T");
    CHECK_STRING(request.scheme, "/a?b?[31m????31");

    static char long_path[100000];
    memset(long_path, 'x', sizeof(long_path));
    memcpy(long_path, "/begin", 6);
    ps_request_start(&request, (ps_text){long_path, sizeof(long_path)},
                     (ps_text){long_path, sizeof(long_path)}, text(NULL), text(NULL));
    CHECK_EQUAL(strlen(request.path), PS_ROUTE_MAX);
    CHECK_EQUAL(strlen(request.method), PS_METHOD_MAX);
    done(&request, (ps_text){long_path, sizeof(long_path)}, 200);
    struct recorded event = recorder_at(2);
    CHECK_EQUAL(strlen(event.text[0]), 62);
    CHECK(strncmp(event.text[0], "...xxx", 6) == 0);
    CHECK_EQUAL(strlen(event.template), 127); /* the recorder keeps no more */

    ps_request_start(&request, text(NULL), text(NULL), text(NULL), text(NULL));
    done(&request, text(NULL), 0);
    CHECK_STRING(recorder_at(4).text[0], "");
    /* A client cannot make its request a job. */
    ps_request_start(&request, text("JOB"), text("Mail"), text("http"), text(NULL));
    CHECK_STRING(request.method, "JOB?");
    ps_request_start_job(&request, text("Mail"), text(NULL), text("sidekiq"), text("mails"));
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
        done(&request, text(NULL), 200);
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
        done(&before, text(NULL), 500);
        if (recorder_count(PS_PROBE_REQUEST__DONE, NULL)) _exit(2);
        start(&there, "/", NULL, true, "");
        _exit(write(pipes[1], &there, sizeof(there)) == sizeof(there) ? 0 : 1);
    }
    start(&here, "/", NULL, true, "");
    CHECK(read(pipes[0], &there, sizeof(there)) == sizeof(there));
    waitpid(child, NULL, 0);
    CHECK(here.span_id != there.span_id && strncmp(traceparent(&here), traceparent(&there), 35) != 0);
    close(pipes[0]);
    close(pipes[1]);
}

#define CURRENT                 "00-11111111111111111111111111111111-2222222222222222-ff"
#define CHECK_CURRENT(expected) check_string(current_span(), (expected), __FILE__, __LINE__, "current span")

/* The span that a slow call has. */
static const char *current_span(void)
{
    static char to[PS_TRACEPARENT_BUFFER];
    ps_span span;
    ps_span_current(&span, PS_SLOW_PROBES);
    return ps_span_text(to, &span);
}

static void the_current_span_is_the_applications_and_else_that_of_the_request(void)
{
    ps_request request;
    raise_both();
    test_vm = (struct test_vm){.found = PS_NO_SPAN};
    CHECK_CURRENT("");
    CHECK_EQUAL(ps_request_id(), 0);
    start(&request, "/", PARENT, true, "");
    test_vm.request = &request;
    CHECK_CURRENT(traceparent(&request));
    CHECK_EQUAL(ps_request_id(), request.span_id);
    /* Without an SDK nobody sends the application's span. */
    test_vm.found = PS_A_SPAN;
    test_vm.span = (ps_span){.flags = 0xff, .known = true};
    memset(test_vm.span.trace_id, 0x11, sizeof(test_vm.span.trace_id));
    memset(test_vm.span.span_id, 0x22, sizeof(test_vm.span.span_id));
    CHECK_CURRENT(traceparent(&request));
    test_vm.sends_spans = true;
    CHECK_CURRENT(CURRENT);
    request.own = false;
    test_vm.sends_spans = false;
    CHECK_CURRENT(CURRENT);
    test_vm.found = PS_NO_SPAN;
    CHECK_CURRENT(traceparent(&request));
    request.span = (ps_span){.known = false};
    CHECK_CURRENT("");
    test_vm = (struct test_vm){.found = PS_NO_SPAN};
}

/* A request passes on the flags that have a meaning, whether they came in a header or from a span. */
static void passes_on_the_flags_that_have_a_meaning(void)
{
    ps_request request;
    raise_both();
    test_vm.sends_spans = false;
    test_vm.found = PS_A_SPAN;
    test_vm.span = (ps_span){.trace_id = {1}, .span_id = {2}, .flags = 0xfe, .known = true};
    ps_request_start(&request, text("GET"), text("/"), text("http"), text(NULL));
    CHECK_STRING(recorder_at(0).traceparent + 53, "02");
    CHECK_EQUAL(request.parent_id, 0x0200000000000000u);
    test_vm.sends_spans = true;
    ps_request_start(&request, text("GET"), text("/"), text("http"), text(NULL));
    CHECK_STRING(recorder_at(1).traceparent + 53, "fe");
    start(&request, "/", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-fd", true, "");
    CHECK_STRING(recorder_at(2).traceparent + 53, "01");
}

static void degrades_probes_that_are_on_when_a_span_cannot_be_read(void)
{
    ps_span span;
    test_vm = (struct test_vm){.found = PS_SPAN_UNKNOWN, .sends_spans = true};
    ps_info_state(PS_PROBE_FUNCTION__SLOW1MS, PS_STATE_ON, "");
    ps_info_state(PS_PROBE_FUNCTION__SLOW10MS, PS_STATE_OFF, "");
    ps_info_state(PS_PROBE_EXCEPTION__DETAIL, PS_STATE_ON, "");
    ps_span_of_application(&span, 0);
    CHECK_EQUAL(ps_info_state_of(PS_PROBE_FUNCTION__SLOW1MS), PS_STATE_ON);
    CHECK_CURRENT("");
    CHECK_EQUAL(ps_info_state_of(PS_PROBE_FUNCTION__SLOW1MS), PS_STATE_DEGRADED);
    CHECK_EQUAL(ps_info_state_of(PS_PROBE_FUNCTION__SLOW10MS), PS_STATE_OFF);
    CHECK_EQUAL(ps_info_state_of(PS_PROBE_EXCEPTION__DETAIL), PS_STATE_ON);
    test_vm = (struct test_vm){.found = PS_NO_SPAN};
}

static const char *here_of(const ps_stack *stack)
{
    return stack->request ? stack->request->name : "";
}

static void tells_on_which_stack_it_runs_by_method_and_path(void)
{
    recorder_lower_all();
    ps_request request, job;
    ps_stack *stack = ps_stack_new();
    start(&request, "/labels/7/print", NULL, true, "");
    ps_request_here(stack, NULL);
    CHECK_STRING(here_of(stack), "");
    test_vm.request = &request;
    ps_request_here(stack, NULL);
    CHECK_STRING(here_of(stack), "GET /labels/*/print");
    const ps_site *before = stack->request;
    ps_request_here(stack, NULL);
    CHECK(stack->request == before);
    ps_request_start_job(&job, text("Mail"), text(NULL), text("spec"), text(NULL));
    test_vm.request = &job;
    ps_request_here(stack, NULL);
    CHECK_STRING(here_of(stack), "JOB Mail");
    /* A later tracer: the names of the earlier one are freed. */
    ps_routes_clear();
    ps_sites_clear();
    ps_request_here(stack, NULL);
    CHECK_STRING(here_of(stack), "JOB Mail");
    test_vm.request = NULL;
    ps_request_here(stack, NULL);
    CHECK_STRING(here_of(stack), "");
    ps_stack_free(stack);
}

int main(void)
{
    RUN(goes_on_with_the_trace_that_came_and_begins_one_where_none_did);
    RUN(leaves_the_trace_to_an_application_that_has_one);
    RUN(made_in_another_is_its_child_unless_a_header_says_otherwise);
    RUN(is_done_once_with_its_template_status_and_time);
    RUN(is_counted_without_its_ids_where_nobody_knows_a_template);
    RUN(bounds_and_cleans_what_comes_from_outside);
    RUN(fires_what_is_listened_to_alone_and_is_wanted_for_what_carries_a_trace);
    RUN(the_current_span_is_the_applications_and_else_that_of_the_request);
    RUN(passes_on_the_flags_that_have_a_meaning);
    RUN(degrades_probes_that_are_on_when_a_span_cannot_be_read);
    RUN(tells_on_which_stack_it_runs_by_method_and_path);
    RUN_FORKING(has_ids_of_its_own_in_a_forked_child);
    return check_report("requests");
}

#include "features/backtraces.h"

#include "base/clock.h"
#include "features/exceptions.h"
#include "usdt/probe.h"
#include "check.h"
#include "recorder.h"

/* ---- The line that stands for a stack ---- */

/* O: own code, l: another line, b: the VM's; innermost first. */
struct stack {
    const char *lines;
    int looked_at;
};

static ps_line_kind kind_of_line(void *of, int number)
{
    struct stack *stack = of;
    CHECK_EQUAL(number, stack->looked_at);
    stack->looked_at++;
    switch (stack->lines[number]) {
    case 'O': return PS_OWN_LINE;
    case 'l': return PS_OTHER_LINE;
    case 'b': return PS_BUILTIN_LINE;
    default: return PS_NO_LINE;
    }
}

static void takes_the_nearest_line_of_the_applications_own_code(void)
{
    static const struct {
        const char *lines;
        int own, looked_at;
    } cases[] = {{"O", 0, 1}, {"lbO", 2, 3}, {"lOlO", 1, 2}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stack stack = {cases[i].lines, 0};
        CHECK_EQUAL(ps_nearest_own_line(kind_of_line, &stack, NULL), cases[i].own);
        /* A walk to a farther frame may be expensive. */
        CHECK_EQUAL(stack.looked_at, cases[i].looked_at);
    }
}

static void takes_the_nearest_other_line_of_a_stack_without_own_code(void)
{
    static const struct {
        const char *lines;
        int other;
    } cases[] = {{"l", 0}, {"bbll", 2}, {"bb", -1}, {"", -1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stack stack = {cases[i].lines, 0};
        int other = 77;
        CHECK_EQUAL(ps_nearest_own_line(kind_of_line, &stack, &other), -1);
        CHECK_EQUAL(other, cases[i].other);
    }
}

static void does_not_look_for_ever(void)
{
    char lines[PS_LINES_LOOKED_AT + 2];
    memset(lines, 'l', sizeof(lines));
    lines[PS_LINES_LOOKED_AT] = 'O';
    lines[PS_LINES_LOOKED_AT + 1] = '\0';
    struct stack stack = {lines, 0};
    CHECK_EQUAL(ps_nearest_own_line(kind_of_line, &stack, NULL), -1);
    CHECK_EQUAL(stack.looked_at, PS_LINES_LOOKED_AT);
    stack = (struct stack){lines + 1, 0};
    CHECK_EQUAL(ps_nearest_own_line(kind_of_line, &stack, NULL), PS_LINES_LOOKED_AT - 1);
}

/* ---- Events ---- */

static const ps_site *site(const char *name, const char *path, uint64_t line)
{
    return ps_site_intern(name, strlen(name), path, strlen(path), line);
}

static ps_backtrace backtrace(void)
{
    return (ps_backtrace){"full_message", site("Logger#log", "/app/log.rb", 30),
                          site("KeyError", "/app/p.rb", 7), 12, 345};
}

static ps_row *row(void)
{
    const ps_site *raised = backtrace().raised;
    ps_row *row = ps_table_row(&ps_exception_table, (uintptr_t)raised, 0, 0);
    row->site = raised;
    return row;
}

static void begin_again(void)
{
    recorder_lower_all();
    recorder_forget();
    ps_table_clear(&ps_exception_table);
}

static void fires_what_was_formatted_and_who_asked(void)
{
    RAISE(BACKTRACE__DONE);
    ps_backtrace done = backtrace();
    ps_backtraces_done(&done, NULL, NULL);
    CHECK_EQUAL(recorder_total(), 1);
    struct recorded event = recorder_last(PS_PROBE_BACKTRACE__DONE, "full_message");
    CHECK_STRING(event.text[1], "/app/log.rb");
    CHECK_EQUAL(event.arg[2], 30);
    CHECK_EQUAL(event.arg[3], 12);
    CHECK_EQUAL(event.arg[4], ps_ticks_to_ns(345));
    CHECK_STRING(event.more.backtrace.path, "/app/log.rb");
    CHECK_STRING(event.more.backtrace.function, "Logger#log");
    CHECK_STRING(event.more.backtrace.type, "KeyError");
    CHECK_STRING(event.more.backtrace.raise_file, "/app/p.rb");
    CHECK_EQUAL(event.more.backtrace.raise_line, 7);
    begin_again();
}

static void fires_a_stack_without_an_exception(void)
{
    RAISE(BACKTRACE__DONE);
    ps_backtraces_fire(&(ps_backtrace){"caller", &ps_site_none, &ps_site_none, 3, 10});
    struct recorded event = recorder_last(PS_PROBE_BACKTRACE__DONE, "caller");
    CHECK_EQUAL(event.arg[3], 3);
    CHECK_STRING(event.text[1], "");
    CHECK_STRING(event.more.backtrace.type, "");
    CHECK_STRING(event.more.backtrace.raise_file, "");
    begin_again();
}

static void charges_the_raise_also_when_nobody_listens_to_backtraces(void)
{
    ps_backtrace done = backtrace();
    ps_backtraces_done(&done, row(), NULL);
    CHECK_EQUAL(row()->count[PS_EXCEPTION_STRINGS], 345);
    CHECK(row()->at[PS_EXCEPTION_ASKED_AT] == done.asked);
    CHECK_EQUAL(recorder_total(), 0);
    RAISE(BACKTRACE__DONE);
    ps_backtraces_done(&done, row(), NULL);
    CHECK_EQUAL(row()->count[PS_EXCEPTION_STRINGS], 690);
    CHECK_EQUAL(recorder_total(), 1);
    begin_again();
}

static void charges_the_route_of_a_request(void)
{
    ps_counted request = {0};
    RAISE(STATS__BY_REQUEST);
    ps_backtrace done = backtrace();
    ps_row *whole = row();
    ps_backtraces_done(&done, whole, &request);
    ps_routes_known(&request, "GET", "/orders");
    ps_routes_end(&request);
    CHECK_EQUAL(whole->count[PS_EXCEPTION_STRINGS], 0);
    const ps_row *of_route = NULL;
    for (uint32_t i = 0; i < ps_exception_table.routes->rows; i++) {
        const ps_row *one = ps_table_at(ps_exception_table.routes, i);
        if (one->site && one->key[0] == (uintptr_t)whole && strcmp(one->site->name, "GET /orders") == 0)
            of_route = one;
    }
    CHECK(of_route != NULL);
    if (of_route) CHECK_EQUAL(of_route->count[PS_EXCEPTION_STRINGS], 345);
    begin_again();
    ps_routes_clear();
}

int main(void)
{
    RUN(takes_the_nearest_line_of_the_applications_own_code);
    RUN(takes_the_nearest_other_line_of_a_stack_without_own_code);
    RUN(does_not_look_for_ever);
    RUN(fires_what_was_formatted_and_who_asked);
    RUN(fires_a_stack_without_an_exception);
    RUN(charges_the_raise_also_when_nobody_listens_to_backtraces);
    RUN(charges_the_route_of_a_request);
    return check_report("backtraces");
}

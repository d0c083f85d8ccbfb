/*
 * Calls that are identified by their frames: generators, greenlets, and calls without an exit
 * event.
 */
#include "check.h"
#include "base/memory.h"
#include "calls/shadow_stack.h"
#include "calls/suspended_calls.h"
#include "table/table.h"

enum { MAIN = 1000, OTHER = 2000 }; /* the owners of the frames of two greenlets */

static ps_row *function(uintptr_t key)
{
    return ps_table_row(&ps_function_table, key, 0, 0);
}

static void enter_in(ps_stack *stack, ps_row *row, uintptr_t frame, uintptr_t owner, uint64_t now)
{
    ps_frame *entered = ps_stack_enter_frame(stack, row, PS_ADDRESS(frame), PS_ADDRESS(owner));
    if (CHECK(entered != NULL)) entered->start = now;
}

static void enter(ps_stack *stack, ps_row *row, uintptr_t frame, uint64_t now)
{
    enter_in(stack, row, frame, MAIN, now);
}

static void resume(ps_stack *stack, ps_row *row, uintptr_t frame, uint64_t now)
{
    ps_frame *entered = ps_stack_resume_frame(stack, row, PS_ADDRESS(frame), PS_ADDRESS(MAIN));
    if (CHECK(entered != NULL)) entered->start = now;
}

static ps_call leave(ps_stack *stack, ps_row *row, uintptr_t frame, uint64_t now, int outcome)
{
    ps_call call = {0};
    CHECK(ps_stack_leave_frame(stack, PS_ADDRESS(frame), now, outcome, &call) == row);
    return call;
}

static ps_call returns(ps_stack *stack, ps_row *row, uintptr_t frame, uint64_t now)
{
    return leave(stack, row, frame, now, PS_OUTCOME_RETURNED);
}

static ps_call yields(ps_stack *stack, ps_row *row, uintptr_t frame, uint64_t now)
{
    return leave(stack, row, frame, now, PS_OUTCOME_SUSPENDED);
}

static void check_counts(const ps_row *row, uint64_t calls, uint64_t self, uint64_t elapsed, uint64_t raised)
{
    CHECK_EQUAL(row->count[PS_FUNCTION_CALLS], calls);
    CHECK_EQUAL(row->count[PS_FUNCTION_SELF], self);
    CHECK_EQUAL(row->count[PS_FUNCTION_ELAPSED], elapsed);
    CHECK_EQUAL(row->count[PS_FUNCTION_RAISED], raised);
}

/* As the VM does at each detach. */
static void end(ps_stack *stack)
{
    ps_stack_free(stack);
    ps_stack_epoch++;
    ps_suspended_clear(&ps_suspended_calls);
    ps_table_clear(&ps_function_table);
}

static void sees_one_call_of_a_generator(void)
{
    ps_stack *stack = ps_stack_new();
    ps_row *f = function(1), *g = function(2);
    enter(stack, f, 16, 0);
    enter(stack, g, 32, 10);
    ps_call first = yields(stack, g, 32, 15);
    CHECK_EQUAL(first.elapsed, 5);
    CHECK(!first.resumed);
    check_counts(g, 0, 0, 0, 0);
    resume(stack, g, 32, 40);
    CHECK(yields(stack, g, 32, 47).resumed);
    resume(stack, g, 32, 60);
    ps_call last = returns(stack, g, 32, 61);
    CHECK(last.resumed);
    CHECK_EQUAL(last.elapsed, 51);
    CHECK_EQUAL(last.self, 13);
    check_counts(g, 1, 13, 51, 0);
    CHECK_EQUAL(g->count[PS_FUNCTION_RESUMED], 2);
    CHECK_EQUAL(returns(stack, f, 16, 100).self, 87);
    end(stack);
}

static void goes_on_with_a_generator_on_another_stack(void)
{
    ps_stack *a = ps_stack_new(), *b = ps_stack_new();
    ps_row *g = function(2);
    enter(a, g, 32, 10);
    yields(a, g, 32, 15);
    resume(b, g, 32, 40);
    CHECK_EQUAL(returns(b, g, 32, 50).elapsed, 40);
    check_counts(g, 1, 15, 40, 0);
    ps_stack_free(a);
    end(b);
}

static void takes_one_that_began_before_for_begun_when_it_is_resumed(void)
{
    ps_stack *stack = ps_stack_new();
    ps_row *g = function(2);
    resume(stack, g, 32, 40);
    CHECK_EQUAL(returns(stack, g, 32, 50).elapsed, 10);
    ps_call call;
    CHECK(!ps_stack_leave_frame(stack, PS_ADDRESS(48), 60, PS_OUTCOME_RETURNED, &call));
    check_counts(g, 1, 10, 10, 0);
    end(stack);
}

static void counts_an_abandoned_generator_when_another_takes_its_place(void)
{
    ps_stack *stack = ps_stack_new();
    ps_row *g = function(2);
    enter(stack, g, 32, 10);
    yields(stack, g, 32, 15);
    ps_stack_bury(PS_ADDRESS(32));
    ps_stack_bury(PS_ADDRESS(32));
    check_counts(g, 1, 5, 5, 0);
    enter(stack, g, 32, 20);
    returns(stack, g, 32, 21);
    check_counts(g, 2, 6, 6, 0);
    end(stack);
}

static void keeps_the_calls_of_another_greenlet(void)
{
    ps_stack *stack = ps_stack_new();
    ps_row *f = function(1), *g = function(2);
    enter_in(stack, f, 16, MAIN, 0);
    enter_in(stack, g, 32, OTHER, 10);
    CHECK_EQUAL(returns(stack, f, 16, 20).elapsed, 20);
    CHECK_EQUAL(ps_stack_depth(stack), 1);
    CHECK_EQUAL(returns(stack, g, 32, 30).elapsed, 20);
    CHECK_EQUAL(ps_stack_depth(stack), 0);
    check_counts(f, 1, 20, 20, 0);
    check_counts(g, 1, 20, 20, 0);
    end(stack);
}

static void closes_what_was_left_without_a_word(void)
{
    ps_stack *stack = ps_stack_new();
    ps_row *f = function(1), *lost = function(2);
    /* A thousand times, to show that no call stays open. */
    for (uint64_t i = 0; i < 1000; i++) {
        enter(stack, f, 16, i * 10);
        enter(stack, lost, 32, i * 10 + 1);
        enter_in(stack, lost, 48, OTHER, i * 10 + 2);
        returns(stack, f, 16, i * 10 + 5);
        CHECK_EQUAL(ps_stack_depth(stack), 1);
        returns(stack, lost, 48, i * 10 + 6);
    }
    CHECK_EQUAL(ps_stack_depth(stack), 0);
    CHECK_EQUAL(f->count[PS_FUNCTION_CALLS], 1000);
    CHECK_EQUAL(lost->count[PS_FUNCTION_CALLS], 2000);
    CHECK_EQUAL(lost->count[PS_FUNCTION_RAISED], 1000);
    /* Where the owner is unknown, a call ends when its frame is entered again. */
    for (int i = 0; i < 1000; i++) enter_in(stack, lost, 32, 0, 0);
    CHECK_EQUAL(ps_stack_depth(stack), 1);
    end(stack);
}

static void forgets_open_calls_when_their_exits_went_unseen(void)
{
    ps_stack *stack = ps_stack_new();
    ps_row *f = function(1);
    enter(stack, f, 16, 0);
    enter(stack, f, 32, 1);
    ps_stack_abandon(stack);
    CHECK_EQUAL(ps_stack_depth(stack), 0);
    check_counts(f, 2, 0, 0, 2);
    /* f no longer counts as open: the time of an outermost call counts again. */
    enter(stack, f, 16, 10);
    returns(stack, f, 16, 15);
    check_counts(f, 3, 5, 5, 2);
    end(stack);
}

int main(void)
{
    RUN(sees_one_call_of_a_generator);
    RUN(goes_on_with_a_generator_on_another_stack);
    RUN(takes_one_that_began_before_for_begun_when_it_is_resumed);
    RUN(counts_an_abandoned_generator_when_another_takes_its_place);
    RUN(keeps_the_calls_of_another_greenlet);
    RUN(closes_what_was_left_without_a_word);
    RUN(forgets_open_calls_when_their_exits_went_unseen);
    return check_report("shadow_stack_frame");
}

#include <stdlib.h>

#include "check.h"
#include "base/memory.h"
#include "calls/shadow_stack.h"
#include "table/table.h"

static ps_row *function(uintptr_t key)
{
    return ps_table_row(&ps_function_table, key, 0, 0);
}

static ps_frame *enter(ps_stack *stack, ps_row *row, uint64_t now)
{
    ps_frame *frame = ps_stack_enter(stack, row, NULL);
    if (frame) frame->start = now;
    return frame;
}

static ps_call leave(ps_stack *stack, ps_row *row, uint64_t now, int outcome)
{
    ps_call call = {0};
    CHECK(ps_stack_leave(stack, row, now, outcome, &call));
    return call;
}

static ps_call returns(ps_stack *stack, ps_row *row, uint64_t now)
{
    return leave(stack, row, now, PS_OUTCOME_RETURNED);
}

static void check_counts(const ps_row *row, uint64_t calls, uint64_t self, uint64_t elapsed)
{
    CHECK_EQUAL(row->count[PS_FUNCTION_CALLS], calls);
    CHECK_EQUAL(row->count[PS_FUNCTION_SELF], self);
    CHECK_EQUAL(row->count[PS_FUNCTION_ELAPSED], elapsed);
}

/* As the VM does at each attach and detach. */
static void begin_again(void)
{
    ps_stack_epoch++;
    ps_table_clear(&ps_function_table);
}

static void times_a_call(void)
{
    ps_stack *stack = ps_stack_new();
    ps_row *f = function(1);
    enter(stack, f, 100);
    CHECK_EQUAL(ps_stack_depth(stack), 1);
    ps_call call = returns(stack, f, 130);
    CHECK_EQUAL(call.elapsed, 30);
    CHECK_EQUAL(call.self, 30);
    CHECK_EQUAL(call.depth, 0);
    CHECK_EQUAL(ps_stack_depth(stack), 0);
    check_counts(f, 1, 30, 30);
    CHECK_EQUAL(f->count[PS_FUNCTION_MAX], 30);
    CHECK_EQUAL(f->count[PS_FUNCTION_RAISED], 0);

    enter(stack, f, 200);
    leave(stack, f, 210, PS_OUTCOME_RAISED);
    check_counts(f, 2, 40, 40);
    CHECK_EQUAL(f->count[PS_FUNCTION_MAX], 30);
    CHECK_EQUAL(f->count[PS_FUNCTION_RAISED], 1);
    ps_stack_free(stack);
    begin_again();
}

static void takes_what_callees_took_from_self(void)
{
    ps_stack *stack = ps_stack_new();
    ps_row *f = function(1), *g = function(2), *h = function(3);
    enter(stack, f, 0);
    enter(stack, g, 10);
    enter(stack, h, 15);
    CHECK_EQUAL(returns(stack, h, 18).depth, 2);
    CHECK_EQUAL(returns(stack, g, 30).self, 17);
    enter(stack, h, 40);
    returns(stack, h, 45);
    CHECK_EQUAL(returns(stack, f, 100).self, 75);
    check_counts(f, 1, 75, 100);
    check_counts(g, 1, 17, 20);
    check_counts(h, 2, 8, 8);
    ps_stack_free(stack);
    begin_again();
}

static void counts_elapsed_of_a_recursion_once(void)
{
    ps_stack *stack = ps_stack_new();
    ps_row *f = function(1), *g = function(2);
    enter(stack, f, 0);
    enter(stack, g, 10);
    enter(stack, f, 20);
    enter(stack, f, 30);
    CHECK_EQUAL(returns(stack, f, 40).elapsed, 10);
    returns(stack, f, 50);
    returns(stack, g, 60);
    returns(stack, f, 70);
    check_counts(f, 3, 10 + 20 + 20, 70);
    check_counts(g, 1, 20, 50);
    ps_stack_free(stack);
    begin_again();
}

static void counts_a_recursion_once_for_each_of_two_stacks(void)
{
    ps_stack *a = ps_stack_new(), *b = ps_stack_new();
    ps_row *f = function(1);
    enter(a, f, 0);
    enter(b, f, 0);
    enter(b, f, 10);
    enter(a, f, 10);
    returns(b, f, 20);
    returns(a, f, 20);
    returns(a, f, 30);
    returns(b, f, 40);
    check_counts(f, 4, 30 + 40, 30 + 40);
    ps_stack_free(a);
    ps_stack_free(b);
    begin_again();
}

/*
 * The stack that entered first leaves while the second one is inside. The second one is still known
 * to be inside.
 */
static void knows_a_recursion_after_another_stack_left(void)
{
    ps_stack *a = ps_stack_new(), *b = ps_stack_new();
    ps_row *f = function(1);
    enter(a, f, 0);
    enter(b, f, 0);
    returns(a, f, 10);
    enter(b, f, 20); /* the recursion */
    returns(b, f, 30);
    returns(b, f, 40);
    check_counts(f, 3, 10 + 40, 10 + 40);
    ps_stack_free(a);
    ps_stack_free(b);
    begin_again();
}

static void knows_a_recursion_after_another_stack_was_dropped(void)
{
    ps_stack *a = ps_stack_new(), *b = ps_stack_new();
    ps_row *f = function(1);
    enter(a, f, 0);
    enter(b, f, 0);
    ps_stack_free(a);
    enter(b, f, 20);
    returns(b, f, 30);
    returns(b, f, 40);
    check_counts(f, 2, 40, 40);

    a = ps_stack_new();
    enter(a, f, 100);
    enter(b, f, 100);
    ps_stack_free(b); /* the stack that entered second */
    enter(a, f, 110);
    returns(a, f, 120);
    returns(a, f, 150);
    check_counts(f, 4, 90, 90);
    ps_stack_free(a);
    begin_again();
}

static void ignores_exits_of_calls_that_it_never_saw(void)
{
    ps_stack *stack = ps_stack_new();
    ps_row *f = function(1), *g = function(2);
    ps_call call;
    CHECK(!ps_stack_leave(stack, f, 10, PS_OUTCOME_RETURNED, &call));
    enter(stack, g, 20);
    CHECK(!ps_stack_leave(stack, f, 30, PS_OUTCOME_RAISED, &call));
    CHECK_EQUAL(ps_stack_depth(stack), 1);
    CHECK(!stack->unwinding);
    returns(stack, g, 40);
    CHECK(!ps_stack_leave(stack, g, 50, PS_OUTCOME_RETURNED, &call));
    check_counts(f, 0, 0, 0);
    check_counts(g, 1, 20, 20);
    ps_stack_free(stack);
    begin_again();
}

/* As at Ruby's SystemStackError: f exits, and the calls above it do not. */
static void closes_abandoned_calls_as_raised(void)
{
    ps_stack *stack = ps_stack_new();
    ps_row *f = function(1), *g = function(2), *h = function(3);
    enter(stack, f, 0);
    enter(stack, g, 10);
    enter(stack, g, 20);
    enter(stack, h, 30);
    returns(stack, h, 35);
    ps_call call = returns(stack, f, 100);
    CHECK_EQUAL(call.depth, 0);
    CHECK_EQUAL(call.elapsed, 100);
    check_counts(g, 2, 0, 0);
    CHECK_EQUAL(g->count[PS_FUNCTION_RAISED], 2);
    /* h took 5 ticks, which count only once. */
    check_counts(h, 1, 5, 5);
    check_counts(f, 1, 95, 100);

    /* g no longer counts as open. */
    enter(stack, g, 200);
    returns(stack, g, 210);
    check_counts(g, 3, 10, 10);
    ps_stack_free(stack);
    begin_again();
}

static void closes_the_innermost_open_call_of_a_function(void)
{
    ps_stack *stack = ps_stack_new();
    ps_row *f = function(1), *g = function(2);
    enter(stack, f, 0);
    enter(stack, f, 10);
    enter(stack, g, 20);
    CHECK_EQUAL(returns(stack, f, 30).depth, 1);
    CHECK_EQUAL(ps_stack_depth(stack), 1);
    returns(stack, f, 50);
    check_counts(f, 2, 50, 50);
    ps_stack_free(stack);
    begin_again();
}

static uint32_t ten_frames(void)
{
    return 10;
}

static uint32_t no_frame_missing(void)
{
    return UINT32_MAX;
}

static void empties_itself_when_the_vm_is_not_that_deep(void)
{
    ps_stack *stack = ps_stack_new();
    ps_row *f = function(1), *g = function(2);
    for (int i = 0; i < PS_STACK_SUSPECT_DEPTH; i++) enter(stack, f, (uint64_t)i);
    ps_frame *frame = ps_stack_enter(stack, g, ten_frames);
    CHECK(frame == &stack->frames[0]);
    frame->start = 5000;
    CHECK_EQUAL(ps_stack_depth(stack), 1);
    CHECK_EQUAL(f->count[PS_FUNCTION_CALLS], PS_STACK_SUSPECT_DEPTH);
    CHECK_EQUAL(f->count[PS_FUNCTION_RAISED], PS_STACK_SUSPECT_DEPTH);
    CHECK_EQUAL(f->count[PS_FUNCTION_ELAPSED], 0);
    returns(stack, g, 5010);
    check_counts(g, 1, 10, 10);
    ps_stack_free(stack);
    begin_again();
}

static void grows_with_the_vm(void)
{
    enum { DEPTH = 5000 };
    size_t used = ps_memory_used();
    ps_stack *stack = ps_stack_new();
    ps_row *f = function(1), *g = function(2);
    for (int i = 0; i < DEPTH; i++)
        ps_stack_enter(stack, i % 2 ? f : g, no_frame_missing)->start = (uint64_t)i;
    CHECK_EQUAL(ps_stack_depth(stack), DEPTH);
    for (int i = DEPTH; i-- > 0;)
        CHECK_EQUAL(returns(stack, i % 2 ? f : g, 2 * DEPTH - (uint64_t)i).depth, i);
    CHECK_EQUAL(g->count[PS_FUNCTION_ELAPSED], 2 * DEPTH);
    CHECK_EQUAL(f->count[PS_FUNCTION_SELF] + g->count[PS_FUNCTION_SELF], 2 * DEPTH);
    ps_stack_free(stack);
    begin_again();
    CHECK_EQUAL(ps_memory_used(), used);
}

static void loses_calls_beyond_the_deepest(void)
{
    ps_stack *stack = ps_stack_new();
    ps_row *f = function(1), *g = function(2);
    uint64_t lost = ps_stack_lost;
    for (int i = 0; i < PS_STACK_DEPTH_MAX; i++) enter(stack, f, 0);
    CHECK_EQUAL(ps_stack_lost, lost);
    CHECK(!enter(stack, g, 0));
    CHECK_EQUAL(ps_stack_lost, lost + 1);
    CHECK_EQUAL(ps_stack_depth(stack), PS_STACK_DEPTH_MAX);
    ps_stack_free(stack);
    begin_again();
}

static void counts_calls_without_time_when_memory_is_full(void)
{
    ps_row *f = function(1), *g = function(2);
    ps_stack *stack = ps_stack_new();
    uint64_t lost = ps_stack_lost;
    ps_memory_set_limit(ps_memory_used() + 1);
    CHECK(!enter(stack, f, 0));
    CHECK_EQUAL(ps_stack_lost, lost + 1);
    CHECK(!ps_stack_new());
    ps_call call;
    CHECK(!ps_stack_leave(stack, f, 10, PS_OUTCOME_RETURNED, &call));
    check_counts(f, 1, 0, 0);
    ps_memory_set_limit(0);
    CHECK(enter(stack, g, 20));
    returns(stack, g, 30);
    check_counts(g, 1, 10, 10);
    ps_stack_free(stack);
    begin_again();
}

static void keeps_the_pairs_of_timed_calls_below_untimed_ones(void)
{
    ps_row *f = function(1);
    ps_stack *stack = ps_stack_new();
    enter(stack, f, 0);
    uint32_t room = stack->capacity;
    for (uint32_t i = 1; i < room; i++) enter(stack, f, i);
    ps_memory_set_limit(ps_memory_used() + 1);
    for (int i = 0; i < 3; i++) CHECK(!enter(stack, f, 100));
    ps_memory_set_limit(0);
    ps_call call;
    for (int i = 0; i < 3; i++) CHECK(!ps_stack_leave(stack, f, 150, PS_OUTCOME_RETURNED, &call));
    CHECK_EQUAL(ps_stack_depth(stack), room);
    for (uint32_t i = 0; i < room; i++) CHECK(ps_stack_leave(stack, f, 200, PS_OUTCOME_RETURNED, &call));
    CHECK_EQUAL(f->count[PS_FUNCTION_CALLS], room + 3);
    CHECK_EQUAL(f->count[PS_FUNCTION_ELAPSED], 200);
    CHECK_EQUAL(f->count[PS_FUNCTION_SELF], 200);
    ps_stack_free(stack);
    begin_again();
}

static uint32_t vm_depth;

static uint32_t tell_depth(void)
{
    return vm_depth;
}

/*
 * A SystemStackError while memory is full. The untimed calls never exit; in the end the VM's own
 * depth shows that.
 */
static void times_again_after_untimed_calls_were_unwound(void)
{
    ps_row *f = function(1), *g = function(2);
    ps_stack *stack = ps_stack_new();
    ps_memory_set_limit(ps_memory_used() + 1);
    for (int i = 0; i < 10; i++) CHECK(!ps_stack_enter(stack, f, tell_depth));
    ps_memory_set_limit(0);
    vm_depth = 3;
    ps_call call;
    bool timed = false;
    for (int i = 0; i < 1000 && !timed; i++) {
        timed = ps_stack_enter(stack, g, tell_depth) != NULL;
        if (!timed) ps_stack_leave(stack, g, 10, PS_OUTCOME_RETURNED, &call);
    }
    CHECK(timed);
    CHECK_EQUAL(ps_stack_depth(stack), 1);
    ps_stack_free(stack);
    begin_again();
}

static void is_empty_after_the_next_attach(void)
{
    ps_stack *stack = ps_stack_new();
    enter(stack, function(1), 0);
    enter(stack, function(2), 0);
    stack->unwinding = true;
    begin_again();

    CHECK_EQUAL(ps_stack_depth(stack), 0);
    ps_row *f = function(1);
    ps_call call;
    CHECK(!ps_stack_leave(stack, f, 10, PS_OUTCOME_RETURNED, &call));
    enter(stack, f, 20);
    CHECK_EQUAL(ps_stack_depth(stack), 1);
    CHECK(!stack->unwinding);
    returns(stack, f, 25);
    check_counts(f, 1, 5, 5);

    /* A stack with open calls whose rows are freed. */
    enter(stack, f, 30);
    begin_again();
    ps_stack_free(stack);
}

static void leaves_nothing_behind_when_dropped_with_open_calls(void)
{
    size_t used = ps_memory_used();
    ps_row *f = function(1);
    size_t with_rows = ps_memory_used();
    /*
     * A new stack tends to get the address of the one just freed. The freed stack's calls must not
     * count as its own.
     */
    for (int i = 0; i < 100; i++) {
        ps_stack *stack = ps_stack_new();
        CHECK(enter(stack, f, 0)->outermost);
        CHECK(!enter(stack, f, 0)->outermost);
        ps_stack_free(stack);
        CHECK(!f->function.active);
    }
    CHECK_EQUAL(ps_memory_used(), with_rows);
    ps_stack_free(NULL);
    begin_again();
    CHECK_EQUAL(ps_memory_used(), used);
}

static void has_an_id_of_its_own(void)
{
    ps_stack *a = ps_stack_new(), *b = ps_stack_new();
    CHECK(a->id && b->id && a->id != b->id);
    uint64_t last = b->id;
    ps_stack_free(b);
    b = ps_stack_new();
    CHECK(b->id != last); /* an id is never used again, although the address is */
    ps_stack_free(a);
    ps_stack_free(b);
}

static void passes_an_exception_on_to_the_caller(void)
{
    ps_stack *stack = ps_stack_new();
    ps_row *f = function(1), *g = function(2), *h = function(3);
    enter(stack, f, 0);
    enter(stack, g, 10);
    stack->unwinding = true; /* the VM reports a raise in g */
    leave(stack, g, 20, PS_OUTCOME_RAISED);
    CHECK(stack->unwinding);

    /* f's ensure calls h, which returns. The exception still propagates. */
    CHECK(enter(stack, h, 30)->unwinding);
    CHECK(!stack->unwinding);
    returns(stack, h, 40);
    CHECK(stack->unwinding);
    leave(stack, f, 50, PS_OUTCOME_RAISED);
    CHECK(stack->unwinding);
    CHECK_EQUAL(f->count[PS_FUNCTION_RAISED], 1);
    CHECK_EQUAL(g->count[PS_FUNCTION_RAISED], 1);
    CHECK_EQUAL(h->count[PS_FUNCTION_RAISED], 0);
    ps_stack_free(stack);
    begin_again();
}

static void forgets_an_exception_that_a_return_ended(void)
{
    ps_stack *stack = ps_stack_new();
    ps_row *f = function(1), *g = function(2);
    enter(stack, f, 0);
    enter(stack, g, 10);
    stack->unwinding = true;
    returns(stack, g, 20); /* g rescued it */
    CHECK(!stack->unwinding);
    CHECK(!enter(stack, g, 30)->unwinding);
    ps_stack_free(stack);
    begin_again();
}

/* ---- Random programs, compared with a simple model ---- */

enum { STACKS = 3, FUNCTIONS = 7, DEEPEST = 60 };

static struct open_call {
    int function;
    uint64_t start, children;
} open_calls[STACKS][DEEPEST];
static int open_depth[STACKS];
static uint64_t expected[FUNCTIONS][PS_ROW_COUNTERS];

static bool is_open(int stack, int function, int below)
{
    for (int i = 0; i < below; i++)
        if (open_calls[stack][i].function == function) return true;
    return false;
}

static void expect_abandon(int stack)
{
    const struct open_call *top = &open_calls[stack][--open_depth[stack]];
    expected[top->function][PS_FUNCTION_CALLS]++;
    expected[top->function][PS_FUNCTION_RAISED]++;
    if (open_depth[stack]) open_calls[stack][open_depth[stack] - 1].children += top->children;
}

/* Returns false when the call is not open. */
static bool expect_leave(int stack, int function, uint64_t now, int outcome)
{
    int depth = open_depth[stack];
    while (depth && open_calls[stack][depth - 1].function != function) depth--;
    if (!depth) return false;
    while (open_depth[stack] > depth) expect_abandon(stack);
    const struct open_call *call = &open_calls[stack][--open_depth[stack]];
    uint64_t elapsed = now - call->start, *counts = expected[function];
    counts[PS_FUNCTION_CALLS]++;
    counts[PS_FUNCTION_SELF] += elapsed - call->children;
    if (!is_open(stack, function, open_depth[stack])) counts[PS_FUNCTION_ELAPSED] += elapsed;
    if (elapsed > counts[PS_FUNCTION_MAX]) counts[PS_FUNCTION_MAX] = elapsed;
    counts[PS_FUNCTION_RAISED] += outcome == PS_OUTCOME_RAISED;
    if (open_depth[stack]) open_calls[stack][open_depth[stack] - 1].children += elapsed;
    return true;
}

static void run_random_program(uint64_t seed)
{
    ps_stack *stacks[STACKS];
    ps_row *rows[FUNCTIONS];
    uint64_t now = 1000;
    memset(open_depth, 0, sizeof(open_depth));
    memset(expected, 0, sizeof(expected));
    for (int i = 0; i < STACKS; i++) stacks[i] = ps_stack_new();
    for (int i = 0; i < FUNCTIONS; i++) rows[i] = function((uintptr_t)i);
    for (int step = 0; step < 5000; step++) {
        int s = (int)(check_random(&seed) % STACKS), f = (int)(check_random(&seed) % FUNCTIONS);
        uint64_t dice = check_random(&seed) % 100;
        now += check_random(&seed) % 50;
        if (dice < 48 && open_depth[s] < DEEPEST) {
            enter(stacks[s], rows[f], now);
            open_calls[s][open_depth[s]++] = (struct open_call){f, now, 0};
        } else if (dice == 99) {
            /* A fiber that is never resumed. */
            ps_stack_free(stacks[s]);
            stacks[s] = ps_stack_new();
            open_depth[s] = 0;
        } else {
            /* Mostly the call on top. At times one below it, or one that is not open. */
            if (dice < 94 && open_depth[s]) f = open_calls[s][open_depth[s] - 1].function;
            int outcome = dice % 10 == 0 ? PS_OUTCOME_RAISED : PS_OUTCOME_RETURNED;
            ps_call call;
            bool open = expect_leave(s, f, now, outcome);
            CHECK(ps_stack_leave(stacks[s], rows[f], now, outcome, &call) == open);
        }
        CHECK_EQUAL(ps_stack_depth(stacks[s]), open_depth[s]);
    }
    for (int f = 0; f < FUNCTIONS; f++)
        for (int i = 0; i < PS_ROW_COUNTERS; i++) CHECK_EQUAL(rows[f]->count[i], expected[f][i]);
    for (int i = 0; i < STACKS; i++) ps_stack_free(stacks[i]);
    for (int f = 0; f < FUNCTIONS; f++) CHECK(!rows[f]->function.active && !rows[f]->function.elsewhere);
    begin_again();
}

static void agrees_with_random_programs(void)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        int before = check_failures;
        run_random_program(seed * 0x9e3779b97f4a7c15u);
        if (check_failures > before) {
            fprintf(stderr, "random program %d\n", (int)seed);
            break;
        }
    }
}

int main(void)
{
    RUN(times_a_call);
    RUN(takes_what_callees_took_from_self);
    RUN(counts_elapsed_of_a_recursion_once);
    RUN(counts_a_recursion_once_for_each_of_two_stacks);
    RUN(knows_a_recursion_after_another_stack_left);
    RUN(knows_a_recursion_after_another_stack_was_dropped);
    RUN(ignores_exits_of_calls_that_it_never_saw);
    RUN(closes_abandoned_calls_as_raised);
    RUN(closes_the_innermost_open_call_of_a_function);
    RUN(empties_itself_when_the_vm_is_not_that_deep);
    RUN(grows_with_the_vm);
    RUN(loses_calls_beyond_the_deepest);
    RUN(counts_calls_without_time_when_memory_is_full);
    RUN(keeps_the_pairs_of_timed_calls_below_untimed_ones);
    RUN(times_again_after_untimed_calls_were_unwound);
    RUN(is_empty_after_the_next_attach);
    RUN(leaves_nothing_behind_when_dropped_with_open_calls);
    RUN(has_an_id_of_its_own);
    RUN(passes_an_exception_on_to_the_caller);
    RUN(forgets_an_exception_that_a_return_ended);
    RUN(agrees_with_random_programs);
    return check_report("shadow_stack");
}

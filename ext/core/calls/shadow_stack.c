#include "calls/shadow_stack.h"

#include <stddef.h>
#include <string.h>

#include "base/atomic.h"
#include "base/memory.h"
#include "base/thread_record.h"
#include "calls/suspended_calls.h"
#include "usdt/taken_out.h"

ps_stack ps_stack_ours = {.epoch = 1};
uint64_t ps_stack_lost, ps_stack_looks = 1;
ps_table ps_function_table;

_Static_assert(offsetof(ps_stack, depth) % 8 == 0 &&
                   offsetof(ps_stack, epoch) == offsetof(ps_stack, depth) + sizeof(uint32_t),
               "programs read both as one word, which is on one page");

ps_stack *ps_stack_new(void)
{
    static uint64_t last_id;
    ps_stack *stack = ps_memory_take(sizeof(*stack));
    if (!stack) return NULL;
    stack->id = ++last_id;
    stack->epoch = ps_stack_epoch;
    return stack;
}

/* Marks the frame's function as no longer open on this stack. */
static void deactivate(const ps_stack *stack, const ps_frame *frame)
{
    if (!frame->outermost) return;
    if (PS_LIKELY(frame->row->function.active == stack)) frame->row->function.active = NULL;
    else frame->row->function.elsewhere--;
}

void ps_stack_free(ps_stack *stack)
{
    if (!stack) return;
    if (stack->here) ps_record_forget(stack->here, stack);
    PS_SIGNAL_FENCE();
    /* Rows of an earlier epoch were freed, so its frames must not touch them. */
    if (stack->epoch == ps_stack_epoch)
        while (stack->depth) deactivate(stack, &stack->frames[--stack->depth]);
    ps_open_calls_free(stack->open);
    ps_memory_give(stack->frames, stack->capacity * sizeof(ps_frame));
    ps_memory_give(stack, sizeof(*stack));
}

static bool grow(ps_stack *stack)
{
    uint32_t capacity = stack->capacity ? stack->capacity * 2 : 32;
    if (capacity > PS_STACK_DEPTH_MAX) return false;
    ps_frame *frames = ps_memory_take(capacity * sizeof(*frames));
    if (!frames) return false;
    if (stack->frames) memcpy(frames, stack->frames, stack->depth * sizeof(*frames));
    ps_frame *before = stack->frames;
    size_t size = stack->capacity * sizeof(*frames);
    PS_SIGNAL_FENCE();
    stack->frames = frames;
    stack->capacity = capacity;
    PS_SIGNAL_FENCE();
    /* It may be a system call, at which a tracer reads the stack. */
    ps_memory_give(before, size);
    return true;
}

/*
 * Records that row is open on this stack. Returns true when it was not open on it before. A row
 * stores one of the stacks that it is open on, so the answer usually costs nothing. The frames are
 * searched only when the row is open on several stacks.
 */
static bool activate(const ps_stack *stack, ps_row *row)
{
    if (row->function.active == stack) return false;
    if (PS_UNLIKELY(row->function.active || row->function.elsewhere)) {
        for (uint32_t i = stack->depth; i-- > 0;)
            if (stack->frames[i].row == row) return false;
    }
    if (row->function.active) row->function.elsewhere++;
    else row->function.active = stack;
    return true;
}

/* Closes the top call, for which the VM sent no exit event. It is counted, but not timed. */
static void abandon_top(ps_stack *stack)
{
    const ps_frame *frame = &stack->frames[--stack->depth];
    PS_ADD(frame->row->count[PS_FUNCTION_RAISED], 1);
    PS_ADD_LAST(frame->row->count[PS_FUNCTION_CALLS], 1);
    /* Its callees' time does not become self time of its caller. */
    if (stack->depth) {
        stack->frames[stack->depth - 1].children += frame->children;
        stack->frames[stack->depth - 1].waited += frame->waited;
    }
    deactivate(stack, frame);
}

/*
 * Drops the calls on top whose functions are no longer traced. The time of their callees does not
 * become self time of the caller.
 */
static void drop_excluded(ps_stack *stack)
{
    while (stack->depth && PS_READ(stack->frames[stack->depth - 1].row->function.excluded)) {
        const ps_frame *frame = &stack->frames[--stack->depth];
        if (stack->depth) {
            stack->frames[stack->depth - 1].children += frame->children;
            stack->frames[stack->depth - 1].waited += frame->waited;
        }
        deactivate(stack, frame);
    }
}

/* Makes room for one more frame. Returns false when the call has to stay untimed. */
static bool make_room(ps_stack *stack, uint32_t (*real_depth)(void))
{
    uint32_t open = stack->depth + stack->untimed;
    /*
     * Asking the VM for its depth is expensive. So it is done when the stack would grow, and now
     * and then while it cannot.
     */
    bool suspect = stack->untimed ? ps_stack_lost % 256 == 0 : open >= PS_STACK_SUSPECT_DEPTH;
    if (suspect && real_depth && open > real_depth()) {
        /*
         * The stack is deeper than the VM's own. Calls were unwound without exits, and it is not
         * known which.
         */
        while (stack->depth) abandon_top(stack);
        stack->untimed = 0;
        return stack->capacity > 0 || grow(stack);
    }
    /* Nothing is pushed above an untimed call. Otherwise exits would not match their entries. */
    if (!stack->untimed && grow(stack)) return true;
    PS_ADD(ps_stack_lost, 1);
    stack->untimed++;
    return false;
}

/* The frame of a call that is entered, which publish() opens when it is whole. NULL: see make_room(). */
static inline ps_frame *prepare(ps_stack *stack, ps_row *row, uint32_t (*real_depth)(void))
{
    if (PS_UNLIKELY(stack->epoch != ps_stack_epoch)) {
        stack->depth = 0;
        stack->untimed = 0;
        stack->unwinding = false;
        stack->suspended = 0;
        PS_SIGNAL_FENCE();
        stack->epoch = ps_stack_epoch;
    }
    if (PS_UNLIKELY(PS_READ(ps_overhead_functions))) drop_excluded(stack);
    if (PS_UNLIKELY((stack->depth == stack->capacity || stack->untimed) && !make_room(stack, real_depth)))
        return NULL;
    ps_frame *frame = &stack->frames[stack->depth];
    frame->row = row;
    frame->children = 0;
    frame->waited = 0;
    frame->number = 0;
    frame->raises = stack->raises;
    frame->outermost = activate(stack, row);
    frame->unwinding = stack->unwinding;
    stack->unwinding = false;
    return frame;
}

static inline void publish(ps_stack *stack)
{
    PS_SIGNAL_FENCE();
    stack->depth++;
}

ps_frame *ps_stack_enter(ps_stack *stack, ps_row *row, uint32_t (*real_depth)(void))
{
    ps_frame *entered = prepare(stack, row, real_depth);
    if (PS_LIKELY(entered != NULL)) publish(stack);
    return entered;
}

/* Adds a finished call to its function's figures. */
static void count_call(ps_row *row, uint64_t elapsed, uint64_t self, bool outermost, int outcome)
{
    uint64_t *count = row->count;
    PS_ADD(count[PS_FUNCTION_SELF], self);
    if (outermost) PS_ADD(count[PS_FUNCTION_ELAPSED], elapsed);
    if (elapsed > PS_READ(count[PS_FUNCTION_MAX])) PS_WRITE(count[PS_FUNCTION_MAX], elapsed);
    if (outcome == PS_OUTCOME_RAISED) PS_ADD(count[PS_FUNCTION_RAISED], 1);
    PS_ADD_LAST(count[PS_FUNCTION_CALLS], 1);
}

bool ps_stack_leave(ps_stack *stack, ps_row *row, uint64_t now, int outcome, ps_call *call)
{
    if (PS_UNLIKELY(PS_READ(ps_overhead_functions)) && ps_stack_depth(stack)) drop_excluded(stack);
    uint32_t depth = ps_stack_depth(stack);
    if (PS_UNLIKELY(stack->untimed && stack->epoch == ps_stack_epoch)) {
        /* Untimed calls are above all others, so this exit is that of one of them. */
        stack->untimed--;
        stack->unwinding = outcome == PS_OUTCOME_RAISED;
        if (outcome == PS_OUTCOME_RAISED) PS_ADD(row->count[PS_FUNCTION_RAISED], 1);
        PS_ADD_LAST(row->count[PS_FUNCTION_CALLS], 1);
        return false;
    }
    while (depth && PS_UNLIKELY(stack->frames[depth - 1].row != row)) depth--;
    if (PS_UNLIKELY(!depth)) return false;
    while (PS_UNLIKELY(stack->depth > depth)) abandon_top(stack);

    const ps_frame *frame = &stack->frames[--stack->depth];
    uint64_t elapsed = now - frame->start;
    uint64_t self = elapsed > frame->children ? elapsed - frame->children : 0;
    if (stack->depth) stack->frames[stack->depth - 1].children += elapsed;

    /*
     * After a call that raised, the exception propagates in its caller. After a call that returned,
     * the state from before the call is restored.
     */
    stack->unwinding = outcome == PS_OUTCOME_RAISED || frame->unwinding;

    count_call(row, elapsed, self, frame->outermost, outcome);
    deactivate(stack, frame);
    *call = (ps_call){.elapsed = elapsed,
                      .self = self,
                      .waited = frame->waited,
                      .number = frame->number,
                      .depth = stack->depth};
    return true;
}

ps_frame *ps_stack_enter_frame(ps_stack *stack, ps_row *row, ps_address frame, ps_address owner)
{
    uint32_t depth = ps_stack_depth(stack);
    if (PS_UNLIKELY(depth && ps_address_equal(stack->frames[depth - 1].frame, frame))) abandon_top(stack);
    ps_frame *entered = prepare(stack, row, NULL);
    if (!entered) return NULL;
    entered->frame = frame;
    entered->owner = owner;
    entered->first = entered->earlier = 0;
    entered->resumed = false;
    publish(stack);
    return entered;
}

ps_frame *ps_stack_resume_frame(ps_stack *stack, ps_row *row, ps_address frame, ps_address owner)
{
    ps_frame *resumed = ps_stack_enter_frame(stack, row, frame, owner);
    ps_suspended call;
    bool known = ps_suspended_take(&ps_suspended_calls, frame, &call);
    PS_ADD(row->count[PS_FUNCTION_RESUMED], 1);
    if (resumed) resumed->resumed = true;
    if (!resumed || !known || call.row != row) return resumed;
    resumed->first = call.first;
    resumed->earlier = call.self;
    resumed->number = call.number;
    return resumed;
}

void ps_stack_bury(ps_address frame)
{
    ps_suspended call;
    if (ps_suspended_take(&ps_suspended_calls, frame, &call) && !PS_READ(call.row->function.excluded))
        count_call(call.row, call.last - call.first, call.self, true, PS_OUTCOME_RETURNED);
}

/*
 * Takes frame number i out of the stack. Those above it stay. The one on top is there twice until
 * `depth` is lowered.
 */
static void remove_frame(ps_stack *stack, uint32_t i)
{
    deactivate(stack, &stack->frames[i]);
    memmove(&stack->frames[i], &stack->frames[i + 1], (stack->depth - 1 - i) * sizeof(ps_frame));
    PS_SIGNAL_FENCE();
    stack->depth--;
}

/* Closes the calls above number i that its exit leaves behind: those with the same owner. */
static void abandon_above(ps_stack *stack, uint32_t i)
{
    ps_address owner = stack->frames[i].owner;
    for (uint32_t above = stack->depth; ps_address_known(owner) && --above > i;) {
        if (!ps_address_equal(stack->frames[above].owner, owner)) continue;
        PS_ADD(stack->frames[above].row->count[PS_FUNCTION_RAISED], 1);
        PS_ADD_LAST(stack->frames[above].row->count[PS_FUNCTION_CALLS], 1);
        remove_frame(stack, above);
    }
}

ps_row *ps_stack_leave_frame(ps_stack *stack, ps_address frame, uint64_t now, int outcome, ps_call *call)
{
    if (PS_UNLIKELY(PS_READ(ps_overhead_functions)) && ps_stack_depth(stack)) drop_excluded(stack);
    uint32_t i = ps_stack_depth(stack);
    while (i && PS_UNLIKELY(!ps_address_equal(stack->frames[i - 1].frame, frame))) i--;
    if (!i--) {
        /* It may be the exit of an untimed call. Untimed calls are above all others. */
        if (stack->untimed && stack->epoch == ps_stack_epoch) stack->untimed--;
        return NULL;
    }
    ps_frame left = stack->frames[i];
    if (PS_UNLIKELY(i != stack->depth - 1)) abandon_above(stack, i);
    bool on_top = i == stack->depth - 1;
    uint64_t segment = now - left.start, others = left.children + left.waited;
    uint64_t self = segment > others ? segment - others : 0;
    if (i && on_top) stack->frames[i - 1].children += segment;
    remove_frame(stack, i);
    *call = (ps_call){
        .elapsed = segment, .self = self, .number = left.number, .depth = i, .resumed = left.resumed};
    if (outcome == PS_OUTCOME_SUSPENDED) {
        ps_suspended_put(&ps_suspended_calls, &(ps_suspended){.frame = frame,
                                                              .row = left.row,
                                                              .first = left.first ? left.first : left.start,
                                                              .last = now,
                                                              .self = left.earlier + self,
                                                              .number = left.number});
        return left.row;
    }
    if (left.first) call->elapsed = now - left.first;
    call->self += left.earlier;
    count_call(left.row, call->elapsed, call->self, left.outermost, outcome);
    return left.row;
}

void ps_stack_abandon(ps_stack *stack)
{
    if (stack->epoch != ps_stack_epoch) return;
    while (stack->depth) abandon_top(stack);
    stack->untimed = 0;
}

void ps_stack_suspend(ps_stack *stack, uint64_t now)
{
    stack->suspended = now;
}

void ps_stack_resume(ps_stack *stack, uint64_t now)
{
    uint32_t depth = ps_stack_depth(stack);
    if (depth && stack->suspended) stack->frames[depth - 1].waited += now - stack->suspended;
    stack->suspended = 0;
}

#include <ruby/ruby.h>
#include <ruby/ractor.h>
#include <ruby/version.h>

#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/atomic.h"
#include "calls/here.h"
#include "compat.h"
#include "features/requests.h"
#include "hooks.h"

/*
 * Each fiber has a shadow stack. A fiber-local variable holds it (Thread#[] is fiber-local), so the
 * stack is freed when the fiber is collected. The look-up costs 9-13 ns, so each native thread
 * remembers the address of its last fiber. After a collection another fiber may have that address
 * while the old fiber's stack still waits for its sweep, so every thread looks up once more then.
 *
 * The look-up is where the thread's record (calls/here.h) is set. It is made at each switch of
 * fibers, too.
 */
static ID key_of_stack;
static rb_ractor_local_key_t key_of_main_ractor;

static __thread struct {
    ps_address fiber;
    uint64_t epoch; /* ps_known_epoch at the look-up */
    ps_stack *stack;
    uint64_t looks; /* ps_stack_looks before the look-up */
} last;

/*
 * While calls are hooked: the shadow stack that each thread runs on, which it leaves at its next
 * fiber switch. Keyed by Ruby's thread: the native thread may have run another Ruby thread last
 * (RUBY_MN_THREADS=1). A thread loses its place to another one with the same hash. Then the stack
 * that it leaves is not known, and open calls there count the time until their fiber goes on as
 * their own.
 */
enum { RUNNING_BITS = 10 };
static struct running {
    ps_address thread;
    ps_stack *stack; /* NULL: not known */
} running[1 << RUNNING_BITS];

/* An entry is the stack of a thread of that address. Its end (free_stack) empties the entry. */
PS_KEPT(PS_LASTING(running))

/* The thread's place. It has no stack yet when it belonged to another thread. */
static struct running *running_of(ps_address thread)
{
    struct running *place = &running[ps_address_hash(thread, RUNNING_BITS)];
    if (!ps_address_equal(place->thread, thread)) *place = (struct running){.thread = thread};
    return place;
}

static void free_stack(void *pointer)
{
    ps_stack *stack = pointer;
    PS_FETCH_ADD(ps_stack_looks, 1); /* what threads remember may point to it */
    struct running *place = &running[ps_address_hash(stack->thread, RUNNING_BITS)];
    if (place->stack == stack) place->stack = NULL;
    ps_stack_free(stack);
}

static const rb_data_type_t holder_type = {"probescope/stack",
                                           {NULL, free_stack, NULL},
                                           0,
                                           0,
                                           RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED};

static bool threads_share;

bool ps_threads_share(void)
{
    return threads_share;
}

void ps_current_stack_init(void)
{
    /* As Ruby reads it: any number from 1 on. */
    const char *shared = getenv("RUBY_MN_THREADS");
    threads_share = RUBY_API_VERSION_CODE >= 30300 && shared && atoi(shared) > 0;
    /*
     * A native thread runs one Ruby thread after the other, and the record would name the stack of
     * the thread that ran before.
     */
    if (threads_share) ps_here_share_threads();
    key_of_stack = rb_intern("__probescope__");
    key_of_main_ractor = rb_ractor_local_storage_ptr_newkey(&rb_ractor_local_storage_type_free);
    /*
     * Any non-null pointer marks the Ractor that installs us as the main one. It is freed with the
     * Ractor, by free().
     */
    rb_ractor_local_storage_ptr_set(key_of_main_ractor, calloc(1, 1));
}

/*
 * Looked up each time: Ractors share native threads, up to Ruby 3.2, and after that with
 * RUBY_MN_THREADS=1.
 */
bool ps_is_main_ractor(void)
{
    return rb_ractor_local_storage_ptr(key_of_main_ractor) != NULL;
}

static VALUE wrap(VALUE stack)
{
    return TypedData_Wrap_Struct(rb_cObject, &holder_type, (ps_stack *)stack);
}

static PS_APART ps_stack *find_stack(VALUE fiber)
{
    ps_stack *stack = NULL;
    uint64_t looks = PS_READ(ps_stack_looks);
    bool ours = ps_ours_begin(); /* until the record names the stack */
    if (ps_is_main_ractor()) {
        VALUE thread = rb_thread_current();
        VALUE holder = rb_thread_local_aref(thread, key_of_stack);
        if (!NIL_P(holder)) {
            stack = RTYPEDDATA_DATA(holder);
        } else if (!RB_OBJ_FROZEN(thread) && (stack = ps_stack_new()) != NULL) {
            rb_thread_local_aset(thread, key_of_stack, ps_objects_leave_out(wrap, (VALUE)stack));
        }
        if (stack) {
            stack->thread = PS_ADDRESS(thread);
            running_of(stack->thread)->stack = stack;
        }
    }
    /*
     * A fiber without a stack is not remembered: nothing would show that its address belongs to
     * another fiber later.
     */
    last.fiber = stack ? PS_ADDRESS(fiber) : PS_NO_ADDRESS;
    last.epoch = ps_known_epoch;
    last.stack = stack;
    last.looks = looks;
    if (PS_UNLIKELY(PS_READ(ps_here_requests)) && stack) ps_request_here(stack, NULL);
    if (PS_UNLIKELY(PS_READ(ps_here_on))) ps_here_set(stack);
    ps_ours_end(ours);
    return stack;
}

ps_stack *ps_current_stack(void)
{
    VALUE fiber = rb_fiber_current();
    bool is_last = ps_address_equal(last.fiber, PS_ADDRESS(fiber)) && last.epoch == ps_known_epoch;
    if (PS_LIKELY(is_last && last.looks == PS_READ(ps_stack_looks))) return last.stack;
    return find_stack(fiber);
}

ps_stack *ps_current_stack_switched(ps_stack **left)
{
    struct running *of_thread = running_of(PS_ADDRESS(rb_thread_current()));
    *left = of_thread->stack;
    ps_stack *stack = ps_current_stack();
    of_thread->stack = stack;
    return stack;
}

void ps_current_stack_leave(void)
{
    if (PS_READ(ps_here_on)) ps_here_set(NULL);
}

void ps_current_stack_begin(void)
{
    memset(running, 0, sizeof(running));
    ps_here_clear();
    ps_known_epoch++; /* each thread looks up its stack, and notes it */
}

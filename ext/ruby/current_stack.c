#include <ruby/ruby.h>
#include <ruby/ractor.h>
#include <ruby/version.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/atomic.h"
#include "calls/here.h"
#include "compat.h"
#include "features/requests.h"
#include "hooks.h"
#include "thread_events.h"
#include "usdt/looking.h"
#include "vm_words.h"

/*
 * Each fiber has a shadow stack. A fiber-local variable holds it (Thread#[] is fiber-local), so the
 * stack is freed when the fiber is collected. The look-up costs 9-13 ns, so each native thread
 * remembers the address of its last fiber. After a collection another fiber may have that address
 * while the old fiber's stack still waits for its sweep, so every thread looks up once more then.
 *
 * The look-up is where the thread's record (calls/here.h) is set. It is made at each switch of
 * fibers, too. Where threads share native threads, the record is also set when a thread goes on.
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

/* ---- Threads that share native threads ---- */

static bool threads_share;
static bool natives_known; /* the word THREAD_NATIVE of a thread is where it should be */

bool ps_threads_share(void)
{
    return threads_share;
}

#ifdef HAVE_RB_INTERNAL_THREAD_SPECIFIC_KEY_CREATE
/* Recognised by the words around it, and by what it points to. */
static bool knows_natives(void)
{
    VALUE self = rb_thread_current();
    void **thread = RTYPEDDATA_DATA(self), **context = thread[THREAD_EC], **native = thread[THREAD_NATIVE];
    return thread[THREAD_SELF] == (void *)self && thread[THREAD_VM] && context &&
           context[EC_THREAD] == (void *)thread && native && native[NATIVE_VM] == thread[THREAD_VM] &&
           native[NATIVE_ID] == (void *)pthread_self();
}

/* The calling thread runs on this stack from now on; NULL: on none that is known. */
static void set_here(ps_stack *stack)
{
    if (PS_LIKELY(!natives_known)) {
        ps_here_set(stack);
        return;
    }
    void **thread = RTYPEDDATA_DATA(rb_thread_current());
    ps_here_set_shared(stack, (const uint64_t *)(const void *)&thread[THREAD_NATIVE]);
}

/* The stack of the current fiber, if it has one. Creates no object, and takes no lock. */
static ps_stack *present_stack(void)
{
    if (!ps_is_main_ractor()) return NULL;
    VALUE holder = rb_thread_local_aref(rb_thread_current(), key_of_stack);
    return NIL_P(holder) ? NULL : RTYPEDDATA_DATA(holder);
}

/*
 * A thread that goes on may do so on another native thread, and makes system calls before it makes a
 * traced call. After EXITED its stack and Ruby's data of it are freed, in any order.
 */
void ps_current_stack_on_thread_event(rb_event_flag_t event, const rb_internal_thread_event_data_t *data)
{
    bool goes_on = event == (RUBY_INTERNAL_THREAD_EVENT_RESUMED);
    if (!natives_known || !PS_READ(ps_here_on)) return;
    if (!goes_on && event != (RUBY_INTERNAL_THREAD_EVENT_EXITED)) return;
    ps_look look = ps_look_begin(PS_LOOK_FUNCTION);
    set_here(goes_on ? present_stack() : NULL);
    ps_look_end(look);
}

void ps_current_stack_follow_threads(bool on)
{
    if (natives_known) ps_thread_events_use(PS_EVENTS_FOR_HERE, on);
}
#else
static bool knows_natives(void)
{
    return false;
}

static void set_here(ps_stack *stack)
{
    ps_here_set(stack);
}

void ps_current_stack_follow_threads(bool on) {}
#endif

/* ---- The stack of the current fiber ---- */

void ps_current_stack_init(void)
{
    /* As Ruby reads it: any number from 1 on. */
    const char *shared = getenv("RUBY_MN_THREADS");
    threads_share = RUBY_API_VERSION_CODE >= 30300 && shared && atoi(shared) > 0;
    natives_known = threads_share && knows_natives();
    if (threads_share) ps_here_share_threads(natives_known);
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
    if (PS_UNLIKELY(PS_READ(ps_here_on))) set_here(stack);
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
    if (PS_READ(ps_here_on)) set_here(NULL);
}

void ps_current_stack_begin(void)
{
    memset(running, 0, sizeof(running));
    ps_here_clear();
    ps_known_epoch++; /* each thread looks up its stack, and notes it */
}

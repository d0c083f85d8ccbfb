#include "base/atomic.h"
#include "hooks.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "calls/here.h"
#include "features/requests.h"

/*
 * Shadow stacks. Each thread has one, which ends with the thread: the interpreter keeps a capsule
 * that frees it, with the GIL. Where greenlets switch, each greenlet that waits with open calls has
 * one more. A greenlet without open calls needs none.
 */
struct shadow {
    ps_stack *stack;
    ps_address greenlet; /* the greenlet that waits with it; unset: none does */
    bool own;            /* the thread's own, part of its context */
    struct shadow *next;
};

struct context {
    struct shadow own;
    struct shadow *running;
    uint32_t generation; /* contexts.generation when `running` was found */
    uint64_t found;      /* ps_stack_looks before that; it is raised with contexts.generation */
    uint64_t looks;      /* the same, or NEVER: each call comes to find_stack() */
};

enum { NEVER = 0 }; /* ps_stack_looks is larger */

enum { BUCKETS = 256 };

static struct {
    uint32_t generation; /* incremented when shadows go, and when threads are to follow greenlets */
    struct shadow *waiting[BUCKETS], *spare;
} contexts = {.generation = 1};

static __thread struct context *current;

static void free_shadow(struct shadow *shadow)
{
    if (shadow->own) return;
    ps_stack_free(shadow->stack);
    ps_memory_give(shadow, sizeof(*shadow));
}

static struct shadow **bucket_of(ps_address greenlet)
{
    return &contexts.waiting[ps_address_hash(greenlet, 8)];
}

static void put_to_wait(struct shadow *shadow, ps_address greenlet)
{
    struct shadow **bucket = bucket_of(greenlet);
    shadow->greenlet = greenlet;
    shadow->next = *bucket;
    *bucket = shadow;
}

/* The shadow with which this greenlet waits, taken out of those that wait; or NULL. */
static struct shadow *take(ps_address greenlet)
{
    struct shadow **place = bucket_of(greenlet), *shadow;
    while ((shadow = *place) && !ps_address_equal(shadow->greenlet, greenlet)) place = &shadow->next;
    if (!shadow) return NULL;
    *place = shadow->next;
    shadow->greenlet = PS_NO_ADDRESS;
    return shadow;
}

static void put_aside(struct shadow *shadow)
{
    if (shadow->own) return;
    shadow->next = contexts.spare;
    contexts.spare = shadow;
}

/* For a greenlet that has no open calls yet. NULL without memory. */
static struct shadow *empty_shadow(struct context *context)
{
    if (!ps_address_known(context->own.greenlet)) return &context->own;
    struct shadow *shadow = contexts.spare;
    if (shadow) {
        contexts.spare = shadow->next;
        return shadow;
    }
    shadow = ps_memory_take(sizeof(*shadow));
    if (shadow && !(shadow->stack = ps_stack_new())) {
        free_shadow(shadow);
        shadow = NULL;
    }
    return shadow;
}

static void free_context(PyObject *capsule)
{
    struct context *context = PyCapsule_GetPointer(capsule, NULL);
    ps_turn turn;
    ps_turn_begin(&turn);
    if (ps_address_known(context->own.greenlet)) take(context->own.greenlet);
    free_shadow(context->running);
    ps_stack_free(context->own.stack);
    ps_turn_end(&turn);
    if (current == context) current = NULL;
    free(context);
}

static const char key_name[] = "probescope.stack";

static PyObject *new_context(void)
{
    struct context *context = calloc(1, sizeof(*context));
    if (!context || !(context->own.stack = ps_stack_new())) {
        free(context);
        return NULL;
    }
    context->own.own = true;
    context->running = &context->own;
    PyObject *capsule = PyCapsule_New(context, NULL, free_context);
    if (capsule) return capsule;
    ps_stack_free(context->own.stack);
    free(context);
    return NULL;
}

static struct context *find_context(void)
{
    PyObject *key = PyUnicode_InternFromString(key_name), *kept = PyThreadState_GetDict();
    PyObject *capsule = key && kept ? PyDict_GetItemWithError(kept, key) : NULL;
    struct context *context = NULL;
    if (capsule) {
        context = PyCapsule_GetPointer(capsule, NULL);
    } else if (key && kept && (capsule = new_context())) {
        if (PyDict_SetItem(kept, key, capsule) == 0) context = PyCapsule_GetPointer(capsule, NULL);
        Py_DECREF(capsule);
    }
    Py_XDECREF(key);
    PyErr_Clear();
    return context;
}

/*
 * The code on this stack belongs to the request of the current context. A step of another task, and
 * Context.run(), change the version of the thread's context: then the request is not known until a
 * traced call begins or ends.
 */
static ps_stack *with_request(ps_stack *stack)
{
    if (PS_UNLIKELY(PS_READ(ps_here_requests)) && stack)
        ps_request_here(stack, &PyThreadState_Get()->context_ver);
    return stack;
}

/* The thread's record (calls/here.h) names the stack from now on. */
static ps_stack *runs_on(ps_stack *stack)
{
    with_request(stack);
    if (PS_UNLIKELY(PS_READ(ps_here_on))) ps_here_set(stack);
    return stack;
}

static PS_APART ps_stack *find_stack(void)
{
    uint64_t looks = PS_READ(ps_stack_looks);
    struct context *context = current;
    if (context && context->found == looks) return with_request(context->running->stack);
    bool ours = ps_ours_begin(); /* until the record names the stack */
    ps_error error = ps_error_save();
    context = find_context();
    /* Only contexts of the current generation have shadows that wait. */
    if (context && context->generation != contexts.generation) {
        free_shadow(context->running);
        context->running = &context->own;
        context->generation = contexts.generation;
        ps_greenlets_follow();
    }
    if (context) {
        context->found = looks;
        context->looks = PS_READ(ps_here_requests) ? NEVER : looks;
    }
    current = context;
    ps_error_restore(error);
    runs_on(context ? context->running->stack : NULL);
    ps_ours_end(ours);
    return context ? context->running->stack : NULL;
}

ps_stack *ps_current_stack(void)
{
    struct context *context = current;
    return PS_LIKELY(context && context->looks == PS_READ(ps_stack_looks)) ? context->running->stack
                                                                           : find_stack();
}

void ps_current_stack_switched(ps_address left, ps_address entered)
{
    struct context *context = current;
    if (!context || context->generation != contexts.generation) return;
    uint64_t now = ps_ticks();
    struct shadow *leaves = context->running, *enters = take(entered);
    if (enters && !ps_address_known(ps_current_frame())) {
        /*
         * A greenlet that runs nothing is new. An earlier one had its address, and its end went
         * unseen.
         */
        ps_stack_abandon(enters->stack);
        put_aside(enters);
        enters = NULL;
    }
    if (ps_stack_depth(leaves->stack)) {
        ps_stack_suspend(leaves->stack, now);
        put_to_wait(leaves, left);
    } else {
        put_aside(leaves);
    }
    if (!enters) enters = empty_shadow(context);
    if (!enters) enters = take(left); /* both share it */
    ps_stack_resume(enters->stack, now);
    context->running = enters;
    runs_on(enters->stack);
}

#if !PS_HAVE_MONITORING
void ps_current_stack_forget(PyThreadState *thread)
{
    /* Borrowed. */
    PyObject *capsule = thread->dict ? PyDict_GetItemString(thread->dict, key_name) : NULL;
    struct context *context = capsule ? PyCapsule_GetPointer(capsule, NULL) : NULL;
    if (context) ps_stack_abandon(context->running->stack);
}
#endif

/* What runs on a thread is not known until it has looked, so its record names nothing. */
static void look_again(void)
{
    contexts.generation++;
    ps_here_clear();
}

void ps_current_stack_begin(void)
{
    look_again();
}

void ps_current_stack_end(void)
{
    look_again();
    for (int i = 0; i < BUCKETS; i++)
        while (contexts.waiting[i]) put_aside(take(contexts.waiting[i]->greenlet));
    while (contexts.spare) {
        struct shadow *shadow = contexts.spare;
        contexts.spare = shadow->next;
        free_shadow(shadow);
    }
}

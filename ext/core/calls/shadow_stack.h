/*
 * A shadow stack for each thread, fiber, task or greenlet. It holds the traced calls that are open:
 * when each began, and how much of its time traced callees took.
 *
 * Entries and exits do not always come in pairs:
 * - A hook that is switched on in mid call sees exits of calls whose entries it did not see. These
 *   exits are ignored.
 * - Ruby's SystemStackError unwinds without a single exit. So an exit that is not on top closes all
 *   calls above its own: they count as raised, and have no time of their own.
 * - Abandoned fibers never exit. Their stack is dropped.
 *
 * A tracer's program reads the innermost call of the thread on which it runs, between any two
 * instructions (here.h). So `depth` counts only whole frames of the current epoch at each moment, and
 * `frames` is never freed memory.
 */
#ifndef PS_SHADOW_STACK_H
#define PS_SHADOW_STACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/address.h"
#include "calls/open_calls.h"
#include "table/table.h"

extern ps_table ps_function_table;
/*
 * The counters of its rows; times in ticks. The first one is added to last. The watcher reads and
 * resets the one that is not summed.
 */
enum {
    PS_FUNCTION_CALLS,
    PS_FUNCTION_SELF,
    PS_FUNCTION_ELAPSED,
    PS_FUNCTION_RAISED,
    PS_FUNCTION_RESUMED,
    PS_FUNCTION_MAX, /* not summed */
};

enum { PS_OUTCOME_RETURNED, PS_OUTCOME_RAISED, PS_OUTCOME_SUSPENDED };
enum { PS_STACK_DEPTH_MAX = 1 << 16, PS_STACK_SUSPECT_DEPTH = 1024 };

/* What a VM compares to recognise the call at its exit. */
typedef struct ps_called {
    ps_address target, receiver, method;
} ps_called;

typedef struct ps_frame {
    ps_row *row;
    uint64_t start;    /* ticks */
    uint64_t children; /* ticks that finished callees took */
    uint64_t waited;   /* ticks that the stack was suspended with this call on top */
    uint64_t number;   /* its span id derives from this (slow_calls.h); 0: none needed yet */
    uint32_t raises;   /* `raises` of the stack at the entry */
    bool outermost;    /* no other call of this function is open below it on this stack */
    bool unwinding;    /* it was called, from an ensure, while an exception propagated */
    bool resumed;      /* it was suspended before: ps_stack_resume_frame() */
    union {
        /* Where the VM tells which frame an event belongs to: ps_stack_enter_frame(). */
        struct {
            ps_address frame;
            /* What the VM allocates this greenlet's frames from; none where unknown. */
            ps_address owner;
            /* Ticks: the start of the whole call, if it was suspended since; else 0. */
            uint64_t first;
            /* Ticks of its own before it was suspended. */
            uint64_t earlier;
        };
        /*
         * Elsewhere, for the caller's use: the key by which the entry found the row, so that the
         * exit need not search.
         */
        ps_called called;
    };
} ps_frame;

typedef struct ps_stack {
    ps_frame *frames;
    uint32_t depth;
    uint32_t epoch; /* ps_stack_epoch when it was made, or when its frames were pushed; never 0 */
    uint32_t capacity;
    uint32_t untimed;    /* open calls above these that there was no memory for */
    uint64_t suspended;  /* ticks when its fiber stopped running; 0 while it runs */
    uint64_t id;         /* context_id of the probes */
    bool unwinding;      /* an exception propagates, as far as the VM tells */
    uint32_t raises;     /* exceptions raised on it */
    ps_open_calls *open; /* calls of latency probes; NULL: there were none */
    ps_address thread;   /* the VM's thread that last ran this fiber, where the VM has fibers */
    /* The record (here.h) that last named this stack. It may name another one now. NULL: none did. */
    struct ps_here *here;
    /*
     * The request that the code on this stack belongs to (ps_here_request()): its name is method and
     * path, NULL is none. Not known unless *request_where is request_version, and request_round is
     * the round of the record.
     */
    const ps_site *request;
    const uint64_t *request_where;
    uint64_t request_version;
    uint32_t request_round;
} ps_stack;

/* The figures of a finished call. */
typedef struct ps_call {
    uint64_t elapsed, self; /* ticks */
    uint64_t waited;        /* the part of self in which its stack was suspended */
    uint64_t number;        /* of its frame */
    uint32_t depth;
    bool resumed; /* its last entry was a resumption */
} ps_call;

/*
 * What the records of threads name while the library works on them (base/thread_record.h). No call of
 * the application is on it. It has the current epoch, so that its call is always open.
 */
extern ps_stack ps_stack_ours;
/* Raised at each attach. Stacks of an earlier epoch are empty. */
#define ps_stack_epoch ps_stack_ours.epoch
/*
 * Raised when each thread has to look up its stack once more: what it remembers may be freed, or its
 * record (here.h) is to name the stack. The watcher raises it, too.
 */
extern uint64_t ps_stack_looks __attribute__((visibility("hidden"))); /* read without the GOT */
/* Calls that were counted but not timed: there was no memory for their frames. */
extern uint64_t ps_stack_lost;

ps_stack *ps_stack_new(void);
/* Removes its open calls from their rows, and frees it. NULL is allowed. */
void ps_stack_free(ps_stack *stack);

/*
 * Opens a call. The caller sets the frame's start as the last thing it does. Returns NULL when
 * there is no memory to time the call. real_depth returns the VM's own number of frames; it is
 * called when the stack grows suspiciously deep.
 */
ps_frame *ps_stack_enter(ps_stack *stack, ps_row *row, uint32_t (*real_depth)(void));
/*
 * Closes the innermost open call of row, and adds it to row's counters. Returns false, and does
 * nothing, when no call of row is open.
 */
bool ps_stack_leave(ps_stack *stack, ps_row *row, uint64_t now, int outcome, ps_call *call);

/*
 * ps_stack_enter() for a VM that tells which of its frames an entry and an exit belong to. With
 * such a VM an exit that is not on top means that calls of another greenlet lie above it. They stay
 * open, and the self time of the call that exits excludes its callees only as far as they are
 * known. Calls above it with the same owner were left without an exit event, and are closed. So is
 * a call whose frame is entered again.
 */
ps_frame *ps_stack_enter_frame(ps_stack *stack, ps_row *row, ps_address frame, ps_address owner);
/* Opens a call that was suspended (suspended_calls.h), or that began before a tracer listened. */
ps_frame *ps_stack_resume_frame(ps_stack *stack, ps_row *row, ps_address frame, ps_address owner);
/*
 * Called when a generator begins in this frame. A generator that was suspended in the same frame
 * was abandoned: it counts as ended when it was last suspended.
 */
void ps_stack_bury(ps_address frame);
/*
 * Returns the row of the call that it closes, or NULL. With PS_OUTCOME_SUSPENDED the call is kept,
 * and *call describes the segment that ends.
 */
ps_row *ps_stack_leave_frame(ps_stack *stack, ps_address frame, uint64_t now, int outcome, ps_call *call);

/* Closes all open calls, because their exits were not seen. They are counted, but not timed. */
void ps_stack_abandon(ps_stack *stack);

/* The stack's fiber stops running, or runs again. The top call gets the time as `waited`. */
void ps_stack_suspend(ps_stack *stack, uint64_t now);
void ps_stack_resume(ps_stack *stack, uint64_t now);
/* The number of open calls. */
static inline uint32_t ps_stack_depth(const ps_stack *stack)
{
    return stack->epoch == ps_stack_epoch ? stack->depth : 0;
}

#endif

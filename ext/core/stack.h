/*
 * A shadow stack for each thread, fiber, task or greenlet: which traced calls are open, since when,
 * and how much of that time their traced callees took.
 *
 * Entries and exits do not always come in pairs. A hook switched on in mid call sees exits of calls
 * it never saw entered: they are ignored. Ruby's SystemStackError unwinds without a single exit: an
 * exit that is not on top closes all calls above its own, as raised and without time of their own.
 * Abandoned fibers never exit: their stack is dropped.
 */
#ifndef PS_STACK_H
#define PS_STACK_H

#include <stdbool.h>
#include <stdint.h>

#include "address.h"
#include "open_calls.h"
#include "rows.h"

enum { PS_OUTCOME_RETURNED, PS_OUTCOME_RAISED, PS_OUTCOME_SUSPENDED };
enum { PS_STACK_DEPTH_MAX = 1 << 16, PS_STACK_SUSPECT_DEPTH = 1024 };

typedef struct ps_frame {
    ps_row *row;
    uint64_t start;    /* ticks */
    uint64_t children; /* ticks that finished callees took */
    uint64_t waited;   /* ticks that the stack was suspended with this call on top */
    uint64_t number;   /* slow.h: gives it an id; 0 while nobody asked */
    uint32_t raises;   /* of the stack, at the entry */
    bool outermost;    /* no activation of the same function is open below it on this stack */
    bool unwinding;    /* it was called while an exception was on its way: from an ensure */
    bool resumed;      /* it was suspended before: ps_stack_resume_frame */
    union {
        struct { /* where the VM tells which frame it is: ps_stack_enter_frame */
            ps_address frame;
            ps_address
                /*
                 * what the VM allocates the frames of this greenlet from; of nothing where it does
                 * not tell
                 */
                owner;
            /* ticks: the start of the whole call, when it was suspended since; else 0 */
            uint64_t first;
            uint64_t earlier; /* ticks of its own before it was suspended */
        };
        /*
         * elsewhere, the caller's: what the entry took the row for, so that the exit need not look
         */
        struct {
            ps_address target, receiver, method;
        } called;
    };
} ps_frame;

typedef struct ps_stack {
    ps_frame *frames;
    uint32_t depth;
    uint32_t capacity;
    uint32_t epoch;      /* of ps_stack_epoch, when its frames were pushed */
    uint32_t untimed;    /* open calls above these that there was no memory for */
    uint64_t suspended;  /* ticks when its fiber stopped running; 0 while it runs */
    uint64_t id;         /* context_id of the probes */
    bool unwinding;      /* an exception is on its way, as far as the VM tells */
    uint32_t raises;     /* exceptions raised on it */
    ps_open_calls *open; /* of latency probes; NULL: there were none */
    ps_address thread;   /* the VM's, where it has fibers: the last one that ran on it */
} ps_stack;

/* What a finished call was. */
typedef struct ps_call {
    uint64_t elapsed, self; /* ticks */
    uint64_t waited;        /* those of self in which its stack was suspended */
    uint64_t number;        /* of its frame */
    uint32_t depth;
    bool resumed; /* it was entered so */
} ps_call;

/* Raised at each attach: stacks of an earlier epoch are empty. */
extern uint32_t ps_stack_epoch;
/* Calls that could not be timed, only counted: no memory for their frame. */
extern uint64_t ps_stack_lost;

ps_stack *ps_stack_new(void);
/* Lets go of the activations that it holds, and of its memory. NULL is fine. */
void ps_stack_free(ps_stack *stack);

/*
 * Opens a call; the caller sets the frame's start as the last thing it does. NULL when there is no
 * memory to time it. real_depth is asked for the VM's own number of frames when the stack grows
 * suspiciously deep.
 */
ps_frame *ps_stack_enter(ps_stack *stack, ps_row *row, uint32_t (*real_depth)(void));
/*
 * Closes the innermost open call of row and adds it to row's counters. False, and nothing done,
 * when none is open.
 */
bool ps_stack_leave(ps_stack *stack, ps_row *row, uint64_t now, int outcome, ps_call *call);

/*
 * The same for a VM that tells which of its frames an entry and an exit belong to. Then an exit
 * that is not on top means that another greenlet's calls lie above it, and they stay: its own time
 * is without that of its callees as far as they are known. Those above it that have the same owner
 * were left without a word, and are closed, as is one whose frame is entered again.
 */
ps_frame *ps_stack_enter_frame(ps_stack *stack, ps_row *row, ps_address frame, ps_address owner);
/* Of a call that was suspended (suspended.h), or that began before anybody listened. */
ps_frame *ps_stack_resume_frame(ps_stack *stack, ps_row *row, ps_address frame, ps_address owner);
/*
 * A generator begins in this frame: one that was suspended in it before was abandoned. It ended
 * when it was last suspended.
 */
void ps_stack_bury(ps_address frame);
/*
 * The row of the call that it closes, or NULL. With PS_OUTCOME_SUSPENDED the call is kept, and
 * *call is the segment.
 */
ps_row *ps_stack_leave_frame(ps_stack *stack, ps_address frame, uint64_t now, int outcome, ps_call *call);

/* Closes all open calls: exits of theirs went unseen. Counted, but not timed. */
void ps_stack_abandon(ps_stack *stack);

/*
 * Its fiber stops running, and runs again. Callees that finish take the time with them; the rest is
 * the top call's.
 */
void ps_stack_suspend(ps_stack *stack, uint64_t now);
void ps_stack_resume(ps_stack *stack, uint64_t now);
/* The number of open calls. */
static inline uint32_t ps_stack_depth(const ps_stack *stack)
{
    return stack->epoch == ps_stack_epoch ? stack->depth : 0;
}

#endif

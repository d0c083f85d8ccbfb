/*
 * Stacks that are read at the tick, on the watcher's thread, without the GIL, and without stopping
 * anybody.
 *
 *   watcher  ps_stacks_tick(): which threads run right now, and what; a stack for each of them, in
 *            a queue
 *   VM       ps_stacks_next(): takes the oldest one, with the GIL, gives it a row for each frame,
 *            and goes on to the next
 *
 * A stack that is taken when a thread can be asked for it is one of a place where threads let go of
 * the GIL, and not of where they spend their time.
 * (docs/decisions/199-stacks-are-read-at-the-tick.md)
 */
#ifndef PS_PYTHON_STACKS_H
#define PS_PYTHON_STACKS_H

#include "compat.h"

#include <stdbool.h>
#include <stdint.h>

#include "copied_code.h"
#include "samples.h"

typedef struct ps_read_stack {
    uint64_t state_id;  /* of the PyThreadState */
    uint64_t thread_id; /* gettid() */
    uint64_t weight;    /* CPU time that it stands for, ns */
    uint64_t request;   /* its number; 0: none, or nobody wants to know */
    bool collects;      /* the garbage collector runs on top of it */
    uint32_t count;
    struct {
        ps_copied_code *code;
        uint32_t line;
    } frame[PS_SAMPLE_FRAMES_MAX]; /* the innermost first */
} ps_read_stack;

#if PS_HAVE_GIL
/* With the GIL. own: the id of the worker's PyThreadState. False: they cannot be read here. */
bool ps_stacks_begin(PyInterpreterState *interpreter, uint64_t own);
/* With the GIL. False: a tick is under way. Try again later. */
bool ps_stacks_end(void);
/*
 * The watcher's: reads the stacks of those that run. True when the VM is to take what is in the
 * queue.
 */
bool ps_stacks_tick(uint64_t now, uint64_t due);
/* The watcher's: what threads used up to now is nobody's. */
void ps_stacks_forget_clocks(void);
/* With the GIL: the oldest one, which stays as it is until the next call; or NULL. */
const ps_read_stack *ps_stacks_next(void);
void ps_stacks_before_fork(void);
void ps_stacks_after_fork(bool is_child);
#else
static inline bool ps_stacks_begin(PyInterpreterState *interpreter, uint64_t own)
{
    return false;
}
static inline bool ps_stacks_end(void)
{
    return true;
}
static inline bool ps_stacks_tick(uint64_t now, uint64_t due)
{
    return false;
}
static inline void ps_stacks_forget_clocks(void) {}
static inline const ps_read_stack *ps_stacks_next(void)
{
    return NULL;
}
static inline void ps_stacks_before_fork(void) {}
static inline void ps_stacks_after_fork(bool is_child) {}
#endif

#endif

/*
 * Stacks that are read at the tick, on the watcher's thread, without the GIL, and without stopping
 * a thread.
 *
 *   watcher  ps_stacks_tick(): finds the threads that run right now, and puts a stack of each into
 *            a queue
 *   VM       ps_stacks_next(): returns the oldest stack, with the GIL; its frames then get rows
 *
 * If threads were asked for their stacks, each stack would be of a place where threads release the
 * GIL, and not of where they spend their time. (docs/decisions/199-stacks-are-read-at-the-tick.md)
 */
#ifndef PS_PYTHON_STACKS_H
#define PS_PYTHON_STACKS_H

#include "compat.h"

#include <stdbool.h>
#include <stdint.h>

#include "features/samples.h"
#include "copied_code.h"

typedef struct ps_read_stack {
    uint64_t state_id;  /* of the PyThreadState */
    uint64_t thread_id; /* gettid() */
    uint64_t weight;    /* CPU time that it stands for, ns */
    uint64_t request;   /* the number of its request; 0: none, or not wanted */
    bool collects;      /* the garbage collector runs on top of it */
    bool is_cut;        /* it has more frames, outside of these */
    uint32_t count;
    struct {
        ps_copied_code *code;
        uint32_t line;
    } frame[PS_SAMPLE_FRAMES_MAX]; /* the innermost first */
} ps_read_stack;

#if PS_HAVE_GIL
/* With the GIL. own: the id of the worker's PyThreadState. False: stacks cannot be read here. */
bool ps_stacks_begin(PyInterpreterState *interpreter, uint64_t own);
/* With the GIL. False: a tick is under way. Try again later. */
bool ps_stacks_end(void);
/*
 * Called on the watcher's thread: reads the stacks of the threads that run. True when the VM is to
 * take the stacks in the queue.
 */
bool ps_stacks_tick(uint64_t now, uint64_t due);
/*
 * Called on the watcher's thread: the CPU time that threads used up to now is charged to no sample.
 */
void ps_stacks_forget_clocks(void);
/* With the GIL: the oldest stack, which stays as it is until the next call; or NULL. */
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

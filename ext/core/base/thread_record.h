/*
 * The record of a native thread, which a tracer's program reads (calls/here.h), and the mark that
 * tells the program that the library itself works on the thread.
 *
 * Some work of the library on a thread of the application makes system calls: switching hooks,
 * handling a fork, taking memory. The thread's shadow stack names a function of the application
 * meanwhile. So such work is between ps_ours_begin() and ps_ours_end(). From the one to the other the
 * record names a constant stack, whose only call is that of a function "(probescope)". The shadow
 * stack stays as it is.
 *
 *   bool ours = ps_ours_begin();
 *   ...
 *   ps_ours_end(ours);
 *
 * The work may contain other such work, fork, and be interrupted by a signal whose handler does such
 * work. If a thread looks up its shadow stack for a traced call, the record names that stack again:
 * then code of the application runs within the work.
 */
#ifndef PS_THREAD_RECORD_H
#define PS_THREAD_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"

struct ps_stack;

/*
 * Programs read the first line of 64 bytes. Its fields are only appended: the ABI of function__here
 * has their places.
 */
typedef struct ps_here {
    struct ps_stack *stack; /* NULL: none, or none that is known */
    uint64_t layout;        /* PS_HERE_LAYOUT */
    const uint32_t *epoch;
    /* Where the VM's threads share native threads (PS_HERE_CHECKED): ps_record_of(). */
    const uint64_t *native_where;
    uint64_t native;
    uint64_t flags;    /* PS_HERE_UNKNOWN */
    uint64_t names;    /* PS_HERE_NAMES */
    uint64_t requests; /* ps_here_listen_to_requests(); 0: nobody listens */
    /* The library's own. */
    struct ps_stack *runs; /* what `stack` is, except while the library works */
    uint32_t used;         /* 1: a thread has it */
} __attribute__((aligned(64))) ps_here;

/*
 * The VM's threads share native threads, and it is not known which one runs on this one. `stack` is
 * always NULL.
 */
enum { PS_HERE_UNKNOWN = 1 };

/*
 * True while a tracer listens to function__here, as last applied. Code that finds the stack of the
 * calling thread, or changes it, then calls ps_here_set().
 */
extern bool ps_here_on;

/*
 * ours: what the record of a thread names while the library works on the thread. at_end: called with
 * the record of a thread that ends. Returns false when the process has no pthread key left. Later calls
 * change nothing.
 */
bool ps_record_prepare(struct ps_stack *ours, void (*at_end)(void *record));
/* The record of the calling thread, or NULL. Also in a signal handler. */
ps_here *ps_record(void);
/* Makes it the record of the calling thread. Returns false without memory. */
bool ps_record_keep(ps_here *here);
/* The calling thread runs on this stack from now on. */
void ps_record_set(ps_here *here, struct ps_stack *stack);
/*
 * The record is about this thread of the VM from now on, which runs on the calling thread. where: the
 * VM stores there on which native thread it runs, and something else while it runs on none. What the
 * record names counts only while *native_where is `native`. So it does not count when the VM's thread
 * has left this native thread. Names no stack until ps_record_set().
 */
void ps_record_of(ps_here *here, const uint64_t *where);
/*
 * The record does not name this stack any more. Any thread. The record's own thread may begin or end
 * work of the library at the same moment.
 */
void ps_record_forget(ps_here *here, const struct ps_stack *stack);
/* The record names no stack until ps_record_set(). ours_too: not even while the library works. */
void ps_record_clear(ps_here *here, bool ours_too);

bool ps_ours_begins(void);
void ps_ours_ends(void);

/* Any thread, and in a signal handler. No lock is needed. Pass the result to ps_ours_end(). */
static inline bool ps_ours_begin(void)
{
    return PS_UNLIKELY(PS_READ(ps_here_on)) && ps_ours_begins();
}

static inline void ps_ours_end(bool begun)
{
    if (PS_UNLIKELY(begun)) ps_ours_ends();
}

#endif

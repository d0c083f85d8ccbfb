/*
 * What looking costs: the time that hooks take of the application's.
 *
 * Each kind of hook counts how often it ran, and about one run in PS_LOOK_EVERY is timed, at no
 * regular distance, because hooks do some things in every so many runs. The mean of those, without
 * what reading the clock takes and with what the VM takes to call a hook of that kind, times the
 * count is the cost. A raw probe fires inside of a hook, so the tracer's part is in it as well.
 * What threads of ours do is read from their own CPU clocks.
 *
 *   ps_look look = ps_look_begin(PS_LOOK_FUNCTION);
 *   ...
 *   ps_look_end(look);
 */
#ifndef PS_LOOKING_H
#define PS_LOOKING_H

#include <stdbool.h>
#include <stdint.h>

#include "atomic.h"
#include "clock.h"

enum { PS_LOOK_EVERY = 64 };

typedef enum ps_look_kind {
    PS_LOOK_FUNCTION, /* an entry or an exit of a call */
    PS_LOOK_LINE,
    PS_LOOK_EXCEPTION, /* a raise, a rescue, and what leads to them */
    PS_LOOK_BACKTRACE,
    PS_LOOK_OBJECT,  /* an allocation */
    PS_LOOK_BRACKET, /* an allocation or a free, while a raise is measured */
    PS_LOOK_COLLECTION,
    PS_LOOK_LOCK, /* a wait for the VM lock */
    PS_LOOK_REQUEST,
    PS_LOOK_LATENCY,
    PS_LOOK_KINDS
} ps_look_kind;

struct ps_looks {
    uint64_t runs;   /* of hooks of this kind */
    uint64_t next;   /* number of the run that is timed next */
    uint64_t timed;  /* of these, how many were timed */
    uint64_t added;  /* of these, how many are in `ticks` */
    uint64_t ticks;  /* that those took, with a reading of the clock */
    uint64_t middle; /* ticks: about half of them take more. What is far above it was interrupted. */
};
extern struct ps_looks ps_looks[PS_LOOK_KINDS];

typedef struct ps_look {
    ps_look_kind kind;
    uint64_t began; /* ticks; 0: this run is not timed */
} ps_look;

/* VM lock held, or a free-threaded VM: then a few runs may be missed. */
static inline ps_look ps_look_begin(ps_look_kind kind)
{
    uint64_t run = PS_READ(ps_looks[kind].runs);
    PS_WRITE(ps_looks[kind].runs, run + 1);
    return (ps_look){kind, PS_UNLIKELY(run >= ps_looks[kind].next) ? ps_ticks() : 0};
}

/* Every run is timed: for what is rare and takes long. */
static inline ps_look ps_look_begin_rare(ps_look_kind kind)
{
    PS_ADD(ps_looks[kind].runs, 1);
    return (ps_look){kind, ps_ticks()};
}

void ps_look_note(ps_look look);

static inline void ps_look_end(ps_look look)
{
    if (PS_UNLIKELY(look.began != 0)) ps_look_note(look);
}

/*
 * Work on a thread of the application that is no hook: a sample, switching hooks, finding names.
 * Any thread.
 */
void ps_looking_add(uint64_t ticks);
/* The same, in ns of CPU time. */
void ps_looking_add_ns(uint64_t ns);

/*
 * What a hook of a kind takes besides what is timed inside of it, in ns: mostly the VM's way to it.
 * bench/looking.rb compares the sum with what the application's work takes with and without a
 * tracer, and these are set so that both agree. Less than 0 where the timed part overlaps with the
 * application's instructions. Called before any hook is in.
 */
void ps_looking_besides(ps_look_kind kind, int ns);

/*
 * Called by each thread of ours at its start and at its end: its whole CPU time counts. False:
 * there are too many.
 */
bool ps_looking_thread_begins(void);
void ps_looking_thread_ends(void);

/* ns since the process started. The watcher's, or with ps_stats_lock. */
uint64_t ps_looking_ns(void);

/* What hooks did between two moments, by their kind. */
typedef struct ps_looked {
    uint64_t runs[PS_LOOK_KINDS], ns[PS_LOOK_KINDS];
} ps_looked;
/* The counters at the earlier of two moments. */
typedef struct ps_looks_before {
    uint64_t runs[PS_LOOK_KINDS], added[PS_LOOK_KINDS], ticks[PS_LOOK_KINDS];
} ps_looks_before;
/* What hooks did since then; and `before` becomes now. One thread for each `before`. */
ps_looked ps_looking_since(ps_looks_before *before);
void ps_looking_after_fork(void);

#endif

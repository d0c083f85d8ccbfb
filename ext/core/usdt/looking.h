/*
 * What looking costs: the CPU time that hooks take from the application.
 *
 * Each kind of hook counts its runs. About one run in PS_LOOK_EVERY is timed. The distance between
 * timed runs varies, because hooks do some work only every so many runs. The cost of a kind is its
 * number of runs times the mean of the timed runs. From that mean the time to read the clock is
 * subtracted, and the time that the VM takes to call such a hook is added. A raw probe fires inside
 * a hook, so the cost includes the tracer's part. The time of our own threads comes from their CPU
 * clocks.
 *
 *   ps_look look = ps_look_begin(PS_LOOK_FUNCTION);
 *   ...
 *   ps_look_end(look);
 */
#ifndef PS_LOOKING_H
#define PS_LOOKING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/clock.h"

enum { PS_LOOK_EVERY = 64 };

typedef enum ps_look_kind {
    PS_LOOK_FUNCTION, /* an entry or an exit of a call */
    PS_LOOK_LINE,
    PS_LOOK_EXCEPTION, /* a raise, a rescue, and the events that lead to them */
    PS_LOOK_BACKTRACE,
    PS_LOOK_OBJECT,  /* an allocation */
    PS_LOOK_BRACKET, /* an allocation or a free while a raise is measured */
    PS_LOOK_COLLECTION,
    PS_LOOK_LOCK, /* a wait for the VM lock */
    PS_LOOK_WAIT, /* the begin or the end of any wait */
    PS_LOOK_REQUEST,
    PS_LOOK_LATENCY,
    PS_LOOK_KINDS
} ps_look_kind;

struct ps_looks {
    uint64_t runs;  /* of hooks of this kind */
    uint64_t next;  /* number of the run that is timed next */
    uint64_t timed; /* how many runs were timed */
    uint64_t added; /* how many timed runs are in `ticks` */
    uint64_t ticks; /* that those runs took, including one reading of the clock each */
    /* Ticks: about half of the runs take more. A run that took far more was interrupted. */
    uint64_t middle;
};
extern struct ps_looks ps_looks[PS_LOOK_KINDS];

typedef struct ps_look {
    ps_look_kind kind;
    uint64_t began; /* ticks; 0: this run is not timed */
} ps_look;

/* Called with the VM lock. In a free-threaded VM there is none, and a few runs may be missed. */
static inline ps_look ps_look_begin(ps_look_kind kind)
{
    uint64_t run = PS_READ(ps_looks[kind].runs);
    PS_WRITE(ps_looks[kind].runs, run + 1);
    return (ps_look){kind, PS_UNLIKELY(run >= ps_looks[kind].next) ? ps_ticks() : 0};
}

/* Times every run, for events that are rare and take long. */
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
 * Adds work on a thread of the application that is not a hook: a sample, switching hooks, finding
 * names. Any thread.
 */
void ps_looking_add(uint64_t ticks);
/* The same, in ns of CPU time. */
void ps_looking_add_ns(uint64_t ns);

/*
 * Sets the ns that a hook of this kind takes outside of its timed part: mostly the VM's call of the
 * hook. bench/looking.rb compares the application's time with and without a tracer; the values are
 * set so that the sum of all costs is the difference. A value is negative where the timed part
 * overlaps with the application's instructions. Called before any hook is in.
 */
void ps_looking_besides(ps_look_kind kind, int ns);
/*
 * Sets the ns that the timed part of a hook of this kind took where the value of
 * ps_looking_besides() was found. Where the timed part takes twice as long, because the machine is
 * slower or its caches are cold, the VM's part counts twice, too: at least half, and at most two and
 * a half times the value. Called before any hook is in.
 */
void ps_looking_usual(ps_look_kind kind, int ns);

/*
 * Each thread of ours calls these at its start and at its end. Its whole CPU time counts. begins()
 * returns false when there are too many threads.
 */
bool ps_looking_thread_begins(void);
void ps_looking_thread_ends(void);

/* ns since the process started. Called by the watcher, or with ps_flush_lock. */
uint64_t ps_looking_ns(void);

/* What hooks did between two moments, by their kind. */
typedef struct ps_looked {
    uint64_t runs[PS_LOOK_KINDS], ns[PS_LOOK_KINDS];
} ps_looked;
/* The counters at the earlier of two moments. */
typedef struct ps_looks_before {
    uint64_t runs[PS_LOOK_KINDS], added[PS_LOOK_KINDS], ticks[PS_LOOK_KINDS];
} ps_looks_before;
/*
 * Returns what hooks did since `before`, and sets `before` to now. Each `before` belongs to one
 * thread.
 */
ps_looked ps_looking_since(ps_looks_before *before);

#endif

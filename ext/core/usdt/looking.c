#include "usdt/looking.h"

#include <pthread.h>

#include "base/fork.h"
#include "base/growth.h"

enum { OUR_THREADS = 4, FAR_ABOVE = 8, BEGINNING = 16 };

struct ps_looks ps_looks[PS_LOOK_KINDS];

static struct {
    int besides_ns[PS_LOOK_KINDS];
    int usual_ns[PS_LOOK_KINDS]; /* 0: besides_ns does not depend on the timed part */
    uint64_t clock_ticks;        /* what reading the clock takes */
    /* The counters at the last sum. What they grow by is added to the sum once. */
    ps_looks_before counted;
    uint64_t ns;
    uint64_t jobs; /* ticks */
    uint64_t counted_jobs;
    uint64_t jobs_ns, counted_jobs_ns; /* of jobs that were timed by a CPU clock */
    struct {
        clockid_t clock;
        uint64_t counted_ns;
        bool runs;
    } threads[OUR_THREADS];
    pthread_mutex_t lock; /* guards `threads` and the sums; no hook takes it */
} looking = {.lock = PTHREAD_MUTEX_INITIALIZER};

static __thread int own_thread = -1;

/* Moves the middle towards the time that a run took. */
static uint64_t moved(uint64_t middle, uint64_t ticks)
{
    uint64_t step = middle / 16 + 1;
    if (ticks > middle) return middle + step;
    return ticks < middle ? middle - step : middle;
}

void ps_look_note(ps_look look)
{
    struct ps_looks *looks = &ps_looks[look.kind];
    uint64_t now = ps_ticks(), ticks = now - look.began;
    looks->next = looks->runs + PS_LOOK_EVERY / 2 + (now >> 3) % PS_LOOK_EVERY;
    bool beginning = looks->timed < BEGINNING;
    if (!looks->timed || (beginning && ticks < looks->middle)) looks->middle = ticks;
    PS_ADD(looks->timed, 1);
    /*
     * The first runs only find the usual time. An interrupted run among them would count for more
     * than all later ones.
     */
    if (beginning) return;
    /* A run that was interrupted, or whose thread lost its CPU, tells nothing about the others. */
    if (ticks > looks->middle * FAR_ABOVE) ticks = looks->middle;
    looks->middle = moved(looks->middle, ticks);
    PS_ADD(looks->ticks, ticks);
    PS_ADD(looks->added, 1);
}

void ps_looking_add(uint64_t ticks)
{
    PS_FETCH_ADD(looking.jobs, ticks);
}

void ps_looking_add_ns(uint64_t ns)
{
    PS_FETCH_ADD(looking.jobs_ns, ns);
}

void ps_looking_besides(ps_look_kind kind, int ns)
{
    looking.besides_ns[kind] = ns;
}

void ps_looking_usual(ps_look_kind kind, int ns)
{
    looking.usual_ns[kind] = ns;
}

/*
 * Returns the median distance of two readings. The minimum would be wrong: a CPU that does both at
 * once gives 1 tick now and then, where 25 are usual.
 */
static uint64_t clock_ticks(void)
{
    enum { READINGS = 63 };
    uint64_t apart[READINGS];
    for (int i = 0; i < READINGS; i++) {
        uint64_t before = ps_ticks(), ticks = ps_ticks() - before;
        int at = i;
        for (; at > 0 && apart[at - 1] > ticks; at--) apart[at] = apart[at - 1];
        apart[at] = ticks;
    }
    return apart[READINGS / 2];
}

bool ps_looking_thread_begins(void)
{
    pthread_mutex_lock(&looking.lock);
    for (int i = 0; i < OUR_THREADS && own_thread < 0; i++)
        if (!looking.threads[i].runs &&
            pthread_getcpuclockid(pthread_self(), &looking.threads[i].clock) == 0) {
            looking.threads[i].counted_ns = ps_clock_read(CLOCK_THREAD_CPUTIME_ID);
            looking.threads[i].runs = true;
            own_thread = i;
        }
    pthread_mutex_unlock(&looking.lock);
    return own_thread >= 0;
}

/* Called with the lock. */
static void count_thread(int i)
{
    struct timespec t;
    if (!looking.threads[i].runs || clock_gettime(looking.threads[i].clock, &t) != 0) return;
    uint64_t now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    looking.ns += now - looking.threads[i].counted_ns;
    looking.threads[i].counted_ns = now;
}

void ps_looking_thread_ends(void)
{
    if (own_thread < 0) return;
    pthread_mutex_lock(&looking.lock);
    count_thread(own_thread);
    looking.threads[own_thread].runs = false;
    pthread_mutex_unlock(&looking.lock);
    own_thread = -1;
}

/*
 * Returns the mean ticks of the runs that were timed since then, because the cost of hooks changes.
 * When few runs were timed, returns the mean of all.
 */
static uint64_t mean_ticks(ps_look_kind kind, uint64_t added, uint64_t ticks)
{
    enum { ENOUGH = 16 };
    if (added >= ENOUGH) return ticks / added;
    added = PS_READ(ps_looks[kind].added);
    return added ? PS_READ(ps_looks[kind].ticks) / added : PS_READ(ps_looks[kind].middle);
}

/* Returns the ns that this many runs of a kind took outside of the timed part, which took `inside`. */
static int64_t besides(ps_look_kind kind, uint64_t runs, uint64_t inside)
{
    int64_t ns = (int64_t)runs * looking.besides_ns[kind];
    if (!looking.usual_ns[kind]) return ns;
    int64_t scaled = (int64_t)inside * looking.besides_ns[kind] / looking.usual_ns[kind];
    if (scaled < ns / 2) return ns / 2;
    return scaled > ns * 5 / 2 ? ns * 5 / 2 : scaled;
}

/* Returns the ns that this many runs of a kind took. */
static uint64_t worth(ps_look_kind kind, uint64_t runs, uint64_t mean)
{
    uint64_t inside = ps_ticks_to_ns(mean > looking.clock_ticks ? runs * (mean - looking.clock_ticks) : 0);
    int64_t ns = (int64_t)inside + besides(kind, runs, inside);
    return ns > 0 ? (uint64_t)ns : 0;
}

/* Called with the lock. */
static ps_looked looked_since(ps_looks_before *before)
{
    ps_looked looked;
    if (!looking.clock_ticks) looking.clock_ticks = clock_ticks();
    for (int kind = 0; kind < PS_LOOK_KINDS; kind++) {
        uint64_t added = ps_growth(PS_READ(ps_looks[kind].added), &before->added[kind]);
        uint64_t ticks = ps_growth(PS_READ(ps_looks[kind].ticks), &before->ticks[kind]);
        looked.runs[kind] = ps_growth(PS_READ(ps_looks[kind].runs), &before->runs[kind]);
        looked.ns[kind] = worth(kind, looked.runs[kind], mean_ticks(kind, added, ticks));
    }
    return looked;
}

ps_looked ps_looking_since(ps_looks_before *before)
{
    pthread_mutex_lock(&looking.lock);
    ps_looked looked = looked_since(before);
    pthread_mutex_unlock(&looking.lock);
    return looked;
}

uint64_t ps_looking_ns(void)
{
    pthread_mutex_lock(&looking.lock);
    ps_looked looked = looked_since(&looking.counted);
    for (int kind = 0; kind < PS_LOOK_KINDS; kind++) looking.ns += looked.ns[kind];
    uint64_t jobs = PS_READ(looking.jobs);
    looking.ns += ps_ticks_to_ns(jobs - looking.counted_jobs);
    looking.counted_jobs = jobs;
    looking.ns += ps_growth(PS_READ(looking.jobs_ns), &looking.counted_jobs_ns);
    for (int i = 0; i < OUR_THREADS; i++) count_thread(i);
    uint64_t ns = looking.ns;
    pthread_mutex_unlock(&looking.lock);
    return ns;
}

static void after_fork_in_child(void)
{
    pthread_mutex_init(&looking.lock, NULL);
    for (int i = 0; i < OUR_THREADS; i++) looking.threads[i].runs = false;
    looked_since(&looking.counted);
    looking.counted_jobs = looking.jobs;
    looking.counted_jobs_ns = looking.jobs_ns;
    own_thread = -1;
}
PS_FORK_STEP(PS_FORK_LOOKING, .in_child = after_fork_in_child)

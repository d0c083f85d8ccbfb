#include "watcher.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "atomic.h"
#include "clock.h"
#include "info.h"
#include "latency_probes.h"
#include "looking.h"
#include "overhead.h"
#include "process_context.h"
#include "probe.h"
#include "samples.h"
#include "stats.h"

#define STACK_BYTES (128 * 1024)
/*
 * The thread-local variables of all libraries lie on the stack, too. Where they leave no room on
 * it, it is doubled, up to this.
 */
#define STACK_BYTES_MOST (64 * 1024 * 1024)
/* The VM that was asked to switch is in a hurry for so long after it last made progress. */
#define HURRY_FOR_NS 100000000u
/*
 * Nothing tells whether a VM that was woken came to what it was asked for before it waits again: it
 * is woken at each look while it is in a hurry, and then once in a while.
 */
#define WAKE_AGAIN_NS 1000000000u
/*
 * A tracer that leaves lets go of its probes one by one. The kernel takes 70 ms for each, and now
 * and then 2 s on a busy machine: then a flush may come in between, which the command notices and
 * says.
 */
#define LEAVES_FOR_NS  1000000000u
#define LEAVING_FOR_NS 3000000000u /* all of it, where one after the other leaves */
_Static_assert(PS_PROBE_COUNT <= 30,
               "ps_watcher_wanted() has a bit for each probe, and two words are no set of probes");
enum { SWITCHING = 0x80000000, RECHECK = 0xc0000000 };

static struct {
    /* Immutable while the thread runs. */
    const ps_vm *vm;
    pthread_t thread;
    bool running, paused;
    uint32_t stop; /* to end it: a futex */
    /* Shared with the VM. */
    uint32_t wanted;
    /* the probes whose hooks are in and no others; SWITCHING while that changes, RECHECK before */
    uint32_t applied;
    uint32_t covered;     /* the probes whose hooks were in when the VM last finished switching */
    uint64_t applied_ns;  /* when that was */
    uint32_t marked;      /* those probes, where no flush came since */
    uint64_t progress_ns; /* when the VM last did a slice of what is under way */
    /* The thread's own. */
    uint32_t raised;                    /* the semaphores, as last seen */
    uint16_t listeners[PS_PROBE_COUNT]; /* their values, as last seen */
    /* when a tracer let go of a probe, last and first; 0: none is leaving */
    uint64_t left_ns, leaving_ns;
    bool heard;          /* stats__done has told of a flush since they changed */
    uint64_t changed_ns; /* when a semaphore last changed */
    uint64_t asked_ns;   /* since when the VM is asked to switch; 0: it is not */
    uint64_t woken_ns;   /* when it was last woken */
    bool told;           /* probescope_info says that the hooks for that change are in */
    uint64_t next_flush_ns, next_sample_ns;
    uint64_t asleep_ns;  /* when it last went to sleep */
    bool goes_first;     /* it has a CPU at once when it wakes up */
    uint32_t late_ticks; /* one after the other */
    uint64_t names_ns;   /* since when a flush that is due waits for names; 0: none does */
    bool flushing, sampling;
    uint32_t random;
} watcher;

uint32_t ps_watcher_wanted(void)
{
    return PS_READ_ACQUIRE(watcher.wanted);
}

uint32_t ps_watcher_switching(void)
{
    /* Where all is applied the VM was asked for something else, such as latency probes. */
    if (PS_READ(watcher.applied) != ps_watcher_wanted()) PS_EXCHANGE(watcher.applied, SWITCHING);
    return ps_watcher_wanted();
}

/*
 * The process may end before the first flush. Then the last one tells what was counted since these
 * hooks came in.
 */
static void mark(uint32_t probes)
{
    if (!ps_stats_try_lock()) return;
    bool unheard = !PS_READ(watcher.flushing);
    if (unheard) ps_stats_mark();
    ps_stats_unlock();
    PS_WRITE(watcher.marked, unheard ? probes : 0);
}

void ps_watcher_applied(uint32_t probes)
{
    if (PS_EXCHANGE(watcher.covered, probes) != probes) PS_ADD(probescope_info.switches, 1);
    PS_WRITE(watcher.applied_ns, ps_monotonic_ns());
    mark(probes);
    /* A change of the coverage that came while the VM switched is not applied. */
    uint32_t before = PS_READ(watcher.applied);
    while (before != RECHECK && !PS_REPLACE(watcher.applied, before, probes)) {
    }
}

void ps_watcher_progress(void)
{
    PS_WRITE(watcher.progress_ns, ps_monotonic_ns());
}

void ps_watcher_goes_first(void)
{
    watcher.goes_first = true;
}

void ps_watcher_recheck(void)
{
    PS_WRITE_RELEASE(watcher.applied, RECHECK);
}

/*
 * While hooks for one more tracer come in, no flush may begin its interval. What others count is
 * fired later, none of it is lost.
 */
static bool may_flush(void)
{
    return !(watcher.wanted & ~PS_READ_ACQUIRE(watcher.covered));
}

static uint32_t read_semaphores(void)
{
    uint32_t raised = 0;
    for (int i = 0; i < PS_PROBE_COUNT; i++) raised |= (uint32_t)(ps_semaphores[i] != 0) << i;
    return raised;
}

/*
 * A tracer that leaves has let go of the probes of its rows when it still hears stats__done: an
 * interval that ended then would have no rows. So no flush ends one until it has let go of that as
 * well. What others count is fired later, none of it is lost.
 */
static void look_who_leaves(uint64_t now)
{
    bool is_over = false;
    for (int i = 0; i < PS_PROBE_COUNT; i++) {
        uint16_t listeners = PS_READ(ps_semaphores[i]);
        if (listeners < watcher.listeners[i]) {
            watcher.left_ns = now;
            if (!watcher.leaving_ns) watcher.leaving_ns = now;
            is_over |= i == PS_PROBE_STATS__DONE;
        }
        watcher.listeners[i] = listeners;
    }
    if (is_over || now - watcher.left_ns > LEAVES_FOR_NS) watcher.leaving_ns = 0;
}

static bool somebody_leaves(uint64_t now)
{
    return PS_ENABLED(STATS__DONE) && watcher.leaving_ns && now - watcher.leaving_ns < LEAVING_FOR_NS;
}

/*
 * As may_flush(), of this moment: firing the rows takes a while, in which a tracer may attach all
 * its probes, or begin to leave. A tracer that is not gone in time holds up nobody.
 */
static bool is_covered(void)
{
    bool left = false;
    for (int i = 0; i < PS_PROBE_COUNT && !watcher.leaving_ns; i++)
        left |= PS_READ(ps_semaphores[i]) < watcher.listeners[i];
    return !left && !(read_semaphores() & ~PS_READ_ACQUIRE(watcher.covered) & ~ps_overhead_out);
}

/* Within 10 % of the period, so that samples do not march in step with the program. */
static uint64_t jittered(uint64_t period)
{
    watcher.random ^= watcher.random << 13;
    watcher.random ^= watcher.random >> 17;
    watcher.random ^= watcher.random << 5;
    return period - period / 10 + watcher.random % (period / 5);
}

/* Has probescope_info say when the semaphores last changed and when the hooks for that were in. */
static void tell_of_change(void)
{
    if (watcher.told || watcher.wanted != PS_READ_ACQUIRE(watcher.applied)) return;
    uint64_t applied = PS_READ(watcher.applied_ns);
    ps_info_hooks(watcher.changed_ns, applied > watcher.changed_ns ? applied : watcher.changed_ns);
    watcher.told = true;
}

/*
 * Since the VM last did something about what it is asked for. It is noted by another thread, a
 * moment after `now` perhaps.
 */
static uint64_t since_progress(uint64_t now)
{
    uint64_t progress = PS_READ(watcher.progress_ns);
    if (progress < watcher.changed_ns) progress = watcher.changed_ns;
    if (progress < watcher.asked_ns) progress = watcher.asked_ns;
    return progress < now ? now - progress : 0;
}

/* A VM that waits may do so for as long as it likes when nothing is to come in. */
static void wake_when_due(uint64_t now)
{
    bool comes_in = !may_flush() || ps_latency_changed();
    uint64_t since = since_progress(now);
    if (!watcher.vm->wake || !comes_in || since < PS_HURRY_NS) return;
    if (since > HURRY_FOR_NS && now - watcher.woken_ns < WAKE_AGAIN_NS) return;
    if (watcher.vm->wake()) watcher.woken_ns = now;
}

static void ask_to_switch(uint64_t now)
{
    if (!watcher.asked_ns) watcher.asked_ns = now;
    watcher.vm->request(PS_REQUEST_SWITCH);
    wake_when_due(now);
}

/* Takes hooks out when they take too much. */
static void limit_overhead(uint64_t now)
{
    uint32_t out = ps_overhead_look(watcher.wanted, now);
    if (!out) return;
    /* What was counted so far, before its rows go. */
    if (watcher.flushing) {
        ps_stats_flush_all();
        watcher.next_flush_ns = now + PS_FLUSH_NS;
    }
    ps_overhead_take_out(out, ps_monotonic_ns());
    PS_WRITE_RELEASE(watcher.wanted, watcher.wanted & ~out);
}

static void look(uint64_t now)
{
    uint32_t semaphores = read_semaphores(), raised = semaphores & ~ps_overhead_listened(semaphores);
    PS_WRITE(probescope_info.watcher_ticks, probescope_info.watcher_ticks + 1);
    PS_WRITE_RELEASE(watcher.wanted, raised);
    look_who_leaves(now);
    if (semaphores != watcher.raised) {
        watcher.raised = semaphores;
        watcher.changed_ns = now;
        watcher.told = watcher.heard = false;
        ps_info_hooks(now, 0);
    }
    tell_of_change();
    if (raised || raised != PS_READ(watcher.applied) || probescope_info.watcher_ticks % 20 == 0)
        ps_info_refresh();
    if (raised != PS_READ_ACQUIRE(watcher.applied) || ps_latency_changed()) {
        ps_overhead_begin();
        ask_to_switch(now);
        return;
    }
    watcher.asked_ns = 0;
    if ((raised || ps_latency_any_hooked()) && watcher.vm->needs_upkeep())
        watcher.vm->request(PS_REQUEST_UPKEEP);
    if (!ps_overhead_limit || !raised) return;
    /* Not before the tracer's interval has begun: it would know nothing of what goes. */
    if (watcher.heard || now - watcher.changed_ns > PS_OVERHEAD_GRACE_NS) limit_overhead(now);
    else ps_overhead_begin();
}

/*
 * Is the VM about to switch hooks, or in the middle of it? Not when it sleeps or sits in a long
 * call: no hurry then.
 */
static bool is_switching(uint64_t now)
{
    return watcher.asked_ns && since_progress(now) < HURRY_FOR_NS;
}

/* Is it to look again soon? */
static bool is_in_hurry(uint64_t now)
{
    return is_switching(now) || watcher.names_ns;
}

/*
 * A tracer's interval begins at the first flush, so that waits until all its probes are attached
 * (they come one by one: nothing changed for a tick) and the hooks are in. A VM that does not come
 * to it, however long, has no interval: what it did meanwhile was not seen.
 */
static bool may_begin(uint64_t now)
{
    return now - watcher.changed_ns >= PS_POLL_NS && watcher.wanted == PS_READ_ACQUIRE(watcher.applied);
}

/*
 * A flush that is due waits for the names of its rows, not for long: an idle VM comes to nothing.
 * Nothing else waits for them.
 */
static bool waits_for_names(uint64_t now)
{
    if (!ps_stats_wait_for_names()) return false;
    if (!watcher.names_ns) watcher.names_ns = now;
    watcher.vm->request(PS_REQUEST_UPKEEP);
    return now - watcher.names_ns < PS_NAMES_NS;
}

static void flush_when_due(uint64_t now)
{
    if (!ps_stats_wanted()) {
        watcher.names_ns = 0;
        PS_WRITE(watcher.flushing, false);
        return;
    }
    if (!watcher.flushing) {
        if (!may_begin(now)) return;
        ps_stats_begin();
        PS_WRITE(watcher.flushing, true);
        watcher.next_flush_ns = now;
    }
    if (now < watcher.next_flush_ns || !may_flush() || somebody_leaves(now) || waits_for_names(now)) return;
    if (!ps_stats_flush_covered(watcher.names_ns && ps_stats_wait_for_names(), is_covered)) return;
    watcher.names_ns = watcher.leaving_ns = 0;
    watcher.heard = PS_ENABLED(STATS__DONE) && may_begin(now);
    watcher.next_flush_ns += PS_FLUSH_NS;
    if (watcher.next_flush_ns < now) watcher.next_flush_ns = now + PS_FLUSH_NS;
}

/*
 * A VM whose stacks this thread reads at the tick is not read at one that came late: this thread
 * waited for a CPU then, and got it where another one began to wait. Those stacks are no choice of
 * the clock's. Another tick comes soon; on a machine where all of them are late one counts.
 *
 * A thread that goes first and has slept for a while waits for a system call alone, in which a
 * kernel that is not preemptible takes no CPU away. Who made the call still stands there when it is
 * over. To leave that tick out would leave out long system calls. So the tick after a late one is
 * not so soon that this thread would not have slept for a while.
 */
static bool is_late(uint64_t now)
{
    enum { LATE_NS = 50000, LATE_BY_A_CALL_NS = 500000, SLEPT_NS = 4000000, SOON_NS = 6000000, MOST = 5 };
    bool waited_for_a_call = watcher.goes_first && watcher.next_sample_ns > watcher.asleep_ns + SLEPT_NS;
    uint64_t most = waited_for_a_call ? LATE_BY_A_CALL_NS : LATE_NS;
    bool late =
        watcher.vm->leaves_out_late_ticks && now - watcher.next_sample_ns > most && watcher.late_ticks < MOST;
    watcher.late_ticks = late ? watcher.late_ticks + 1 : 0;
    if (late) watcher.next_sample_ns = now + jittered(SOON_NS);
    return late;
}

static void sample_when_due(uint64_t now)
{
    bool wanted = PS_ENABLED(SAMPLE) || PS_ENABLED(SAMPLE__STATS) || PS_ENABLED(SAMPLE__FRAME);
    if (wanted && !watcher.sampling) {
        ps_samples_begin();
        watcher.next_sample_ns = now;
    }
    if (!wanted && watcher.sampling) ps_samples_end();
    watcher.sampling = wanted;
    if (!wanted || now < watcher.next_sample_ns || is_late(now)) return;
    if (watcher.vm->sample ? watcher.vm->sample(now, watcher.next_sample_ns) : ps_samples_tick())
        watcher.vm->request(PS_REQUEST_SAMPLE);
    watcher.next_sample_ns =
        now + jittered(watcher.vm->sample_period ? watcher.vm->sample_period() : PS_SAMPLE_NS);
}

/*
 * Sleeps until the moment given, or until the watcher is to stop: false then. In one system call,
 * without a lock: it is most of what a sample costs.
 */
static bool sleep_until(uint64_t ns)
{
    struct timespec when = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    while (!PS_READ_ACQUIRE(watcher.stop)) {
        long woken = syscall(SYS_futex, &watcher.stop, FUTEX_WAIT_BITSET_PRIVATE, 0, &when, NULL,
                             FUTEX_BITSET_MATCH_ANY); /* absolute, CLOCK_MONOTONIC */
        if (woken < 0 && errno == ETIMEDOUT) return true;
    }
    return false;
}

static void *watch(void *unused)
{
    (void)unused;
    ps_looking_thread_begins();
    uint64_t next_look = ps_monotonic_ns(), now, next;
    do {
        now = ps_monotonic_ns();
        if (now >= next_look) {
            look(now);
            flush_when_due(now);
            next_look = now + (is_in_hurry(now) ? PS_HURRY_NS : PS_POLL_NS);
        }
        sample_when_due(now);
        /* It looks around when it is up anyway, where there is no hurry: to wake up is dear. */
        bool at_ticks = watcher.sampling && (watcher.next_sample_ns < next_look || !is_in_hurry(now));
        next = at_ticks ? watcher.next_sample_ns : next_look;
        uint64_t next_step = watcher.vm->step ? watcher.vm->step(now) : 0;
        if (next_step && next_step < next) next = next_step;
        watcher.asleep_ns = ps_monotonic_ns();
    } while (sleep_until(next));
    ps_looking_thread_ends();
    return NULL;
}

static int start_thread(void)
{
    watcher.stop = 0;
    watcher.sampling = watcher.goes_first = false;
    watcher.random = (uint32_t)ps_monotonic_ns() | 1;

    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread inherits it */
    int error = EINVAL;
    for (size_t bytes = STACK_BYTES; error == EINVAL && bytes <= STACK_BYTES_MOST; bytes *= 2) {
        pthread_attr_setstacksize(&attributes, bytes);
        error = pthread_create(&watcher.thread, &attributes, watch, NULL);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    watcher.running = !error;
    if (!error) pthread_setname_np(watcher.thread, PS_PROVIDER);
    ps_info_flag(PS_INFO_WATCHER, !error);
    return error;
}

/* The child has the parent's memory and none of its threads. */
static void after_fork_in_child(void)
{
    if (!watcher.running && !watcher.paused) return;
    watcher.paused = false;
    ps_info_after_fork();
    ps_looking_after_fork(); /* the next one asks it */
    if (ps_overhead_after_fork() && watcher.vm->cover_again) watcher.vm->cover_again();
    ps_stats_after_fork();
    ps_samples_after_fork();
    ps_process_context_after_fork();
    /*
     * Who listens to the parent listens here. Said at once: the child may end before the new thread
     * has looked around.
     */
    if (watcher.flushing && may_flush()) {
        ps_stats_flush();
        watcher.next_flush_ns = ps_monotonic_ns() + PS_FLUSH_NS;
    }
    start_thread();
}

int ps_watcher_start(const ps_vm *vm)
{
    static bool registered;
    if (watcher.running || watcher.paused) return 0;
    watcher.vm = vm;
    /* Raised semaphores are news to it: after a stop the hooks are out. */
    PS_WRITE(watcher.wanted, 0);
    watcher.raised = 0;
    memset(watcher.listeners, 0, sizeof(watcher.listeners));
    watcher.told = watcher.flushing = false;
    watcher.asked_ns = watcher.left_ns = watcher.leaving_ns = 0;
    /* A child that was forked while no watcher ran has the parent's number still. */
    ps_info_after_fork();
    if (!registered) registered = pthread_atfork(NULL, NULL, after_fork_in_child) == 0;
    return start_thread();
}

static void end_thread(void)
{
    PS_WRITE_RELEASE(watcher.stop, 1);
    syscall(SYS_futex, &watcher.stop, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    pthread_join(watcher.thread, NULL);
}

void ps_watcher_stop(void)
{
    if (!watcher.running && !watcher.paused) return;
    if (watcher.running) end_thread();
    ps_info_flag(PS_INFO_WATCHER, 0);
    if (watcher.flushing) ps_stats_flush_all();
    else if (ps_stats_wanted() && (read_semaphores() & ~ps_overhead_out) == watcher.marked)
        ps_stats_flush_since_mark();
    /*
     * Last: a child that another thread forks until here has its own watcher and sound tables
     * (after_fork_in_child()).
     */
    watcher.running = watcher.paused = false;
    ps_overhead_listened(0);
}

void ps_watcher_pause(void)
{
    if (!watcher.running) return;
    end_thread();
    watcher.running = false;
    watcher.paused = true;
}

void ps_watcher_resume(void)
{
    if (!watcher.paused) return;
    watcher.paused = false;
    start_thread();
}

bool ps_watcher_is_running(void)
{
    return watcher.running;
}

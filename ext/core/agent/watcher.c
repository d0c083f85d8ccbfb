#include "agent/watcher.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/overhead.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/fork.h"
#include "base/random.h"
#include "calls/here.h"
#include "features/latency.h"
#include "features/samples.h"
#include "table/flush.h"
#include "usdt/info.h"
#include "usdt/looking.h"
#include "usdt/probe.h"

#define STACK_BYTES (128 * 1024)
/*
 * The thread-local variables of all libraries lie on the thread's stack, too. Where they leave no
 * room, the stack is doubled, up to this.
 */
#define STACK_BYTES_MOST (64 * 1024 * 1024)
/* How long the watcher stays in a hurry after the VM's last progress with a switch. */
#define HURRY_FOR_NS 100000000u
/*
 * Nothing tells whether a VM that was woken handled the request before it began to wait again. So
 * it is woken at each look while the watcher is in a hurry, and after that at this interval.
 */
#define WAKE_AGAIN_NS 1000000000u
/*
 * A tracer that leaves detaches its probes one by one. The kernel takes 70 ms for each, and now and
 * then 2 s on a busy machine. In that case a flush may come in between: the command notices that
 * and says so.
 */
#define LEAVES_FOR_NS 1000000000u
/* The upper limit where tracers leave one after the other. */
#define LEAVING_FOR_NS 3000000000u
/* What `applied` is while it is no set of probes. */
#define SWITCHING (UINT64_C(1) << 62)
#define RECHECK   (UINT64_C(1) << 63)
_Static_assert(PS_PROBE_COUNT <= 62, "a set of probes has a bit for each, and two are left");

static struct {
    /* Immutable while the thread runs. */
    const ps_vm *vm;
    pthread_t thread;
    bool running, paused;
    uint32_t stop; /* 1 to end the thread; a futex */
    /* Shared with the VM. */
    ps_probe_set wanted;
    /*
     * The probes whose hooks are in, exactly. SWITCHING while that changes; RECHECK when it has to.
     */
    ps_probe_set applied;
    ps_probe_set covered; /* the probes whose hooks were in when the VM last finished switching */
    uint64_t applied_ns;  /* when the VM last finished switching */
    ps_probe_set marked;  /* the probes in `covered`, if no flush has come since; else 0 */
    uint64_t progress_ns; /* when the VM last did a slice of its switching */
    /* The thread's own. */
    ps_probe_set raised;                /* the raised semaphores, as last seen */
    uint16_t listeners[PS_PROBE_COUNT]; /* the values of the semaphores, as last seen */
    /* When a tracer last and first detached from a probe. 0: none is leaving. */
    uint64_t left_ns, leaving_ns;
    bool heard;          /* stats__done has fired since a semaphore changed */
    uint64_t changed_ns; /* when a semaphore last changed */
    uint64_t asked_ns;   /* since when the VM is asked to switch; 0: it is not asked */
    uint64_t woken_ns;   /* when the VM was last woken */
    bool told;           /* probescope_info shows the time at which the hooks for that change were in */
    uint64_t next_flush_ns, next_sample_ns, next_round_ns;
    uint64_t asleep_ns;  /* when the thread last went to sleep */
    bool goes_first;     /* the thread gets a CPU at once when it wakes up */
    uint32_t late_ticks; /* number of late ticks in a row */
    bool flushing, sampling;
    uint32_t random;
} watcher;

ps_probe_set ps_watcher_wanted(void)
{
    return PS_READ_ACQUIRE(watcher.wanted);
}

ps_probe_set ps_watcher_switching(void)
{
    /* When all hooks are as wanted, the VM was asked for something else, such as latency probes. */
    if (PS_READ(watcher.applied) != ps_watcher_wanted()) PS_EXCHANGE(watcher.applied, SWITCHING);
    return ps_watcher_wanted();
}

/*
 * The process may end before the first flush. Then its last flush fires what was counted since
 * these hooks came in.
 */
static void mark(ps_probe_set probes)
{
    if (!ps_flush_try_lock()) return;
    bool unheard = !PS_READ(watcher.flushing);
    if (unheard) ps_flush_mark();
    ps_flush_unlock();
    PS_WRITE(watcher.marked, unheard ? probes : 0);
}

void ps_watcher_applied(ps_probe_set probes)
{
    if (PS_EXCHANGE(watcher.covered, probes) != probes) PS_ADD(probescope_info.switches, 1);
    PS_WRITE(watcher.applied_ns, ps_monotonic_ns());
    mark(probes);
    /* A RECHECK that came while the VM switched stays: the switch did not apply that change. */
    ps_probe_set before = PS_READ(watcher.applied);
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
 * While the hooks of one more tracer are not all in, no flush may begin its interval. What others
 * count is fired later. None of it is lost.
 */
static bool may_flush(void)
{
    return !(watcher.wanted & ~PS_READ_ACQUIRE(watcher.covered));
}

/*
 * A tracer that leaves may have detached from the probes of rows, and still listen to stats__done.
 * An interval that ended then would have no rows. So no flush ends an interval until the tracer has
 * detached from stats__done as well. What others count is fired later. None of it is lost.
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
 * Like may_flush(), but reads the semaphores now. Firing the rows takes a while, in which a tracer
 * may attach all its probes or begin to leave. A tracer that takes too long to leave does not hold
 * up the flush.
 */
static bool is_covered(void)
{
    bool left = false;
    for (int i = 0; i < PS_PROBE_COUNT && !watcher.leaving_ns; i++)
        left |= PS_READ(ps_semaphores[i]) < watcher.listeners[i];
    return !left && !(ps_probes_listened() & ~PS_READ_ACQUIRE(watcher.covered) & ~ps_overhead_out);
}

/*
 * Reports in probescope_info when the semaphores last changed and when the hooks for that were in.
 */
static void tell_of_change(void)
{
    if (watcher.told || watcher.wanted != PS_READ_ACQUIRE(watcher.applied)) return;
    uint64_t applied = PS_READ(watcher.applied_ns);
    ps_info_hooks(watcher.changed_ns, applied > watcher.changed_ns ? applied : watcher.changed_ns);
    watcher.told = true;
}

/*
 * The time since the VM last made progress with its request. Another thread notes the progress, so
 * it may be a moment after `now`.
 */
static uint64_t since_progress(uint64_t now)
{
    uint64_t progress = PS_READ(watcher.progress_ns);
    if (progress < watcher.changed_ns) progress = watcher.changed_ns;
    if (progress < watcher.asked_ns) progress = watcher.asked_ns;
    return progress < now ? now - progress : 0;
}

/* Wakes a waiting VM only when hooks are to come in. */
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

static bool needs_upkeep(void)
{
    for (const ps_hooks *const *each = watcher.vm->hooks; *each; each++)
        if ((*each)->needs_upkeep && (*each)->needs_upkeep()) return true;
    return false;
}

/* Takes hooks out when they take too much time. */
static void limit_overhead(uint64_t now)
{
    ps_probe_set out = ps_overhead_look(watcher.wanted, now);
    if (!out) return;
    /* Flushes first, because what is taken out is not fired any more. */
    if (watcher.flushing) {
        ps_flush();
        watcher.next_flush_ns = now + PS_FLUSH_NS;
    }
    ps_overhead_take_out(out, ps_monotonic_ns());
    PS_WRITE_RELEASE(watcher.wanted, watcher.wanted & ~out);
}

static void begin_round(uint64_t now)
{
    if (!PS_ENABLED(FUNCTION__HERE)) return;
    ps_here_tell_again();
    watcher.next_round_ns = now + PS_HERE_ROUND_NS;
}

/*
 * A second tracer of a probe does not change its semaphore, because the kernel counts places and not
 * tracers. So the threads tell again and again where their records are. The interval of that tracer
 * begins with a flush, which may come before the next round is due. So there is a round shortly
 * before each flush. A tracer that came after that round hears of the one after the flush.
 */
static void begin_round_when_due(uint64_t now)
{
    bool flush_comes = PS_READ(watcher.flushing) && now + 2 * PS_POLL_NS > watcher.next_flush_ns;
    if (flush_comes || now >= watcher.next_round_ns) begin_round(now);
}

static void look(uint64_t now)
{
    ps_probe_set semaphores = ps_probes_listened(), raised = semaphores & ~ps_overhead_listened(semaphores);
    PS_WRITE(probescope_info.watcher_ticks, probescope_info.watcher_ticks + 1);
    PS_WRITE_RELEASE(watcher.wanted, raised);
    look_who_leaves(now);
    begin_round_when_due(now);
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
    if ((raised || ps_latency_any_hooked()) && needs_upkeep()) watcher.vm->request(PS_REQUEST_UPKEEP);
    if (!ps_overhead_limit || !raised) return;
    /*
     * Not before the tracer's interval has begun. Otherwise the tracer would not learn of what is
     * taken out.
     */
    if (watcher.heard || now - watcher.changed_ns > PS_OVERHEAD_GRACE_NS) limit_overhead(now);
    else ps_overhead_begin();
}

/*
 * True while the VM is about to switch hooks, or in the middle of it. False when it sleeps or runs
 * a long call: then the watcher need not hurry.
 */
static bool is_switching(uint64_t now)
{
    return watcher.asked_ns && since_progress(now) < HURRY_FOR_NS;
}

/*
 * A tracer's interval begins at the first flush. So that flush waits until all probes of the tracer
 * are attached and the hooks are in. Probes attach one by one; they count as attached when nothing
 * has changed for a tick. While the VM does not switch its hooks, there is no interval, because
 * events are not seen.
 */
static bool may_begin(uint64_t now)
{
    return now - watcher.changed_ns >= PS_POLL_NS && watcher.wanted == PS_READ_ACQUIRE(watcher.applied);
}

static void flush_when_due(uint64_t now)
{
    if (!ps_flush_wanted()) {
        PS_WRITE(watcher.flushing, false);
        return;
    }
    if (!watcher.flushing) {
        if (!may_begin(now)) return;
        ps_flush_begin();
        PS_WRITE(watcher.flushing, true);
        watcher.next_flush_ns = now;
    }
    if (now < watcher.next_flush_ns || !may_flush() || somebody_leaves(now)) return;
    if (!ps_flush_covered(is_covered)) return;
    begin_round(now);
    watcher.leaving_ns = 0;
    watcher.heard = PS_ENABLED(STATS__DONE) && may_begin(now);
    watcher.next_flush_ns += PS_FLUSH_NS;
    if (watcher.next_flush_ns < now) watcher.next_flush_ns = now + PS_FLUSH_NS;
}

/*
 * Some VMs have this thread read the stacks of other threads at the tick. Then a late tick is left
 * out. It was late because this thread waited for a CPU, and it got the CPU at the moment when
 * another thread began to wait. Stacks at such a moment are not a random choice. Another tick
 * follows soon. On a machine where all ticks are late, one of them counts.
 *
 * A watcher that goes first, and has slept for a while, waits for a CPU only during a system call
 * of another thread: a kernel that is not preemptible takes no CPU away in a system call. When the
 * call is over, that thread still has the stack of the call. Leaving out such ticks would leave out
 * long system calls, so for them the limit of lateness is higher. For that the watcher must have
 * slept, so the tick after a late one does not come too soon.
 */
static bool is_late(uint64_t now)
{
    enum { LATE_NS = 50000, LATE_BY_A_CALL_NS = 500000, SLEPT_NS = 4000000, SOON_NS = 6000000, MOST = 5 };
    bool waited_for_a_call = watcher.goes_first && watcher.next_sample_ns > watcher.asleep_ns + SLEPT_NS;
    uint64_t most = waited_for_a_call ? LATE_BY_A_CALL_NS : LATE_NS;
    bool late =
        watcher.vm->leaves_out_late_ticks && now - watcher.next_sample_ns > most && watcher.late_ticks < MOST;
    watcher.late_ticks = late ? watcher.late_ticks + 1 : 0;
    if (late) watcher.next_sample_ns = now + ps_jittered(SOON_NS, &watcher.random);
    return late;
}

static void sample_when_due(uint64_t now)
{
    bool wanted = ps_any_enabled(ps_samples_feature.probes);
    if (wanted && !watcher.sampling) {
        ps_samples_begin();
        watcher.next_sample_ns = now;
    }
    if (!wanted && watcher.sampling) ps_samples_end();
    watcher.sampling = wanted;
    if (!wanted || now < watcher.next_sample_ns || is_late(now)) return;
    if (watcher.vm->sample ? watcher.vm->sample(now, watcher.next_sample_ns) : ps_samples_tick())
        watcher.vm->request(PS_REQUEST_SAMPLE);
    uint64_t period = watcher.vm->sample_period ? watcher.vm->sample_period() : PS_SAMPLE_NS;
    watcher.next_sample_ns = now + ps_jittered(period, &watcher.random);
}

/*
 * Sleeps until the given moment, and returns true. Returns false when the watcher is to stop. It
 * takes one system call and no lock, because sleeping is most of the cost of a sample.
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
            next_look = now + (is_switching(now) ? PS_HURRY_NS : PS_POLL_NS);
        }
        sample_when_due(now);
        /*
         * Waking up is expensive. So the watcher looks when it is awake for a tick anyway, unless
         * the VM is switching hooks.
         */
        bool at_ticks = watcher.sampling && (watcher.next_sample_ns < next_look || !is_switching(now));
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
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread inherits the mask */
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

static void cover_again_in_child(void)
{
    if (ps_overhead_after_fork() && watcher.vm->cover_again) watcher.vm->cover_again();
}
PS_FORK_STEP(PS_FORK_OVERHEAD, .in_child = cover_again_in_child)

/* The child has the parent's memory and none of its threads. */
static void after_fork_in_child(void)
{
    if (!watcher.running && !watcher.paused) return;
    watcher.paused = false;
    /*
     * Tracers that listen to the parent listen to the child. Flush at once: the child may end
     * before the new thread's first look.
     */
    if (watcher.flushing && may_flush()) {
        ps_flush();
        watcher.next_flush_ns = ps_monotonic_ns() + PS_FLUSH_NS;
    }
    start_thread();
}
PS_FORK_STEP(PS_FORK_WATCHER, .in_child = after_fork_in_child)

int ps_watcher_start(const ps_vm *vm)
{
    if (watcher.running || watcher.paused) return 0;
    int error = ps_fork_init();
    if (error) return error;
    watcher.vm = vm;
    /* After a stop the hooks are out, so raised semaphores have to count as changes. */
    PS_WRITE(watcher.wanted, 0);
    watcher.raised = 0;
    memset(watcher.listeners, 0, sizeof(watcher.listeners));
    watcher.told = watcher.flushing = false;
    watcher.asked_ns = watcher.left_ns = watcher.leaving_ns = 0;
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
    if (watcher.flushing) ps_flush();
    else if (ps_flush_wanted() && (ps_probes_listened() & ~ps_overhead_out) == watcher.marked)
        ps_flush_since_mark();
    /*
     * Last. A child that another thread forks before this gets its own watcher and sound tables
     * from after_fork_in_child().
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

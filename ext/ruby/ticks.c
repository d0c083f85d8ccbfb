/*
 * Only our handler sees the signal: a thread that waits uses no CPU time, and a thread in a system
 * call gets the signal when the call is over (cpu_timer.h). The signal is SIGURG, if it has no
 * handler. Code that resets all signals, in a child before an exec() for example, makes SIGURG
 * ignored. Any other free signal would end the process there.
 *
 * What the handler may read. rb_profile_frames() reads the frames of the calling thread, which do
 * not change meanwhile. A collection on another thread moves objects that frames point to. So the
 * hook of GC_ENTER waits until no handler is inside, and no handler goes in until GC_EXIT. The
 * thread with the VM lock runs the collection; if its tick comes meanwhile, the hook of GC_EXIT
 * takes that sample.
 *
 * The objects in the ring are marked. An entry belongs to a handler until it is ready.
 *
 * The handler runs on the stack that Ruby has for SIGSEGV, because the stack of a thread or fiber
 * may be nearly full. Ruby frees the signal stack while the thread ends. At the event before that,
 * the thread deletes its own timer: if the timer had run out, its signal is delivered before that
 * call returns.
 *
 * Before 3.3 no event comes before a thread ends by an exception or Thread#kill. Its native thread
 * waits 3 s for another Ruby thread and then frees the signal stack. The watcher keeps the timer of
 * a native thread that has stood still from running out as soon as the thread goes on (postpone()).
 * What the VM still reads of the ended thread is marked.
 */
#include "ticks.h"

#include <ruby/debug.h>
#include <ruby/thread.h>
#include <ruby/version.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/watcher.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/cpu_timer.h"
#include "base/memory.h"
#include "base/seccomp.h"
#include "base/thread_record.h"
#include "table/flush.h"
#include "usdt/looking.h"
#include "hooks.h"
#include "thread_events.h"
#include "vm_words.h"

/* Exported, but in no header for extensions. */
int ruby_thread_has_gvl_p(void);
int ruby_native_thread_p(void);

enum { SIGNAL = SIGURG, THREADS_MAX = 4096, RING = 256, PROBE = THREADS_MAX };
#define LATE_NS 100000000u
#define LOOK_NS 50000000u
/*
 * A native thread takes some 50 us from the end of its wait to its own end, by estimate. The wait
 * is 3 s (THREAD_CACHE_TIME in Ruby's thread_pthread.c).
 */
#define ENDING_NS    500000u
#define STOOD_FOR_NS 500000000u

struct thread {
    int tid;   /* 0: free */
    int timer; /* the kernel's number for it */
    uint32_t random;
    bool is_new;         /* it began while ticks were on, */
    uint64_t first_ns;   /* and its first sample weighs this; 0: it has had its first sample */
    uint64_t charged_ns; /* its CPU time up to its last sample */
    uint64_t due_ns;     /* its CPU time at the next sample */
    VALUE ruby;          /* before 3.3: the Thread that the native thread runs, or ran last */
    VALUE request;       /* that of its current fiber, while stats__by_request is on; else nil */
    uint64_t stood_ns;   /* the watcher's: its CPU time at the last look whether it stands still */
};

struct entry {
    uint32_t ready;
    ps_tick tick;
};

static struct {
    bool on;
    enum ps_seen seen;
    bool asked;  /* the watcher is to find out `seen` */
    bool failed; /* a thread has no timer */
    uint32_t probed;
    uint32_t generation; /* of the threads' timers */
    pthread_mutex_t arming;
    uint32_t threads; /* places in use, with free ones between them */
    struct thread thread[THREADS_MAX];
    bool by_request; /* somebody listens to stats__by_request */
    /* JIT code has not written its position: a job that is asked for at once finds the line */
    bool lines_late;
    struct entry *ring;
    uint32_t head, tail;
    uint64_t oldest_ns;    /* when the watcher first saw the oldest stack in the ring */
    uint64_t next_look_ns; /* when the watcher looks again which threads stand still */
    uint64_t missed_ns;    /* CPU time without a sample */
    /* The TracePoint that brackets collections. */
    VALUE collections;
    uint32_t inside; /* handlers that read a stack */
    uint32_t in_gc;
    struct thread *collects; /* its tick came while it collected */
} ticks = {.arming = PTHREAD_MUTEX_INITIALIZER, .collections = Qnil};

/*
 * The generation in which this thread was armed. Not for the handler: the first access may
 * allocate.
 */
static __thread uint32_t armed_in;

static uint64_t thread_cpu_ns(void)
{
    return ps_clock_read(CLOCK_THREAD_CPUTIME_ID);
}

static uint32_t next_random(struct thread *thread)
{
    uint32_t random = thread->random;
    random ^= random << 13;
    random ^= random >> 17;
    random ^= random << 5;
    return thread->random = random;
}

/*
 * Within 10 % of the period, so that samples do not keep step with the program. Counted from when
 * the last sample was due: the kernel looks at CPU clocks only some 250 times a second.
 */
static void start_next(struct thread *thread, uint64_t cpu)
{
    uint64_t period = PS_SAMPLE_NS - PS_SAMPLE_NS / 10 + next_random(thread) % (PS_SAMPLE_NS / 5);
    thread->due_ns += period;
    if (thread->due_ns <= cpu) thread->due_ns = cpu + period;
    ps_cpu_timer_start(thread->timer, thread->due_ns);
}

/*
 * Are there frames? A fiber that has ended removes its stack before another fiber runs, in three
 * stores. Between the stores rb_profile_frames() would read past the end.
 */
bool ps_has_frames(void)
{
    enum { LEAST_FRAME = 7 * sizeof(void *) };
    VALUE self = rb_thread_current();
    void **thread = RTYPEDDATA_DATA(self);
    if (thread[THREAD_SELF] != (void *)self) return false;
    void **context = thread[THREAD_EC];
    if (!context || context[EC_THREAD] != (void *)thread) return false;
    uintptr_t stack = (uintptr_t)context[EC_STACK], frame = (uintptr_t)context[EC_FRAME];
    uintptr_t size = (uintptr_t)context[EC_STACK_SIZE] * sizeof(VALUE);
    return stack && frame > stack && frame - stack <= size - LEAST_FRAME;
}

void ps_tick_read(ps_tick *tick)
{
    int count = rb_profile_frames(0, PS_SAMPLE_FRAMES_MAX + 1, tick->frames, tick->lines);
    tick->is_cut = count > PS_SAMPLE_FRAMES_MAX;
    tick->count = tick->is_cut ? PS_SAMPLE_FRAMES_MAX : count > 0 ? (uint32_t)count : 0;
}

/* Called on the thread itself. */
static void take(struct thread *thread, bool in_gc, uint64_t cpu)
{
    uint64_t weight = thread->first_ns ? thread->first_ns : cpu - thread->charged_ns;
    thread->first_ns = 0;
    uint32_t head = PS_READ_ACQUIRE(ticks.head);
    do {
        if (head - PS_READ_ACQUIRE(ticks.tail) >= RING) {
            thread->charged_ns = cpu;
            PS_FETCH_ADD(ticks.missed_ns, weight);
            return;
        }
    } while (!PS_REPLACE(ticks.head, head, head + 1));
    struct entry *entry = &ticks.ring[head % RING];
    ps_tick *tick = &entry->tick;
    ps_tick_read(tick);
    tick->in_gc = in_gc;
    tick->request = PS_READ(thread->request);
    tick->thread_id = (uint64_t)thread->tid;
    tick->weight = weight;
    thread->charged_ns = cpu;
    bool has_line = !tick->count || tick->lines[0] > 0;
    PS_WRITE_RELEASE(entry->ready, 1);
    if (!has_line && PS_READ(ticks.lines_late) && ps_samples_want_lines()) ps_ask_for_sample();
}

/*
 * Sequentially consistent: either a handler that goes in sees the collection, or the collection
 * sees the handler. The same holds for the end of ticks.
 */
static bool go_in(void)
{
    __atomic_fetch_add(&ticks.inside, 1, __ATOMIC_SEQ_CST);
    bool may =
        __atomic_load_n(&ticks.on, __ATOMIC_SEQ_CST) && !__atomic_load_n(&ticks.in_gc, __ATOMIC_SEQ_CST);
    if (!may) __atomic_fetch_sub(&ticks.inside, 1, __ATOMIC_SEQ_CST);
    return may;
}

static void go_out(void)
{
    __atomic_fetch_sub(&ticks.inside, 1, __ATOMIC_SEQ_CST);
}

/* A handler takes some us, and longer when its thread has no CPU. */
static void wait_until_all_are_out(void)
{
    for (int i = 0; __atomic_load_n(&ticks.inside, __ATOMIC_SEQ_CST); i++)
        if (i > 1000) nanosleep(&(struct timespec){0, 20000}, NULL);
}

static void tick(struct thread *thread, uint64_t cpu)
{
    if (!ruby_native_thread_p()) return;
    bool has_lock = ruby_thread_has_gvl_p() != 0;
    start_next(thread, cpu);
    if (has_lock && rb_during_gc()) {
        PS_WRITE(ticks.collects, thread);
    } else if (go_in()) {
        if (!rb_during_gc() && ps_has_frames()) take(thread, false, cpu);
        go_out();
    }
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
    int error = errno;
    bool ours = ps_ours_begin();
    int index = info->si_value.sival_int;
    if (info->si_code == SI_TIMER && index == PROBE) PS_FETCH_ADD(ticks.probed, 1);
    if (info->si_code == SI_TIMER && index >= 0 && index < THREADS_MAX && PS_READ(ticks.on)) {
        struct thread *thread = &ticks.thread[index];
        /* Not for a late signal of a deleted timer, whose place another thread has now. */
        if (PS_READ(thread->tid) == (int)syscall(SYS_gettid)) {
            /*
             * Measured by the CPU clock: the kernel often takes the CPU away where it has just sent
             * a signal.
             */
            uint64_t began = thread_cpu_ns();
            tick(thread, began);
            ps_looking_add_ns(thread_cpu_ns() - began);
        }
    }
    ps_ours_end(ours);
    errno = error;
}

static void on_collection(VALUE tracepoint, void *unused)
{
    if (rb_tracearg_event_flag(rb_tracearg_from_tracepoint(tracepoint)) == RUBY_INTERNAL_EVENT_GC_ENTER) {
        __atomic_store_n(&ticks.in_gc, 1, __ATOMIC_SEQ_CST);
        bool ours = ps_ours_begin();
        wait_until_all_are_out();
        ps_ours_end(ours);
        return;
    }
    __atomic_store_n(&ticks.in_gc, 0, __ATOMIC_SEQ_CST);
    struct thread *thread = PS_EXCHANGE(ticks.collects, NULL);
    if (!thread || !PS_READ(ticks.on) || PS_READ(thread->tid) != (int)ps_thread_id()) return;
    /* As in tick(): the end of ticks waits until this stack is read. */
    if (!go_in()) return;
    if (ps_has_frames()) take(thread, true, thread_cpu_ns());
    go_out();
}

/* With `arming` held. */
static struct thread *find(int tid)
{
    for (uint32_t i = 0; i < ticks.threads; i++)
        if (ticks.thread[i].tid == tid) return &ticks.thread[i];
    return NULL;
}

static struct thread *free_place(void)
{
    struct thread *thread = find(0);
    if (!thread && ticks.threads < THREADS_MAX) thread = &ticks.thread[ticks.threads++];
    return thread;
}

/*
 * How often the kernel looks at CPU clocks. A timer's signal comes with the first look after the
 * timer has run out.
 */
static uint64_t kernel_tick_ns(void)
{
    struct timespec tick;
    if (clock_getres(CLOCK_MONOTONIC_COARSE, &tick) != 0 || tick.tv_sec || tick.tv_nsec < 100000)
        return 4000000;
    return (uint64_t)tick.tv_nsec;
}

/*
 * The first sample is due at a random time within a period.
 *
 * A thread that begins meanwhile may end within the period. Of many such threads each has its share
 * if the first sample of a thread weighs a whole period, and what the thread uses after its last
 * sample is in none. The period is then a number of the kernel's ticks, and the sample is due at the
 * beginning of one of them, so that its signal comes at any time in the period alike.
 */
static void start(struct thread *thread, int tid, bool is_new)
{
    int timer = thread ? ps_cpu_timer_create(tid, SIGNAL, (int)(thread - ticks.thread)) : -1;
    if (timer < 0) {
        PS_WRITE(ticks.failed, true);
        return;
    }
    uint64_t kernel_tick = kernel_tick_ns();
    uint64_t in_period = (PS_SAMPLE_NS + kernel_tick / 2) / kernel_tick;
    if (!in_period) in_period = 1;
    thread->timer = timer;
    thread->request = Qnil;
    thread->random = ((uint32_t)ps_monotonic_ns() ^ (uint32_t)tid * 2654435761u) | 1;
    thread->charged_ns = ps_clock_try(ps_cpu_clock_of(tid));
    thread->is_new = is_new;
    thread->first_ns = is_new ? in_period * kernel_tick : 0;
    uint64_t random = next_random(thread);
    uint64_t first = is_new ? random % in_period * kernel_tick : random % PS_SAMPLE_NS;
    if (!first) first = 1; /* 0 would stop the timer */
    thread->due_ns = thread->charged_ns + first;
    PS_WRITE_RELEASE(thread->tid, tid);
    ps_cpu_timer_start_in(timer, first);
}

/* ruby: the Thread. Before 3.3, called with the VM lock. */
static void arm(int tid, VALUE ruby, bool is_new)
{
    bool ours = ps_ours_begin();
    pthread_mutex_lock(&ticks.arming);
    struct thread *thread = ticks.on ? find(tid) : NULL;
    if (ticks.on && !thread) {
        thread = free_place();
        start(thread, tid, is_new);
    }
    if (thread) thread->ruby = ruby;
    pthread_mutex_unlock(&ticks.arming);
    ps_ours_end(ours);
}

/* Called on the thread itself, which ends, or is about to run another Ruby thread. */
static void disarm_this(void)
{
    if (!PS_READ(ticks.on)) return;
    armed_in = 0;
    bool ours = ps_ours_begin();
    pthread_mutex_lock(&ticks.arming);
    struct thread *thread = find((int)ps_thread_id());
    if (thread) {
        ps_cpu_timer_delete(thread->timer);
        if (!thread->is_new) PS_FETCH_ADD(ticks.missed_ns, thread_cpu_ns() - thread->charged_ns);
        PS_WRITE(thread->tid, 0);
    }
    pthread_mutex_unlock(&ticks.arming);
    ps_ours_end(ours);
}

#ifdef HAVE_RB_INTERNAL_THREAD_SPECIFIC_KEY_CREATE
static void *main_ractor;

/*
 * Native threads of other Ractors run several Ruby threads, and at times none: then there is no
 * stack to read.
 */
static bool is_of_main_ractor(const rb_internal_thread_event_data_t *data)
{
    void **thread = RTYPEDDATA_DATA(data->thread);
    return thread[THREAD_RACTOR] == main_ractor;
}

static void know_main_ractor(void)
{
    void **thread = RTYPEDDATA_DATA(rb_thread_current());
    main_ractor = thread[THREAD_RACTOR];
}

/* Called on the thread itself, which begins, or goes on. */
static void arm_this(void)
{
    uint32_t generation = PS_READ(ticks.generation);
    if (PS_LIKELY(armed_in == generation) || !PS_READ(ticks.on)) return;
    armed_in = generation;
    arm((int)ps_thread_id(), Qnil, true);
}

void ps_ticks_on_thread_event(rb_event_flag_t event, const rb_internal_thread_event_data_t *data)
{
    if (!PS_READ(ticks.on)) return;
    if (event == (RUBY_INTERNAL_THREAD_EVENT_EXITED)) disarm_this();
    else if (event == (RUBY_INTERNAL_THREAD_EVENT_RESUMED) && is_of_main_ractor(data)) arm_this();
}

static void hook_threads(void)
{
    ps_thread_events_use(PS_EVENTS_FOR_TICKS, true);
}

static void unhook_threads(void)
{
    ps_thread_events_use(PS_EVENTS_FOR_TICKS, false);
}

/* Nothing to postpone: EXITED comes before the VM releases the thread, however the thread ends. */
static void postpone(uint64_t now) {}
#else
/*
 * Unlike the events above, these come for threads of the main Ractor alone. In 3.2 the events above
 * come when the thread may be gone.
 */
static void on_begin(rb_event_flag_t event, VALUE data, VALUE self, ID method, VALUE class)
{
    if (PS_READ(ticks.on)) arm((int)ps_thread_id(), rb_thread_current(), true);
    ps_ticks_enter(Qnil);
}

static void on_end(rb_event_flag_t event, VALUE data, VALUE self, ID method, VALUE class)
{
    disarm_this();
}

static void know_main_ractor(void) {}

static bool hooked;

static void hook_threads(void)
{
    if (hooked) return;
    hooked = true;
    rb_add_event_hook(on_begin, RUBY_EVENT_THREAD_BEGIN, Qnil);
    rb_add_event_hook(on_end, RUBY_EVENT_THREAD_END, Qnil);
}

static void unhook_threads(void)
{
    if (!hooked) return;
    hooked = false;
    rb_remove_event_hook(on_begin);
    rb_remove_event_hook(on_end);
}

/* With `arming` held. */
static void look_at(struct thread *thread)
{
    uint64_t cpu = ps_clock_try(ps_cpu_clock_of(thread->tid));
    if (!cpu) { /* it has ended */
        ps_cpu_timer_delete(thread->timer);
        PS_WRITE(thread->tid, 0);
    } else if (cpu == thread->stood_ns && thread->due_ns < cpu + ENDING_NS) {
        thread->due_ns = cpu + ENDING_NS;
        ps_cpu_timer_start_in(thread->timer, ENDING_NS);
    }
    thread->stood_ns = cpu;
}

/* Called on the watcher's thread. */
static void postpone(uint64_t now)
{
    if (now < ticks.next_look_ns) return;
    ticks.next_look_ns = now + STOOD_FOR_NS;
    pthread_mutex_lock(&ticks.arming);
    for (uint32_t i = 0; i < ticks.threads; i++)
        if (ticks.thread[i].tid) look_at(&ticks.thread[i]);
    pthread_mutex_unlock(&ticks.arming);
}
#endif

static bool is_ours(void)
{
    struct sigaction now;
    return sigaction(SIGNAL, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_signal;
}

/* Makes the handler ours. False when the application has one. */
static bool take_signal(void)
{
    struct sigaction now,
        ours = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    if (is_ours()) return true;
    if (sigaction(SIGNAL, NULL, &now) != 0 || now.sa_handler != SIG_DFL) return false;
    sigfillset(&ours.sa_mask);
    return sigaction(SIGNAL, &ours, NULL) == 0;
}

static const char *refusal(void)
{
    static const char NO_TIMERS[] =
        "charged at the next check: the kernel gives no timers, or not for so many threads";
    const char *forced = getenv("PROBESCOPE_SAMPLES");
    if (forced && strcmp(forced, "checks") == 0)
        return "charged at the next check: PROBESCOPE_SAMPLES=checks";
    if (RUBY_API_VERSION_CODE < 30100 || RUBY_API_VERSION_CODE >= 30500)
        return "charged at the next check: ticks were not tried on this version of Ruby";
    /*
     * Before Ruby 3.3 compiled code leaves an older frame's position in a new frame, and Ruby looks
     * for its line outside of the method.
     */
    if (RUBY_API_VERSION_CODE < 30300 && ps_jit_is_on())
        return "charged at the next check: compiled code has no lines before Ruby 3.3";
    if (!ps_gc_hooks_allowed())
        return "charged at the next check: this version of Ruby crashes when collections are hooked and "
               "Ractors exist";
    if (!ps_has_frames())
        return "charged at the next check: stacks are not where this version of Ruby has them";
    /* A native thread that runs no Ruby thread has no stack to read. */
    if (ps_threads_share()) return "charged at the next check: threads share native ones (RUBY_MN_THREADS)";
    if (ps_seccomp_may_end_us())
        return "charged at the next check: a seccomp filter may end a process that makes timers "
               "(PROBESCOPE_SECCOMP=errno: it does not)";
    if (ticks.seen == PS_SEEN_NO_TIMER) return NO_TIMERS;
    if (ticks.seen == PS_SEEN_BY_CALLS)
        return "charged at the next check: the kernel would let system calls see a timer";
    if (!take_signal()) return "charged at the next check: the application handles SIGURG";
    if (ticks.failed) return NO_TIMERS;
    if (!ticks.ring) ticks.ring = ps_memory_take(RING * sizeof(*ticks.ring));
    if (!ticks.ring) return "charged at the next check: no memory for stacks";
    return NULL;
}

const char *ps_ticks_begin(bool *later)
{
    *later = false;
    if (ticks.on) return NULL;
    const char *reason = refusal();
    if (reason) return reason;
    if (ticks.seen == PS_SEEN_UNKNOWN) {
        PS_WRITE_RELEASE(ticks.asked, true);
        *later = true;
        return NULL;
    }
    if (NIL_P(ticks.collections))
        PS_KEEP(ticks.collections,
                rb_tracepoint_new(0, RUBY_INTERNAL_EVENT_GC_ENTER | RUBY_INTERNAL_EVENT_GC_EXIT,
                                  on_collection, NULL));
    rb_tracepoint_enable(ticks.collections);
    know_main_ractor();
    pthread_mutex_lock(&ticks.arming);
    ticks.generation += ticks.generation + 1 ? 1 : 2; /* never 0 */
    /* Before 3.3 a signal handler may not ask for a job. */
    ticks.lines_late = RUBY_API_VERSION_CODE >= 30300 && ps_jit_is_on();
    PS_WRITE(ticks.on, true);
    pthread_mutex_unlock(&ticks.arming);
    hook_threads();
    VALUE list = rb_funcall(rb_cThread, rb_intern("list"), 0);
    for (long i = 0; i < RARRAY_LEN(list); i++) {
        int tid = ps_native_id(RARRAY_AREF(list, i));
        if (tid) arm(tid, RARRAY_AREF(list, i), false);
    }
    return NULL;
}

/*
 * With `arming` held. Each native thread remembers its place, as requests begin and fibers switch
 * often.
 */
static struct thread *place_of_this(int tid)
{
    static __thread uint32_t place;
    if (place < ticks.threads && ticks.thread[place].tid == tid) return &ticks.thread[place];
    struct thread *thread = find(tid);
    if (thread) place = (uint32_t)(thread - ticks.thread);
    return thread;
}

void ps_ticks_enter(VALUE request)
{
    if (!ticks.by_request) return;
    pthread_mutex_lock(&ticks.arming);
    struct thread *thread = place_of_this((int)ps_thread_id());
    if (thread) PS_WRITE(thread->request, request);
    pthread_mutex_unlock(&ticks.arming);
}

/*
 * Called on the fiber that the thread switches to. The handler cannot look up the request itself:
 * it may have interrupted a change of the table of the fiber's variables.
 */
static void on_fiber_switch(rb_event_flag_t event, VALUE data, VALUE self, ID method, VALUE class)
{
    if (ps_is_main_ractor()) ps_ticks_enter(ps_requests_of(rb_thread_current()));
}

/* With the VM lock, so that the thread stays in the same request until this is done. */
static void look_up_request(VALUE ruby)
{
    int tid = ps_native_id(ruby);
    pthread_mutex_lock(&ticks.arming);
    struct thread *thread = tid ? find(tid) : NULL;
    if (thread) PS_WRITE(thread->request, ticks.by_request ? ps_requests_of(ruby) : Qnil);
    pthread_mutex_unlock(&ticks.arming);
}

void ps_ticks_by_request(bool wanted)
{
    if (!wanted && !ticks.by_request) return;
    if (wanted && !ticks.by_request) rb_add_event_hook(on_fiber_switch, RUBY_EVENT_FIBER_SWITCH, Qnil);
    if (!wanted) rb_remove_event_hook(on_fiber_switch);
    ticks.by_request = wanted;
    VALUE list = rb_funcall(rb_cThread, rb_intern("list"), 0);
    for (long i = 0; i < RARRAY_LEN(list); i++) look_up_request(RARRAY_AREF(list, i));
}

/* Called on any thread. */
static void delete_timers(void)
{
    pthread_mutex_lock(&ticks.arming);
    __atomic_store_n(&ticks.on, false, __ATOMIC_SEQ_CST);
    for (uint32_t i = 0; i < ticks.threads; i++) {
        if (ticks.thread[i].tid) ps_cpu_timer_delete(ticks.thread[i].timer);
        PS_WRITE(ticks.thread[i].tid, 0);
    }
    ticks.threads = 0;
    pthread_mutex_unlock(&ticks.arming);
}

void ps_ticks_end(void)
{
    PS_WRITE(ticks.asked, false);
    PS_WRITE(ticks.failed, false);
    ps_ticks_by_request(false);
    delete_timers();
    /* SIG_DFL ignores a late signal. */
    if (is_ours()) sigaction(SIGNAL, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    unhook_threads();
    if (!NIL_P(ticks.collections)) {
        rb_tracepoint_disable(ticks.collections);
        ticks.collections = Qnil;
    }
    __atomic_store_n(&ticks.in_gc, 0, __ATOMIC_SEQ_CST);
}

/* Samples are taken at the next check from now on; refusal() returns the reason. */
void ps_ticks_forbid(void)
{
    if (!ticks.on) return;
    ps_ticks_end();
    ps_watcher_recheck();
}

bool ps_ticks_are_on(void)
{
    return PS_READ(ticks.on);
}

static void count_missed(void)
{
    uint64_t missed = PS_EXCHANGE(ticks.missed_ns, 0);
    PS_ADD(ps_samples_missed, missed / PS_SAMPLE_NS);
    PS_FETCH_ADD(ticks.missed_ns, missed % PS_SAMPLE_NS);
}

bool ps_ticks_look(uint64_t now)
{
    if (PS_READ_ACQUIRE(ticks.asked)) {
        PS_WRITE(ticks.asked, false);
        enum ps_seen seen = ps_cpu_timer_seen(SIGNAL, PROBE, &ticks.probed);
        if (!is_ours()) return false; /* the listener has left meanwhile */
        ticks.seen = seen == PS_SEEN_UNKNOWN ? PS_SEEN_BY_CALLS : seen;
        ps_watcher_recheck();
        return false;
    }
    if (!PS_READ(ticks.on)) return false;
    if (PS_READ(ticks.failed) || !is_ours()) { /* the application has a handler for the signal now */
        delete_timers();
        ps_watcher_recheck();
        return false;
    }
    count_missed();
    postpone(now);
    uint32_t waiting = PS_READ_ACQUIRE(ticks.head) - PS_READ(ticks.tail);
    if (!waiting) {
        ticks.oldest_ns = 0;
        return false;
    }
    if (!ticks.oldest_ns) ticks.oldest_ns = now;
    if (!PS_ENABLED(SAMPLE) && waiting < RING / 4 && now - ticks.oldest_ns < LATE_NS) return false;
    ticks.oldest_ns = 0;
    return true;
}

uint64_t ps_ticks_look_again_ns(void)
{
    bool soon = PS_READ_ACQUIRE(ticks.head) - PS_READ(ticks.tail) >= RING / 16 || PS_ENABLED(SAMPLE);
    return soon || !PS_READ(ticks.on) ? PS_SAMPLE_NS : LOOK_NS;
}

bool ps_ticks_next(ps_tick *to)
{
    if (!ticks.ring) return false;
    uint32_t tail = ticks.tail;
    struct entry *entry = &ticks.ring[tail % RING];
    if (tail == PS_READ_ACQUIRE(ticks.head) || !PS_READ_ACQUIRE(entry->ready)) return false;
    const ps_tick *from = &entry->tick;
    memcpy(to, from, offsetof(ps_tick, frames) + from->count * sizeof(*from->frames));
    memcpy(to->lines, from->lines, from->count * sizeof(*from->lines));
    PS_WRITE(entry->ready, 0);
    PS_WRITE_RELEASE(ticks.tail, tail + 1);
    return true;
}

void ps_ticks_forget(void)
{
    wait_until_all_are_out();
    ps_memory_give(ticks.ring, RING * sizeof(*ticks.ring));
    ticks.ring = NULL;
    ticks.head = ticks.tail = 0;
}

/* What the VM may still read of a thread, and the stacks in the ring. */
static void each_object(void (*visit)(void *place))
{
    for (uint32_t i = 0; i < PS_READ(ticks.threads); i++)
        if (PS_READ(ticks.thread[i].tid)) {
            visit(&ticks.thread[i].ruby);
            visit(&ticks.thread[i].request);
        }
    for (uint32_t i = ticks.tail; ticks.ring && i != PS_READ_ACQUIRE(ticks.head); i++) {
        struct entry *entry = &ticks.ring[i % RING];
        if (!PS_READ_ACQUIRE(entry->ready)) continue;
        visit(&entry->tick.request);
        for (uint32_t f = 0; f < entry->tick.count; f++) visit(&entry->tick.frames[f]);
    }
}

PS_KEPT(PS_HELD(ticks.collections), PS_HELD_EACH(each_object))

/*
 * The child has none of the timers, and one of the threads. The stacks in the ring are the
 * parent's.
 */
void ps_ticks_after_fork(void)
{
    pthread_mutex_init(&ticks.arming, NULL);
    ticks.inside = ticks.in_gc = 0;
    ticks.collects = NULL;
    memset(ticks.thread, 0, sizeof(ticks.thread[0]) * ticks.threads);
    ticks.threads = 0;
    ticks.missed_ns = ticks.oldest_ns = 0;
    for (uint32_t i = 0; ticks.ring && i < RING; i++) ticks.ring[i].ready = 0;
    ticks.tail = ticks.head;
    ticks.asked = ticks.ring && ticks.seen == PS_SEEN_UNKNOWN;
    if (!ticks.on) return;
    ticks.generation += ticks.generation + 1 ? 1 : 2;
    arm((int)ps_thread_id(), rb_thread_current(), false);
    if (ticks.by_request) ps_ticks_enter(ps_requests_of(rb_thread_current()));
}

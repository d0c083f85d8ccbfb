#include "stacks.h"

#if PS_HAVE_GIL

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "atomic.h"
#include "clock.h"
#include "copied_context.h"
#include "copy.h"
#include "cpu_timer.h"
#include "gil_wait.h"
#include "hooks.h"
#include "last_ran.h"
#include "memory.h"
#include "probe.h"
#include "stats.h"
#include "task_file.h"
#include "thread_id.h"
#include "watcher.h"

enum {
    QUEUE = 32,            /* stacks */
    PAGE = 4096,           /* what is copied of a thread's frames at a time: no page is mapped in part */
    LOOK_AGAIN_NS = 50000, /* between two looks, where the kernel does not tell who had the CPU */
    LATE_NS = 50000,       /* from when the tick was due. A tick that came later was late */
    /* one part in so many of a thread's CPU time is the kernel's: it makes long system calls */
    CALLS_PART = 12,
    CALLS_AGAIN = 20, /* clock ticks (10 ms) of CPU time, after which that is asked for again */
    /* ticks that interrupt such a thread and do not count, since it was met beside this one */
    BESIDE = 8,
    /* from the end of one thread's time on a CPU to the beginning of the tick, at most */
    SWITCH_NS = 20000,
    THREADS_AGAIN_NS = 200000000, /* from one list of the threads to the next, */
    THREAD_AGAIN_NS = 500000,     /* and as much more for each of them. */
    LISTS_SKIPPED = 4,            /* one after the other, where no thread has come */
    /* threads, each of which is looked at in every tick. Where there are more: */
    FEW = 16,
    /* ticks in which a thread did not run, before it is looked at in one of as many */
    IDLE = 16,
    ASKED_MOST = 16,          /* threads that the kernel is asked about in one tick */
    ASKED_RARELY = 4,         /* where another thread was met: in one tick of so many */
    TRIES_TO_MEND = 12,       /* to read the callers of a stack that was torn */
    WAIT_MOST_NS = 100000000, /* for so long a stack is left in the queue */
    /* CPU time that a thread used while no stack of it was read. More is missed */
    CARRIED_MOST_NS = 1000000000
};

struct thread {
    uintptr_t state;
    uint64_t id; /* of that state: no other ever has it */
    clockid_t clock;
    uint64_t charged; /* its CPU time, up to its last stack */
    uint64_t at_tick; /* at the last tick; and in this one: */
    uint64_t before;
    bool unmet; /* it ran since the last tick, and does not run now */
    bool gone;  /* it has no clock any more */
    bool makes_long_calls;
    struct ps_cpu_ticks asked; /* when that was asked for last */
    uint8_t beside;            /* ticks that may interrupt it and do not count */
    uint8_t idle;              /* how often it was looked at since it ran */
    uint32_t listed;           /* in which list it was last */
};

static struct {
    pthread_mutex_t lock; /* the watcher's during a tick; nobody but a fork waits for it */
    PyInterpreterState *interpreter;
    uint64_t own;
    bool on;
    struct thread *thread;
    uint32_t count, capacity, list;
    uint64_t listed_ns;
    uint64_t newest;    /* id of the first state in the last list */
    bool list_is_whole; /* each state in it was that of a thread with a clock */
    uint32_t skipped;   /* lists since then */
    bool any_gone;
    uint32_t tick;
    uint64_t missed_ns;
    ps_read_stack read; /* the last one */
    ps_read_stack torn; /* the one before, which ended too early */
    /* The queue. `taken` is the VM's, the rest is the watcher's. */
    ps_read_stack *queue;
    uint64_t put, taken;
    bool taking;       /* the VM has the oldest one under its hands */
    uint64_t since_ns; /* when the oldest one was put there, about */
} stacks = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The frames of one thread as they are copied. */
struct reader {
    uintptr_t page; /* 0: none */
    char bytes[PAGE];
};

/* What is known of a thread's state. 0 where it is gone. */
struct head {
    uintptr_t next;
    uint64_t id;
    unsigned long native_id;
};

static bool read_head(struct head *head, uintptr_t state)
{
    PyThreadState copy;
    if (!ps_copy(&copy, (void *)state, sizeof(copy))) return false;
    *head = (struct head){.next = (uintptr_t)copy.next, .id = copy.id, .native_id = copy.native_thread_id};
    return true;
}

/* around: where it probably is. Lists go in the same order. */
static struct thread *find(uintptr_t state, uint32_t around)
{
    for (uint32_t i = 0; i < stacks.count; i++) {
        struct thread *thread = &stacks.thread[(around + i) % stacks.count];
        if (thread->state == state) return thread;
    }
    return NULL;
}

static bool reserve(void)
{
    struct thread *room = ps_memory_grown(stacks.thread, stacks.count, &stacks.capacity, sizeof(*room));
    if (room) stacks.thread = room;
    return room != NULL;
}

static clockid_t clock_of(const struct head *head)
{
    return ps_cpu_clock_of((int)head->native_id);
}

static int tid_of(const struct thread *thread)
{
    return ~(thread->clock >> 3);
}

/*
 * A state is made by the thread that starts another, and up to 3.11 has that one's id until the new
 * thread runs. Of two states with one id the older is right.
 */
static bool has_clock_of_older(const struct head *head)
{
    for (uint32_t i = 0; i < stacks.count; i++)
        if (stacks.thread[i].clock == clock_of(head) && stacks.thread[i].id < head->id) return true;
    return false;
}

/*
 * What a thread used before it was first met is nobody's, and not more than the time since the last
 * list.
 */
static bool add(uintptr_t state, const struct head *head, uint64_t now)
{
    clockid_t clock = clock_of(head);
    uint64_t used = ps_clock_try(clock), since = stacks.listed_ns ? now - stacks.listed_ns : 0;
    if (!head->native_id || !used || has_clock_of_older(head) || !reserve()) return false;
    uint64_t charged = used > since ? used - since : 0;
    stacks.thread[stacks.count++] = (struct thread){.state = state,
                                                    .id = head->id,
                                                    .clock = clock,
                                                    .charged = charged,
                                                    .at_tick = charged,
                                                    .listed = stacks.list};
    return true;
}

static void miss(uint64_t ns)
{
    stacks.missed_ns += ns;
    PS_ADD(ps_samples_missed, stacks.missed_ns / PS_SAMPLE_NS);
    stacks.missed_ns %= PS_SAMPLE_NS;
}

static void drop_gone(void)
{
    for (uint32_t i = 0; stacks.any_gone && i < stacks.count;) {
        struct thread *thread = &stacks.thread[i];
        if (!thread->gone) {
            i++;
            continue;
        }
        if (thread->at_tick > thread->charged) miss(thread->at_tick - thread->charged);
        *thread = stacks.thread[--stacks.count];
    }
    stacks.any_gone = false;
}

/* What has the clock of one of the threads from this one on, and is younger, is no thread. */
static void drop_doubles(uint32_t first)
{
    for (uint32_t i = first; i < stacks.count; i++)
        for (uint32_t other = 0; other < first; other++)
            if (stacks.thread[other].clock == stacks.thread[i].clock &&
                stacks.thread[other].id > stacks.thread[i].id) {
                stacks.thread[other].charged = stacks.thread[other].at_tick;
                stacks.thread[other].gone = stacks.any_gone = true;
            }
}

/*
 * Threads come and go meanwhile. What is read of one that has gone is nonsense or nothing, and its
 * clock is none.
 */
static void list_threads(uint64_t now)
{
    enum { MOST = 100000 };
    struct head head;
    uint32_t before = stacks.count, around = 0;
    uintptr_t state = (uintptr_t)PyInterpreterState_ThreadHead(stacks.interpreter);
    bool is_whole = true;
    stacks.newest = stacks.skipped = 0;
    stacks.list++;
    for (int i = 0; state && i < MOST && read_head(&head, state); i++, state = head.next) {
        if (!stacks.newest) stacks.newest = head.id;
        if (head.id == stacks.own) continue;
        struct thread *known = find(state, around);
        if (known) around = (uint32_t)(known - stacks.thread) + 1;
        if (known && known->id == head.id && known->clock == clock_of(&head)) known->listed = stacks.list;
        else is_whole &= add(state, &head, now);
    }
    drop_doubles(before);
    for (uint32_t i = 0; i < before; i++)
        if (stacks.thread[i].listed != stacks.list) stacks.thread[i].gone = stacks.any_gone = true;
    drop_gone();
    stacks.list_is_whole = is_whole && !state;
    stacks.listed_ns = now;
}

/*
 * The newest state is the first one, and ids are given in order: with an older one there, nobody
 * has come since the last list. Who has gone has no clock any more, or no frame where the native
 * thread lives on.
 */
static bool has_somebody_come(void)
{
    struct head first;
    uintptr_t state = (uintptr_t)PyInterpreterState_ThreadHead(stacks.interpreter);
    if (!stacks.listed_ns || !stacks.list_is_whole || stacks.skipped == LISTS_SKIPPED) return true;
    stacks.skipped++;
    return !read_head(&first, state) || first.id > stacks.newest;
}

static void list_when_due(uint64_t now)
{
    if (now - stacks.listed_ns <= THREADS_AGAIN_NS + stacks.count * (uint64_t)THREAD_AGAIN_NS) return;
    if (has_somebody_come()) list_threads(now);
    else stacks.listed_ns = now;
}

/* The address of the frame that the thread runs; 0: none. */
static uintptr_t current_frame(const struct thread *thread)
{
    uintptr_t frame = 0;
#if PY_VERSION_HEX >= 0x030D0000
    if (!ps_copy(&frame, (char *)thread->state + offsetof(PyThreadState, current_frame), sizeof(frame)))
        return 0;
#else
    uintptr_t c_frame = 0;
    if (!ps_copy(&c_frame, (char *)thread->state + offsetof(PyThreadState, cframe), sizeof(c_frame)))
        return 0;
    if (!c_frame) return 0;
    if (!ps_copy(&frame, (char *)c_frame + offsetof(_PyCFrame, current_frame), sizeof(frame))) return 0;
#endif
    return frame;
}

/* Frames are one behind the other mostly, so a page of them is copied at once. */
static bool read_frame(struct reader *reader, struct ps_walked_frame *frame, uintptr_t at)
{
    uintptr_t page = at & ~(uintptr_t)(PAGE - 1);
    if (at - page + sizeof(*frame) > PAGE) return ps_copy(frame, (void *)at, sizeof(*frame));
    if (reader->page != page) {
        reader->page = 0;
        if (!ps_copy(reader->bytes, (void *)page, PAGE)) return false;
        reader->page = page;
    }
    memcpy(frame, reader->bytes + (at - page), sizeof(*frame));
    return true;
}

/* The lowest bits of a reference are tags from 3.14 on. */
static uintptr_t untagged(PyObject *reference)
{
    return (uintptr_t)reference & ~(uintptr_t)3;
}

/*
 * Is it one of the interpreter's own, as between a call from C and the function called?
 * ps_walked_code() says which there are. What such a frame does not use is not set.
 */
static bool is_internal(const struct ps_walked_frame *frame)
{
#if PY_VERSION_HEX >= 0x030D0000
    if (untagged(frame->code) == (uintptr_t)Py_None) return true;
#elif PY_VERSION_HEX >= 0x030C0000
    if (frame->owner == 3 /* FRAME_OWNED_BY_CSTACK */) return true;
#else
    return false;
#endif
#if PY_VERSION_HEX >= 0x030C0000
    uintptr_t function = untagged(frame->function);
    return !function || function == (uintptr_t)Py_None;
#endif
}

static long offset_of(const struct ps_walked_frame *frame, uintptr_t code)
{
    return (long)((uintptr_t)frame->instruction - code - offsetof(PyCodeObject, co_code_adaptive));
}

enum stack { NO_STACK, TORN, WHOLE };

/*
 * What was read is no stack, or ends too early, because the thread ran on meanwhile. The frame of a
 * generator that was left has no caller any more: its callers would not have what it uses in their
 * totals.
 */
static enum stack read_frames(struct reader *reader, uintptr_t at, uint64_t now)
{
    ps_read_stack *stack = &stacks.read;
    bool lines = PS_ENABLED(SAMPLE) || PS_ENABLED(SAMPLE__FRAME), is_torn = false;
    struct ps_walked_frame frame;
    stack->count = 0;
    for (int i = 0; at && i < PS_SAMPLE_FRAMES_MAX * 2 && stack->count < PS_SAMPLE_FRAMES_MAX; i++) {
        is_torn = true;
        if (!read_frame(reader, &frame, at)) break;
        at = (uintptr_t)frame.previous;
        is_torn = !is_internal(&frame);
        if (!is_torn) continue;
        uintptr_t address = untagged(frame.code);
        ps_copied_code *code = ps_copied_code_at(address, (uintptr_t)frame.globals, !stack->count, now);
        if (!code) break;
        uint32_t line = lines ? ps_copied_code_line(code, offset_of(&frame, address)) : 0;
        stack->frame[stack->count].code = code;
        stack->frame[stack->count++].line = line;
        is_torn = code->suspends && !at;
    }
    if (!stack->count) return NO_STACK;
    return is_torn ? TORN : WHOLE;
}

static void copy_stack(ps_read_stack *to, const ps_read_stack *from)
{
    memcpy(to, from, offsetof(ps_read_stack, frame) + from->count * sizeof(from->frame[0]));
}

/*
 * Gives the stack that was torn its callers, from one that was read right after it: those of its
 * outermost function there, or all, where the thread has left that. To take the later stack alone
 * would leave out what runs in generators.
 */
static void mend_torn(void)
{
    ps_read_stack *torn = &stacks.torn;
    const ps_read_stack *whole = &stacks.read;
    uint32_t first = whole->count;
    while (first && whole->frame[first - 1].code != torn->frame[torn->count - 1].code) first--;
    for (uint32_t i = first; i < whole->count && torn->count < PS_SAMPLE_FRAMES_MAX; i++)
        torn->frame[torn->count++] = whole->frame[i];
    copy_stack(&stacks.read, torn);
}

/* Its number; 0: the thread is in none. */
static uint64_t request_of(const struct thread *thread)
{
    return ps_requests_read(ps_copied_context_tree(thread->state));
}

/*
 * Where the innermost frame has been left while it was copied, its caller may stand at a later line
 * already: once more, up to three times. The rest of the stack takes longer, and is asked about
 * where it ends too early alone: what runs for a short time would be left each time. The number of
 * the request is read before and after the frame is copied: where the thread went on to another
 * one, once more as well. The address of its context would not tell, for the next request's is
 * often the same.
 */
static bool read_stack(const struct thread *thread, uint64_t now)
{
    struct reader reader;
    struct ps_walked_frame innermost;
    bool by_request = PS_ENABLED(STATS__BY_REQUEST);
    stacks.torn.count = 0;
    for (int tries = 0; tries < (stacks.torn.count ? TRIES_TO_MEND : 4); tries++) {
        reader.page = 0;
        stacks.read.request = by_request ? request_of(thread) : 0;
        uintptr_t at = current_frame(thread);
        if (!at) return false;
        bool is_copied = read_frame(&reader, &innermost, at);
        if (tries < 3 && (!is_copied || current_frame(thread) != at)) continue;
        if (tries < 3 && by_request && request_of(thread) != stacks.read.request) continue;
        stacks.read.collects = ps_collections_in(at);
        enum stack found = read_frames(&reader, at, now);
        if (found == WHOLE && stacks.torn.count) mend_torn();
        if (found == WHOLE) return true;
        if (found == TORN && !stacks.torn.count) copy_stack(&stacks.torn, &stacks.read);
    }
    if (stacks.torn.count) copy_stack(&stacks.read, &stacks.torn);
    return stacks.torn.count > 0;
}

static bool is_like(const ps_read_stack *one, const ps_read_stack *other)
{
    return one->state_id == other->state_id && one->request == other->request &&
           one->collects == other->collects && one->count == other->count &&
           memcmp(one->frame, other->frame, one->count * sizeof(one->frame[0])) == 0;
}

/*
 * Puts the stack that was read of this thread, which has used so much of the CPU, into the queue.
 * The queue is full when the VM does not come to it, as in a long call of C with the GIL: then the
 * stack is mostly the last one again.
 */
static void put(struct thread *thread, uint64_t used, uint64_t now)
{
    ps_read_stack *read = &stacks.read, *last = &stacks.queue[(stacks.put - 1) % QUEUE];
    uint64_t waiting = stacks.put - PS_READ_ACQUIRE(stacks.taken);
    read->state_id = thread->id;
    read->thread_id = (uint64_t)tid_of(thread);
    read->weight = used - thread->charged;
    thread->charged = used;
    if (waiting == QUEUE) {
        if (is_like(read, last)) PS_FETCH_ADD(last->weight, read->weight);
        else miss(read->weight);
        return;
    }
    memcpy(&stacks.queue[stacks.put % QUEUE], read,
           offsetof(ps_read_stack, frame) + read->count * sizeof(read->frame[0]));
    if (!waiting) stacks.since_ns = now;
    PS_WRITE_RELEASE(stacks.put, stacks.put + 1);
}

/* Has it run since the last tick? */
static bool note_clock(struct thread *thread)
{
    thread->before = ps_clock_try(thread->clock);
    if (!thread->before) thread->gone = stacks.any_gone = true;
    bool ran = thread->before > thread->at_tick;
    if (ran) {
        thread->at_tick = thread->before;
        thread->idle = 0;
    } else if (thread->idle < IDLE) {
        thread->idle++;
    }
    if (thread->at_tick - thread->charged > CARRIED_MOST_NS) {
        miss(thread->at_tick - thread->charged);
        thread->charged = thread->at_tick;
    }
    return ran;
}

enum seen { SLEPT, HAS_NO_CPU, RUNS };

/*
 * A thread whose clock goes on runs. Its stack is read after that: what a thread does in short
 * turns between two waits would be met too seldom if it had to run on for as long as that takes,
 * and too often if it counted when it began to run meanwhile.
 */
static enum seen look(struct thread *thread, uint64_t now)
{
    thread->unmet = note_clock(thread);
    if (!thread->unmet) return SLEPT;
    uint64_t used = ps_clock_try(thread->clock);
    if (used <= thread->before || !read_stack(thread, now)) return HAS_NO_CPU;
    put(thread, used, now);
    thread->unmet = false;
    thread->beside = BESIDE;
    return RUNS;
}

/*
 * The thread whose CPU this one has got, or which lost it when the tick was due: other processes
 * may have come first. Not one that lost it at another time: such a thread stands where the kernel
 * takes CPUs away, at the end of a slice, which is mostly in a system call that reads a CPU clock.
 */
struct interrupted {
    struct thread *thread; /* NULL: not found yet */
    uint64_t own;          /* when this thread last ran, which is now; 0: not asked for yet */
    uint64_t due;          /* when it should have, by the same clock */
    /* ns between the end of that one's time on the CPU and one of these, at most */
    uint64_t least;
    bool was_late; /* the thread lost its CPU long after the tick was due */
};

static uint64_t distance(uint64_t one, uint64_t other)
{
    return one < other ? other - one : one - other;
}

/* Is it this thread? False: the kernel does not tell. */
static bool ask_about(struct interrupted *interrupted, struct thread *thread, uint64_t now, uint64_t due)
{
    if (!interrupted->own) {
        /* for the scheduler to note that this thread runs */
        (void)ps_clock_read(CLOCK_THREAD_CPUTIME_ID);
        uint64_t noted = ps_monotonic_ns();
        interrupted->own = ps_last_ran_ns((int)ps_thread_id());
        interrupted->due = interrupted->own - (noted - due);
        interrupted->least = ps_monotonic_ns() - now + SWITCH_NS;
    }
    if (!interrupted->own) return false;
    uint64_t ended = ps_last_ran_ns(tid_of(thread)), since = interrupted->own - ended;
    uint64_t off = distance(ended, interrupted->due);
    if (off < SWITCH_NS && off < since) since = off;
    if (since >= interrupted->least) return true;
    interrupted->least = since;
    interrupted->was_late = off >= LATE_NS;
    interrupted->thread = thread;
    return true;
}

/* By the kernel's part of its CPU time. */
static bool makes_long_calls(struct thread *thread)
{
    struct ps_cpu_ticks now;
    if (!ps_cpu_ticks_of(tid_of(thread), &now)) return false;
    uint64_t all = now.all - thread->asked.all, system = now.system - thread->asked.system;
    if (all >= CALLS_AGAIN || !thread->asked.all) {
        thread->makes_long_calls = system * CALLS_PART >= all;
        thread->asked = now;
    }
    return thread->makes_long_calls;
}

/*
 * On a kernel that is not preemptible a thread that makes long system calls is interrupted in its
 * own code when the tick is due, and in a call when that is over: by then another process may come
 * first. Such a thread counts where it ran beside this one, on another CPU, which has nothing to do
 * with what it does. Where it is hardly ever met so, as on one CPU, it counts where it was
 * interrupted.
 *
 * Where a tick came late to any other thread, this one was not entitled to a CPU, and got one where
 * the scheduler looked next, which is mostly in a call that reads a CPU clock.
 */
static bool counts_interrupted(struct thread *thread, bool was_late)
{
    if (!makes_long_calls(thread)) return !was_late;
    return !thread->beside || !thread->beside--;
}

/*
 * Who has the GIL waits for nothing, mostly. Others do, for the GIL above all, and to find that out
 * is cheaper than to ask when they ran. False: the kernel does not tell.
 */
static bool look_at_interrupted(uint64_t now, uint64_t due)
{
    struct interrupted interrupted = {.thread = NULL};
    /*
     * A worker that this thread started later would not have the application's files, and may run
     * finalizers of its.
     */
    if (!ps_worker_stay() || !ps_task_files_apart()) return false;
    struct thread *holder = ps_gil_is_held() ? find(ps_gil_last_holder(), 0) : NULL;
    if (holder && holder->unmet && !ask_about(&interrupted, holder, now, due)) return false;
    bool is_holder = interrupted.thread != NULL;
    /* From another thread on each time: of many that took turns some are asked about, by chance. */
    int asked = 0;
    for (uint32_t i = 0; !is_holder && i < stacks.count && asked < ASKED_MOST; i++) {
        struct thread *thread = &stacks.thread[(stacks.tick * ASKED_MOST + i) % stacks.count];
        if (!thread->unmet || thread == holder) continue;
        asked++;
        if (!ps_is_asleep(tid_of(thread)) && !ask_about(&interrupted, thread, now, due)) return false;
    }
    struct thread *last = interrupted.thread;
    if (last && !counts_interrupted(last, interrupted.was_late)) return true;
    if (last && read_stack(last, now)) put(last, last->before, now);
    return true;
}

/*
 * A moment later. Who has let go of the GIL by then may have gone to sleep as well, after it ran on
 * for a while.
 */
static void look_again(uint64_t now)
{
    nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_NS}, NULL);
    struct thread *holder = ps_gil_is_held() ? find(ps_gil_last_holder(), 0) : NULL;
    if (!holder || !read_stack(holder, now)) return;
    uint64_t used = ps_clock_try(holder->clock);
    if (used > holder->before) put(holder, used, now);
}

/* Of sched_setattr(2), its first version. The C library has it from glibc 2.41 on. */
struct scheduling {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

/*
 * On a busy machine Linux 6.6 and later let a thread that wakes up wait until the one on its CPU
 * sleeps, or has used up its slice of 3 ms. A tick would be where threads of the application wait
 * for each other, and calls between two waits would have too few samples. From 6.12 on a thread
 * that asks for a shorter slice has the CPU at once. Its share of the CPU stays what it was.
 */
static void ask_for_short_slices(void)
{
    enum { SLICE_NS = 100000 }; /* the shortest there is */
    struct scheduling own = {.size = sizeof(own)};
    if (syscall(SYS_sched_getattr, 0, &own, sizeof(own), 0) != 0 || own.policy != SCHED_OTHER) return;
    own.runtime_ns = SLICE_NS;
    syscall(SYS_sched_setattr, 0, &own, 0);
    /* Earlier kernels say nothing against it, and 0 here. */
    if (syscall(SYS_sched_getattr, 0, &own, sizeof(own), 0) == 0 && own.runtime_ns == SLICE_NS)
        ps_watcher_goes_first();
}

/*
 * The watcher's thread, once: so that ticks come when they are due, and short sleeps are not made
 * twice as long.
 */
static void be_punctual(void)
{
    static __thread bool is_punctual;
    if (is_punctual) return;
    is_punctual = true;
    ask_for_short_slices();
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
}

/* Whoever had the GIL last. A thread that is new is there at once. */
static struct thread *find_holder(uint64_t now)
{
    struct head head;
    uintptr_t state = ps_gil_last_holder();
    struct thread *known = find(state, 0);
    if (known || !state || !read_head(&head, state) || head.id == stacks.own) return known;
    uint32_t before = stacks.count;
    add(state, &head, now);
    drop_doubles(before);
    drop_gone();
    return find(state, before);
}

/*
 * To read the clock of each of many threads that wait takes longer than all else. What a thread
 * uses until it is looked at again is carried to its next sample, so it has as much as others.
 */
static bool is_due(uint32_t i)
{
    return stacks.count <= FEW || stacks.thread[i].idle < IDLE || (stacks.tick + i) % IDLE == 0;
}

/*
 * Most of those that stand still beside a thread that runs wait for the GIL, and to find that out
 * for each takes half of a tick's time. What the others use is carried to their next sample, and in
 * which ticks they are asked about has nothing to do with what they do: ticks are never on time to
 * 64 ns.
 */
static bool is_asked_about(uint64_t now)
{
    return now / 64 % ASKED_RARELY == 0;
}

/*
 * First of all whoever had the GIL last, which also runs between two short calls without the GIL;
 * then the others, which run in C. The kernel may have put this thread in the place of one that
 * ran.
 */
static void read_running(uint64_t now, uint64_t due)
{
    stacks.tick++;
    list_when_due(now);
    struct thread *holder = find_holder(now);
    bool any[3] = {false};
    if (holder) any[look(holder, now)] = true;
    for (uint32_t i = 0; i < stacks.count; i++) {
        if (&stacks.thread[i] == holder) continue;
        if (is_due(i)) any[look(&stacks.thread[i], now)] = true;
        else stacks.thread[i].unmet = false;
    }
    drop_gone();
    if (!any[HAS_NO_CPU] || (any[RUNS] && !is_asked_about(now))) return;
    if (!look_at_interrupted(now, due) && !any[RUNS]) look_again(now);
}

bool ps_stacks_tick(uint64_t now, uint64_t due)
{
    if (pthread_mutex_trylock(&stacks.lock) != 0) return false;
    bool wanted = false;
    if (stacks.on) {
        be_punctual();
        read_running(now, due);
        uint64_t taken = PS_READ_ACQUIRE(stacks.taken), waiting = stacks.put - taken;
        ps_copied_code_sampled(stacks.put, taken);
        wanted =
            waiting && (PS_ENABLED(SAMPLE) || waiting >= QUEUE / 2 || now - stacks.since_ns > WAIT_MOST_NS);
    }
    pthread_mutex_unlock(&stacks.lock);
    return wanted;
}

void ps_stacks_forget_clocks(void)
{
    pthread_mutex_lock(&stacks.lock);
    stacks.count = 0;
    stacks.listed_ns = 0;
    pthread_mutex_unlock(&stacks.lock);
}

const ps_read_stack *ps_stacks_next(void)
{
    if (!stacks.on) return NULL;
    uint64_t taken = stacks.taken + stacks.taking;
    stacks.taking = false;
    PS_WRITE_RELEASE(stacks.taken, taken);
    if (taken == PS_READ_ACQUIRE(stacks.put)) return NULL;
    stacks.taking = true;
    return &stacks.queue[taken % QUEUE];
}

static void forget(void)
{
    stacks.put = stacks.taken = 0;
    stacks.taking = false;
    ps_copied_code_forget();
    ps_memory_give(stacks.thread, stacks.capacity * sizeof(*stacks.thread));
    stacks.thread = NULL;
    stacks.count = stacks.capacity = 0;
    stacks.listed_ns = stacks.missed_ns = 0;
}

bool ps_stacks_begin(PyInterpreterState *interpreter, uint64_t own)
{
    if (!ps_gil_last_holder() || !ps_copy_works()) return false;
    pthread_mutex_lock(&stacks.lock); /* nothing is read before */
    forget();
    stacks.interpreter = interpreter;
    stacks.own = own;
    if (!stacks.queue) stacks.queue = ps_memory_take(QUEUE * sizeof(*stacks.queue));
    stacks.on = stacks.queue != NULL;
    bool on = stacks.on;
    pthread_mutex_unlock(&stacks.lock);
    return on;
}

bool ps_stacks_end(void)
{
    if (pthread_mutex_trylock(&stacks.lock) != 0) return false;
    stacks.on = false;
    forget();
    ps_memory_give(stacks.queue, QUEUE * sizeof(*stacks.queue));
    stacks.queue = NULL;
    pthread_mutex_unlock(&stacks.lock);
    return true;
}

void ps_stacks_before_fork(void)
{
    pthread_mutex_lock(&stacks.lock);
}

void ps_stacks_after_fork(bool is_child)
{
    if (is_child) forget();
    pthread_mutex_unlock(&stacks.lock);
}

#endif

#include "stacks.h"

#if PS_HAVE_GIL

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/watcher.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/copy.h"
#include "base/cpu_timer.h"
#include "base/last_ran.h"
#include "base/memory.h"
#include "base/task_file.h"
#include "base/thread_id.h"
#include "table/flush.h"
#include "usdt/info.h"
#include "usdt/probe.h"
#include "copied_contextvar.h"
#include "gil_wait.h"
#include "hooks.h"

enum {
    QUEUE = 32,  /* stacks */
    PAGE = 4096, /* bytes of a thread's frames that are copied at a time: no page is mapped in part */
    LOOK_AGAIN_NS = 50000, /* between two looks, if the kernel does not report who had the CPU */
    LATE_NS = 50000,       /* a tick is late if it comes so long after it was due */
    CALLS_PART = 12,       /* long system calls: this part of a thread's CPU time is the kernel's, */
    WAITS_PART = 2,        /* and it waits for a CPU for this part of the time that it runs */
    CALLS_AGAIN = 20,      /* clock ticks (10 ms) of CPU time, after which that is determined again */
    BESIDE = 8,        /* interruptions of such a thread that do not count, once it was met beside this one */
    SWITCH_NS = 20000, /* from the end of a thread's time on a CPU to the beginning of the tick, at most */
    THREADS_AGAIN_NS = 200000000, /* between two lists of the threads, */
    THREAD_AGAIN_NS = 500000,     /* and as much more for each thread */
    LISTS_SKIPPED = 4,            /* successive lists that are skipped if no thread has come */
    FEW = 16,           /* so many threads are looked at in every tick; of more, those that are not idle */
    IDLE = 16,          /* ticks without running make a thread idle: it is looked at in one of so many */
    ASKED_MOST = 16,    /* threads that the kernel is asked about in one tick */
    ASKED_RARELY = 4,   /* of more than FEW, if another thread was met: in one tick of so many */
    TRIES_TO_MEND = 12, /* to read the callers of a torn stack */
    WAIT_MOST_NS = 100000000,       /* for so long a stack waits in the queue */
    NEW_UNTIL_NS = 1000000000,      /* of CPU time a thread is new, see weight_of() */
    STANDS_FOR_MOST_NS = 100000000, /* a tick; the process may have been stopped before it */
    CARRIED_MOST_NS = 1000000000 /* CPU time without a stack that a thread carries on; more of it is missed */
};

struct thread {
    uintptr_t state;
    uint64_t id; /* of that state; no other state ever has it */
    clockid_t clock;
    uint64_t charged;          /* its CPU time up to its last stack */
    uint64_t at_tick;          /* its CPU time at the last tick */
    uint64_t before;           /* its CPU time in this tick */
    bool is_new;               /* it came after the first list, see weight_of() */
    bool unmet;                /* it ran since the last tick, and does not run now */
    bool gone;                 /* it has no clock any more */
    bool is_called_away;       /* other processes come first when a system call of it is over */
    struct ps_cpu_ticks asked; /* when that was last determined */
    struct ps_cpu_waits waits; /* at that time */
    uint8_t beside;            /* interruptions to come that do not count */
    uint8_t idle;              /* looks at it since it ran */
    uint32_t listed;           /* the number of the last list that had it */
};

static struct {
    pthread_mutex_t lock; /* the watcher's during a tick; only a fork waits for it */
    PyInterpreterState *interpreter;
    uint64_t own;
    bool on;
    struct thread *thread;
    uint32_t count, capacity, list;
    uint64_t listed_ns;
    uint64_t newest;    /* id of the first state in the last list */
    bool list_is_whole; /* each state in it was that of a thread with a clock */
    uint32_t skipped;   /* lists that were skipped since then */
    bool any_gone;
    uint32_t tick;
    uint64_t tick_ns;     /* when the last tick came; 0: there was none */
    uint64_t interval_ns; /* from the tick before to this one */
    uint64_t of_new_ns;   /* what new threads stand for that were met since the last stack of one */
    /* What this tick found, see ps_info_ticked(). */
    uint64_t ran_ns;
    uint32_t met;
    uint64_t missed_ns;
    ps_read_stack read; /* the stack that was read last */
    ps_read_stack torn; /* the stack read before, which ended too early */
    /* The queue. The VM writes `taken` and `taking`, the watcher the rest. */
    ps_read_stack *queue;
    uint64_t put, taken;
    bool taking;       /* the VM uses the oldest stack */
    uint64_t since_ns; /* about when the oldest stack was put there */
} stacks = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Copies frames of one thread. */
struct reader {
    uintptr_t page; /* 0: none */
    char bytes[PAGE];
};

/* What is read of a thread's state. */
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

/* around: where it probably is. Lists have the same order. */
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
 * The thread that starts another makes the other's state. Up to 3.11 that state has the starter's
 * thread id until the new thread runs. Of two states with one id the older is right.
 */
static bool has_clock_of_older(const struct head *head)
{
    for (uint32_t i = 0; i < stacks.count; i++)
        if (stacks.thread[i].clock == clock_of(head) && stacks.thread[i].id < head->id) return true;
    return false;
}

/*
 * Of what a thread used before it was first met, at most the time since the last list is charged.
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
                                                    .is_new = stacks.listed_ns && used < NEW_UNTIL_NS,
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
        if (thread->at_tick > thread->charged && !thread->is_new) miss(thread->at_tick - thread->charged);
        *thread = stacks.thread[--stacks.count];
    }
    stacks.any_gone = false;
}

/* A thread before `first` is none if one from `first` on has the same clock and an older state. */
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
 * Threads come and go meanwhile. What is read of a thread that has gone is nonsense or nothing, and
 * the thread has no clock.
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
 * The newest state is the first one, and ids are given in order. If the first one is not newer than
 * at the last list, no thread has come since. A thread that has gone has no clock any more. If its
 * native thread lives on, it has no frame.
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

/* Frames are mostly next to each other, so a page of them is copied at once. */
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
 * Is the frame the interpreter's own, such as one between a call from C and the function called?
 * See ps_walked_code(). Fields that such a frame does not use are not set.
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
 * The thread may run on meanwhile. Then what is read is no stack, or a torn one, which ends too
 * early: the frame of a generator that was left has no caller any more. A torn stack would be
 * missing in the totals of its callers.
 */
static enum stack read_frames(struct reader *reader, uintptr_t at, uint64_t now)
{
    enum { STEPS_MOST = PS_SAMPLE_FRAMES_MAX * 2 };
    ps_read_stack *stack = &stacks.read;
    bool lines = ps_samples_want_lines(), is_torn = false;
    struct ps_walked_frame frame;
    stack->count = 0;
    stack->is_cut = false;
    for (int i = 0; at && !stack->is_cut; i++) {
        is_torn = true;
        if (!read_frame(reader, &frame, at)) break;
        at = (uintptr_t)frame.previous;
        is_torn = !is_internal(&frame);
        stack->is_cut = i == STEPS_MOST || (is_torn && stack->count == PS_SAMPLE_FRAMES_MAX);
        if (!is_torn || stack->is_cut) continue;
        uintptr_t address = untagged(frame.code);
        ps_copied_code *code = ps_copied_code_at(address, (uintptr_t)frame.globals, !stack->count, now);
        if (!code) break;
        uint32_t line = lines ? ps_copied_code_line(code, offset_of(&frame, address)) : 0;
        stack->frame[stack->count].code = code;
        stack->frame[stack->count++].line = line;
        is_torn = code->suspends && !at;
    }
    if (!stack->count) return NO_STACK;
    return is_torn && !stack->is_cut ? TORN : WHOLE;
}

static void copy_stack(ps_read_stack *to, const ps_read_stack *from)
{
    memcpy(to, from, offsetof(ps_read_stack, frame) + from->count * sizeof(from->frame[0]));
}

/*
 * Gives the torn stack its callers, from the stack that was read right after it: the callers of the
 * same function there, or the whole stack if the thread has left that function. The later stack
 * alone would leave out what runs in generators.
 */
static void mend_torn(void)
{
    ps_read_stack *torn = &stacks.torn;
    const ps_read_stack *whole = &stacks.read;
    uint32_t first = whole->count;
    while (first && whole->frame[first - 1].code != torn->frame[torn->count - 1].code) first--;
    uint32_t i = first;
    while (i < whole->count && torn->count < PS_SAMPLE_FRAMES_MAX)
        torn->frame[torn->count++] = whole->frame[i++];
    torn->is_cut = whole->is_cut || i < whole->count;
    copy_stack(&stacks.read, torn);
}

/* The number of the thread's request; 0: none. */
static uint64_t request_of(const struct thread *thread)
{
    return ps_requests_read(ps_copied_contextvar_tree(thread->state));
}

/*
 * If the thread left the innermost frame while that was copied, the frame's caller may be at a
 * later line already: read again, up to three times. The rest of the stack takes longer to read,
 * and is read again only if it is torn. Otherwise code that runs for a short time would be missed
 * each time. The request's number is read before and after the frame: if the thread went on to
 * another request, read again as well. The address of its context would not show that, because the
 * next request's is often the same.
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
           one->collects == other->collects && one->is_cut == other->is_cut && one->count == other->count &&
           memcmp(one->frame, other->frame, one->count * sizeof(one->frame[0])) == 0;
}

/*
 * A stack weighs what its thread used since its last one. A thread that ends within a tick's time
 * would have too small a share: nobody knows what it used by its end. So a new thread's stack weighs
 * what every tick stands for, the time since the tick before, until its last tick matters little.
 */
static uint64_t weight_of(struct thread *thread, uint64_t used)
{
    uint64_t weight = used - thread->charged;
    thread->charged = used;
    if (!thread->is_new) return weight;
    thread->is_new = used < NEW_UNTIL_NS;
    weight = stacks.of_new_ns;
    stacks.of_new_ns = 0;
    return weight;
}

/* A tick met the thread. ticks: for how many it stands. */
static void meet(const struct thread *thread, uint32_t ticks)
{
    uint64_t since = stacks.interval_ns < STANDS_FOR_MOST_NS ? stacks.interval_ns : STANDS_FOR_MOST_NS;
    if (thread->is_new) stacks.of_new_ns += since * ticks;
    else stacks.met += ticks;
}

/*
 * Puts the stack that was read into the queue. used: the thread's CPU time. The queue is full when
 * the VM does not take stacks, as in a long call of C with the GIL. Then the stack is mostly the
 * last one again.
 */
static void put(struct thread *thread, uint64_t used, uint64_t now)
{
    ps_read_stack *read = &stacks.read, *last = &stacks.queue[(stacks.put - 1) % QUEUE];
    uint64_t waiting = stacks.put - PS_READ_ACQUIRE(stacks.taken);
    read->state_id = thread->id;
    read->thread_id = (uint64_t)tid_of(thread);
    read->weight = weight_of(thread, used);
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

/* Has the thread run since the last tick? */
static bool note_clock(struct thread *thread)
{
    thread->before = ps_clock_try(thread->clock);
    if (!thread->before) thread->gone = stacks.any_gone = true;
    bool ran = thread->before > thread->at_tick;
    if (ran) {
        if (!thread->is_new) stacks.ran_ns += thread->before - thread->at_tick;
        thread->at_tick = thread->before;
        thread->idle = 0;
    } else if (thread->idle < IDLE) {
        thread->idle++;
    }
    /* A thread that ended after its last sample has no reading from after that sample. */
    if (thread->at_tick > thread->charged && thread->at_tick - thread->charged > CARRIED_MOST_NS) {
        if (!thread->is_new) miss(thread->at_tick - thread->charged);
        thread->charged = thread->at_tick;
    }
    return ran;
}

enum seen { SLEPT, HAS_NO_CPU, RUNS };

/*
 * A thread whose clock goes on runs. Its stack is read after that. Consider a thread that works in
 * short turns between two waits. If it had to run until the stack is read, it would be met too
 * seldom. If it counted when it began to run meanwhile, it would be met too often.
 */
static enum seen look(struct thread *thread, uint64_t now)
{
    thread->unmet = note_clock(thread);
    if (!thread->unmet) return SLEPT;
    uint64_t used = ps_clock_try(thread->clock);
    if (used <= thread->before || !read_stack(thread, now)) return HAS_NO_CPU;
    meet(thread, 1);
    put(thread, used, now);
    thread->unmet = false;
    thread->beside = BESIDE;
    return RUNS;
}

/*
 * The thread whose CPU the watcher has got, or which lost its CPU when the tick was due: other
 * processes may have come first. Not a thread that lost its CPU at another time. Such a thread is
 * where the kernel takes CPUs away, at the end of a slice, mostly in a system call that reads a CPU
 * clock.
 */
struct interrupted {
    struct thread *thread; /* NULL: not found yet */
    bool is_certain;       /* no other thread can be meant */
    uint64_t began;        /* when this thread got its CPU, or later; 0: not read yet */
    uint64_t own;          /* when this thread last ran, which is now; 0: not read yet */
    uint64_t due;          /* when it should have run, by the same clock */
    uint64_t least; /* the smallest distance so far, ns, of a thread's end on the CPU to one of these */
    bool was_late;  /* the thread lost its CPU long after the tick was due */
};

static uint64_t distance(uint64_t one, uint64_t other)
{
    return one < other ? other - one : one - other;
}

static void note_own(struct interrupted *interrupted, uint64_t now, uint64_t due)
{
    if (interrupted->own) return;
    /* Makes the scheduler note that this thread runs. */
    (void)ps_clock_read(CLOCK_THREAD_CPUTIME_ID);
    uint64_t noted = ps_monotonic_ns();
    interrupted->own = ps_last_ran_ns((int)ps_thread_id());
    interrupted->due = interrupted->own - (noted - due);
    interrupted->least = ps_monotonic_ns() - now + SWITCH_NS;
}

/*
 * Notes the thread if it is the most likely one so far. False: the kernel does not report when it
 * ran.
 *
 * When this thread takes the place of another one, the scheduler reads its clock once, and notes the
 * same moment for both. So the thread with that moment is certain. How long ago the moment was does
 * not matter there: it takes the longer the more of the caches the thread has used.
 */
static bool ask_about(struct interrupted *interrupted, struct thread *thread, uint64_t now, uint64_t due)
{
    if (!interrupted->began) interrupted->began = ps_last_ran_ns((int)ps_thread_id());
    if (!interrupted->began) return false;
    uint64_t ended = ps_last_ran_ns(tid_of(thread));
    if (ended == interrupted->began) {
        interrupted->thread = thread;
        interrupted->is_certain = true;
        if (now - due < LATE_NS) return true;
    }
    note_own(interrupted, now, due);
    uint64_t since = interrupted->own - ended, off = distance(ended, interrupted->due);
    if (interrupted->is_certain) {
        interrupted->was_late = off >= LATE_NS;
        return true;
    }
    if (off < SWITCH_NS && off < since) since = off;
    if (since >= interrupted->least) return true;
    interrupted->least = since;
    interrupted->was_late = off >= LATE_NS;
    interrupted->thread = thread;
    return true;
}

/*
 * Judged by the kernel's part of the thread's CPU time, and by how long it waits for a CPU. Where the
 * kernel does not report how long, the part alone decides.
 */
static bool is_called_away(struct thread *thread)
{
    struct ps_cpu_ticks now;
    struct ps_cpu_waits waits = {0};
    if (!ps_cpu_ticks_of(tid_of(thread), &now)) return false;
    uint64_t all = now.all - thread->asked.all, system = now.system - thread->asked.system;
    if (all < CALLS_AGAIN && thread->asked.all) return thread->is_called_away;
    bool is_busy =
        !ps_cpu_waits_of(tid_of(thread), &waits) ||
        (waits.waited_ns - thread->waits.waited_ns) * WAITS_PART >= waits.ran_ns - thread->waits.ran_ns;
    thread->is_called_away = is_busy && system * CALLS_PART >= all;
    thread->asked = now;
    thread->waits = waits;
    return thread->is_called_away;
}

/*
 * On a kernel that is not preemptible, a thread that makes long system calls is interrupted in its
 * own code when the tick is due, and in a system call only when the call is over. By then another
 * process may come first, if processes wait for a CPU. So such a thread counts where it ran beside
 * the watcher, on another CPU, which does not depend on what it does. If it is hardly ever met so, as
 * on one CPU, it counts where it was interrupted.
 *
 * For any other thread a late tick does not count: the watcher was not entitled to a CPU when the
 * tick was due, and got one where the scheduler looked next, mostly in a call that reads a CPU
 * clock.
 *
 * On an idle machine every interruption counts. A thread that makes short calls mostly runs beside
 * another one only in the moments in which it wakes that thread up, and these moments would count
 * too rarely.
 */
static bool counts_interrupted(struct thread *thread, bool was_late)
{
    if (!is_called_away(thread)) return !was_late;
    return !thread->beside || !thread->beside--;
}

/*
 * The thread with the GIL mostly waits for nothing. Others wait, above all for the GIL, and to find
 * that out is cheaper than to find out when they ran. weight: the number of ticks for which this one
 * stands. False: the kernel does not report when.
 */
static bool look_at_interrupted(uint64_t now, uint64_t due, uint32_t weight)
{
    struct interrupted interrupted = {.thread = NULL};
    /*
     * The worker must run already. If this thread started it later, it would not have the
     * application's files, and it may run finalizers of the application's.
     */
    if (!ps_worker_stay() || !ps_task_files_apart()) return false;
    struct thread *holder = ps_gil_is_held() ? find(ps_gil_last_holder(), 0) : NULL;
    if (holder && holder->unmet && !ask_about(&interrupted, holder, now, due)) return false;
    bool is_holder = interrupted.thread != NULL;
    /*
     * Begins with another thread each time: of many that took turns a random few are asked about.
     */
    int asked = 0;
    for (uint32_t i = 0; !is_holder && !interrupted.is_certain && i < stacks.count && asked < ASKED_MOST;
         i++) {
        struct thread *thread = &stacks.thread[(stacks.tick * ASKED_MOST + i) % stacks.count];
        if (!thread->unmet || thread == holder) continue;
        asked++;
        if (!ps_is_asleep(tid_of(thread)) && !ask_about(&interrupted, thread, now, due)) return false;
    }
    struct thread *last = interrupted.thread;
    if (last) meet(last, weight);
    if (last && !counts_interrupted(last, interrupted.was_late)) return true;
    if (last && read_stack(last, now)) put(last, last->before, now);
    return true;
}

/*
 * Looks again a moment later. A thread that has released the GIL by then may have gone to sleep as
 * well, after it ran on for a while.
 */
static void look_again(uint64_t now)
{
    nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_NS}, NULL);
    struct thread *holder = ps_gil_is_held() ? find(ps_gil_last_holder(), 0) : NULL;
    if (!holder || !read_stack(holder, now)) return;
    uint64_t used = ps_clock_try(holder->clock);
    if (used <= holder->before) return;
    meet(holder, 1);
    put(holder, used, now);
}

/* The first version of what sched_setattr(2) takes. The C library has it from glibc 2.41 on. */
struct scheduling {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

/*
 * On a busy machine Linux 6.6 and later let a thread that wakes up wait until the thread on its CPU
 * sleeps, or has used up its slice of 3 ms. A tick would come where threads of the application wait
 * for each other, and calls between two waits would have too few samples. From 6.12 on a thread
 * that asks for a shorter slice gets the CPU at once. Its share of the CPU stays the same.
 */
static void ask_for_short_slices(void)
{
    enum { SLICE_NS = 100000 }; /* the shortest there is */
    struct scheduling own = {.size = sizeof(own)};
    if (syscall(SYS_sched_getattr, 0, &own, sizeof(own), 0) != 0 || own.policy != SCHED_OTHER) return;
    own.runtime_ns = SLICE_NS;
    syscall(SYS_sched_setattr, 0, &own, 0);
    /* Earlier kernels accept the call, and return 0 here. */
    if (syscall(SYS_sched_getattr, 0, &own, sizeof(own), 0) == 0 && own.runtime_ns == SLICE_NS)
        ps_watcher_goes_first();
}

/*
 * Called on the watcher's thread. Done once, so that ticks come when they are due and short sleeps
 * do not take twice as long.
 */
static void be_punctual(void)
{
    static __thread bool is_punctual;
    if (is_punctual) return;
    is_punctual = true;
    ask_for_short_slices();
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
}

/*
 * The thread that had the GIL last. A new thread is added at once. Its state is often where that of
 * a thread was that has ended since the last tick.
 */
static struct thread *find_holder(uint64_t now)
{
    struct head head;
    uintptr_t state = ps_gil_last_holder();
    struct thread *known = find(state, 0);
    if (!state || !read_head(&head, state) || head.id == stacks.own) return known;
    if (known && known->id == head.id) return known;
    if (known) known->gone = stacks.any_gone = true;
    drop_gone();
    uint32_t before = stacks.count;
    add(state, &head, now);
    drop_doubles(before);
    drop_gone();
    return find(state, before);
}

/*
 * Reading the clocks of many threads that wait takes longer than all else. What a thread uses until
 * it is looked at again is carried to its next sample, so its time is not lost.
 */
static bool is_due(uint32_t i)
{
    return stacks.count <= FEW || stacks.thread[i].idle < IDLE || (stacks.tick + i) % IDLE == 0;
}

/*
 * Most threads that stand still beside a thread that runs wait for the GIL. To find that out for
 * each of many takes half of a tick's time. What the others use is carried to their next sample. The
 * ticks in which many are asked about do not depend on what they do: ticks are never on time to 64
 * ns.
 */
static bool is_asked_about(uint64_t now)
{
    return stacks.count <= FEW || now / 64 % ASKED_RARELY == 0;
}

/*
 * Looks first at the thread that had the GIL last, which also runs between two short calls without
 * the GIL; then at the others, which run in C. The kernel may have put this thread in the place of
 * one that ran.
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
    uint32_t weight = any[RUNS] && stacks.count > FEW ? ASKED_RARELY : 1;
    if (!look_at_interrupted(now, due, weight) && !any[RUNS]) look_again(now);
}

/* What the ticks missed can be told from the outside: see ticked_time.rb. */
static void tell_what_it_met(void)
{
    if (stacks.interval_ns) ps_info_ticked(stacks.ran_ns, stacks.met * stacks.interval_ns, stacks.met);
    stacks.ran_ns = stacks.met = 0;
}

bool ps_stacks_tick(uint64_t now, uint64_t due)
{
    if (pthread_mutex_trylock(&stacks.lock) != 0) return false;
    bool wanted = false;
    if (stacks.on) {
        be_punctual();
        stacks.interval_ns = stacks.tick_ns ? now - stacks.tick_ns : 0;
        stacks.tick_ns = now;
        read_running(now, due);
        tell_what_it_met();
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
    stacks.listed_ns = stacks.tick_ns = 0;
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
    stacks.listed_ns = stacks.missed_ns = stacks.tick_ns = stacks.of_new_ns = 0;
}

bool ps_stacks_begin(PyInterpreterState *interpreter, uint64_t own)
{
    if (!ps_gil_last_holder() || !ps_copy_works()) return false;
    pthread_mutex_lock(&stacks.lock); /* no tick reads meanwhile */
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

#include "features/thread_clocks.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"

struct thread {
    uint64_t id;
    clockid_t clock;
    /* Its CPU time in ns: at the tick, in this walk, and at its last sample. */
    uint64_t at_tick, now, charged;
    uint32_t walk; /* the last walk that saw it */
    bool fresh;    /* first seen in this walk: it has no reading from the tick */
};

static struct {
    pthread_mutex_t lock;
    struct thread *thread;
    uint32_t count, capacity;
    uint32_t walk;
    bool walking;       /* a thread was seen in this walk */
    uint32_t cursor;    /* where the next thread probably is: all walks have the same order */
    uint64_t walked_ns; /* when the last walk was; 0 before the first */
    uint64_t most;      /* the most CPU time that a thread used since the tick */
} clocks = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void forget(void)
{
    ps_memory_give(clocks.thread, clocks.capacity * sizeof(*clocks.thread));
    clocks.thread = NULL;
    clocks.count = clocks.capacity = 0;
    clocks.walked_ns = 0;
}

void ps_thread_clocks_forget(void)
{
    pthread_mutex_lock(&clocks.lock);
    forget();
    pthread_mutex_unlock(&clocks.lock);
}

void ps_thread_clocks_after_fork(void)
{
    pthread_mutex_init(&clocks.lock, NULL);
    forget();
}

bool ps_thread_clocks_tick(void)
{
    if (pthread_mutex_trylock(&clocks.lock) != 0) return false;
    bool moved = clocks.count == 0;
    for (uint32_t i = 0; i < clocks.count; i++) {
        struct thread *thread = &clocks.thread[i];
        uint64_t now = ps_clock_try(thread->clock);
        moved |= now != thread->at_tick;
        thread->at_tick = now;
    }
    pthread_mutex_unlock(&clocks.lock);
    return moved;
}

bool ps_thread_clocks_begin_walk(void)
{
    if (pthread_mutex_trylock(&clocks.lock) != 0) return false;
    clocks.walk++;
    clocks.walking = false;
    clocks.cursor = 0;
    clocks.most = 0;
    return true;
}

/* Returns the number of the thread, or `count` when it is unknown. */
static uint32_t find(uint64_t id)
{
    for (uint32_t i = 0; i < clocks.count; i++) {
        uint32_t place = (clocks.cursor + i) % clocks.count;
        if (clocks.thread[place].id != id) continue;
        clocks.cursor = place + 1;
        return place;
    }
    return clocks.count;
}

/*
 * A VM may list threads that ended without its notice: native threads, and after a fork that the VM
 * did not see, all other threads. Their descriptors hold zeros or are unmapped, and the C library
 * reads them without a check.
 */
static bool has_clock(pthread_t thread, clockid_t *clock)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)thread & ~(page - 1);
    unsigned char resident[2];
    if (mincore((void *)at, 2 * page, resident) != 0 && mincore((void *)at, page, resident) != 0)
        return false;
    /*
     * The kernel's number for a thread's clock contains the thread's id. Id 0 would mean the clock
     * of the calling thread.
     */
    return pthread_getcpuclockid(thread, clock) == 0 && ~(*clock >> 3) != 0;
}

static bool reserve(void)
{
    struct thread *room = ps_memory_grown(clocks.thread, clocks.count, &clocks.capacity, sizeof(*room));
    if (room) clocks.thread = room;
    return room != NULL;
}

void ps_thread_clocks_see(uint64_t id, pthread_t pthread)
{
    clocks.walking = true;
    uint32_t place = find(id);
    if (place < clocks.count) {
        struct thread *known = &clocks.thread[place];
        known->now = ps_clock_try(known->clock);
        known->fresh = false;
        known->walk = clocks.walk;
        uint64_t used = known->now > known->at_tick ? known->now - known->at_tick : 0;
        if (used > clocks.most) clocks.most = used;
        return;
    }
    clockid_t clock;
    if (!reserve() || !has_clock(pthread, &clock)) return;
    /*
     * CPU time from before samples began is not charged. For a new thread, at most the time since
     * the last walk is.
     */
    uint64_t now = ps_clock_try(clock);
    uint64_t since = clocks.walked_ns ? ps_monotonic_ns() - clocks.walked_ns : 0;
    clocks.thread[clocks.count++] = (struct thread){.id = id,
                                                    .clock = clock,
                                                    .at_tick = now,
                                                    .now = now,
                                                    .charged = now > since ? now - since : 0,
                                                    .walk = clocks.walk,
                                                    .fresh = true};
}

uint64_t ps_thread_clocks_take(uint64_t id, uint64_t *thread_id)
{
    if (clocks.cursor >= clocks.count) clocks.cursor = 0;
    uint32_t place = find(id);
    if (place == clocks.count) return 0;
    struct thread *thread = &clocks.thread[place];
    /*
     * The thread counts as on the CPU when it used at least half as much as the busiest thread.
     * When several threads take turns, each has a share of the time since the tick.
     */
    uint64_t used = thread->now > thread->at_tick ? thread->now - thread->at_tick : 0;
    if (!thread->fresh && (!used || used < clocks.most / 2)) return 0;
    uint64_t weight = thread->now > thread->charged ? thread->now - thread->charged : 0;
    thread->charged = thread->now;
    *thread_id = (uint64_t) ~(thread->clock >> 3);
    return weight;
}

void ps_thread_clocks_end_walk(void)
{
    if (clocks.walking) clocks.walked_ns = ps_monotonic_ns();
    for (uint32_t i = 0; clocks.walking && i < clocks.count;) {
        if (clocks.thread[i].walk == clocks.walk) i++;
        else clocks.thread[i] = clocks.thread[--clocks.count];
    }
    pthread_mutex_unlock(&clocks.lock);
}

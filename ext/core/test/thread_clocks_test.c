#include "features/thread_clocks.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "features/samples.h"
#include "check.h"

enum { MINE = 7, OTHERS = 8 };

static uint64_t cpu(void)
{
    return ps_clock_read(CLOCK_THREAD_CPUTIME_ID);
}

static void use_cpu(uint64_t ns)
{
    uint64_t end = cpu() + ns;
    while (cpu() < end) {
    }
}

/* A thread that sleeps until it is told to use the CPU, or to end. */
static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t use;
    bool stop;
} other = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *wait_or_work(void *unused)
{
    pthread_mutex_lock(&other.lock);
    while (!other.stop) {
        if (other.use) use_cpu(other.use);
        other.use = 0;
        pthread_cond_broadcast(&other.changed);
        pthread_cond_wait(&other.changed, &other.lock);
    }
    pthread_mutex_unlock(&other.lock);
    return unused;
}

static void start_other(void)
{
    other.stop = false;
    CHECK(pthread_create(&other.thread, NULL, wait_or_work, NULL) == 0);
}

static void let_other_use(uint64_t ns)
{
    pthread_mutex_lock(&other.lock);
    other.use = ns;
    pthread_cond_broadcast(&other.changed);
    while (other.use) pthread_cond_wait(&other.changed, &other.lock);
    pthread_mutex_unlock(&other.lock);
}

static void end_other(void)
{
    pthread_mutex_lock(&other.lock);
    other.stop = true;
    pthread_cond_broadcast(&other.changed);
    pthread_mutex_unlock(&other.lock);
    pthread_join(other.thread, NULL);
}

struct weights {
    uint64_t mine, others;
};

/* A walk over this thread and the other one. */
static struct weights walk(void)
{
    struct weights weights;
    uint64_t id;
    CHECK(ps_thread_clocks_begin_walk());
    ps_thread_clocks_see(MINE, pthread_self());
    ps_thread_clocks_see(OTHERS, other.thread);
    weights.mine = ps_thread_clocks_take(MINE, &id);
    if (weights.mine) CHECK_EQUAL(id, gettid());
    weights.others = ps_thread_clocks_take(OTHERS, &id);
    ps_thread_clocks_end_walk();
    return weights;
}

static void weighs_who_was_on_the_cpu_and_carries_the_rest(void)
{
    start_other();
    ps_thread_clocks_forget();
    CHECK(ps_thread_clocks_tick()); /* no thread is known yet, so the walk has to look */
    struct weights first = walk();
    CHECK_EQUAL(first.mine, 0); /* what was used before the first walk does not count */
    CHECK_EQUAL(first.others, 0);

    let_other_use(30000000);
    uint64_t before = cpu();
    CHECK(ps_thread_clocks_tick());
    use_cpu(10000000);
    struct weights second = walk();
    CHECK(second.mine >= 10000000);
    CHECK(second.mine <= cpu());
    CHECK_EQUAL(second.others, 0); /* asleep since the tick */

    /* The time that it used before is added to the sample that finds it on the CPU. */
    CHECK(ps_thread_clocks_tick());
    let_other_use(20000000);
    struct weights third = walk();
    CHECK(third.others >= 50000000);
    clockid_t clock;
    CHECK(pthread_getcpuclockid(other.thread, &clock) == 0);
    CHECK(third.others <= ps_clock_read(clock));
    CHECK(third.mine <= cpu() - before);
    end_other();
}

/* A walk without threads, because the process slept, does not mean that threads have ended. */
static void keeps_threads_over_a_walk_without_threads(void)
{
    start_other();
    ps_thread_clocks_forget();
    walk();
    size_t used = ps_memory_used();
    CHECK(used > 0);
    CHECK(ps_thread_clocks_begin_walk());
    ps_thread_clocks_end_walk();
    ps_thread_clocks_tick();
    let_other_use(20000000);
    CHECK(walk().others >= 20000000);
    end_other();
    ps_thread_clocks_forget();
    CHECK(ps_memory_used() < used);
}

/* A thread that appears between two walks cannot have used more than the time between them. */
static void weighs_a_new_thread_with_what_it_can_have_used(void)
{
    start_other();
    let_other_use(80000000);
    ps_thread_clocks_forget();
    CHECK(ps_thread_clocks_begin_walk());
    ps_thread_clocks_see(MINE, pthread_self());
    ps_thread_clocks_end_walk();
    uint64_t since = ps_monotonic_ns();
    let_other_use(10000000);
    uint64_t weight = walk().others;
    CHECK(weight >= 10000000);
    CHECK(weight <= ps_monotonic_ns() - since + 10000000);
    end_other();
}

static void says_when_nobody_has_run(void)
{
    start_other();
    let_other_use(1000);
    ps_thread_clocks_forget();
    CHECK(ps_thread_clocks_begin_walk());
    ps_thread_clocks_see(OTHERS, other.thread);
    ps_thread_clocks_end_walk();
    /* The other thread may still be on its way to sleep. */
    AWAIT(!ps_thread_clocks_tick());
    let_other_use(1000000);
    CHECK(ps_thread_clocks_tick());
    end_other();
}

/* The C library reads the descriptor of a thread without a check. */
static void looks_at_no_thread_that_is_not_there(void)
{
    size_t size = 2 * (size_t)sysconf(_SC_PAGESIZE);
    void *gone = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ps_thread_clocks_forget();
    uint64_t id;
    CHECK(ps_thread_clocks_begin_walk());
    ps_thread_clocks_see(1, (pthread_t)gone); /* ended: its thread id is 0 */
    CHECK_EQUAL(ps_thread_clocks_take(1, &id), 0);
    munmap(gone, size);
    ps_thread_clocks_see(1, (pthread_t)gone);
    CHECK_EQUAL(ps_thread_clocks_take(1, &id), 0);
    ps_thread_clocks_end_walk();
}

static void does_without_memory(void)
{
    ps_thread_clocks_forget();
    ps_memory_set_limit(1);
    start_other();
    walk();
    CHECK(ps_thread_clocks_tick());
    CHECK_EQUAL(walk().mine, 0);
    ps_memory_set_limit(0);
    end_other();
}

int main(void)
{
    RUN(weighs_who_was_on_the_cpu_and_carries_the_rest);
    RUN(keeps_threads_over_a_walk_without_threads);
    RUN(weighs_a_new_thread_with_what_it_can_have_used);
    RUN(says_when_nobody_has_run);
    RUN(looks_at_no_thread_that_is_not_there);
    RUN(does_without_memory);
    return check_report("thread_clocks");
}

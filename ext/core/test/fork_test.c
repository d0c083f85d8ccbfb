#include "base/fork.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/watcher.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/thread_id.h"
#include "features/samples.h"
#include "features/thread_clocks.h"
#include "table/flush.h"
#include "usdt/info.h"
#include "usdt/looking.h"
#include "check.h"
#include "libstapsdt.h"

/* Forks. Runs the checks in the child, and fails when they fail or do not end. */
static void check_in_child(void (*checks)(void))
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        int before = check_failures;
        checks();
        _exit(check_failures != before);
    }
    int status = -1;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
}

/* ---- Every lock of the core is held ---- */

static bool stop;

/* These two locks are free between two calls, and are taken again at once. */
static void *take_lock_of_looking(void *unused)
{
    (void)unused;
    while (!PS_READ(stop)) ps_looking_ns();
    return NULL;
}

static void *take_lock_of_stacks(void *unused)
{
    (void)unused;
    while (!PS_READ(stop)) ps_samples_feature.forget();
    return NULL;
}

static int held; /* 1: the locks are held; 2: they may be given back */

static void *hold_the_others(void *unused)
{
    (void)unused;
    bool has_flush = ps_flush_try_lock(), has_clocks = ps_thread_clocks_begin_walk();
    PS_WRITE(probescope_info.sequence, probescope_info.sequence + 1); /* in the middle of a change */
    PS_WRITE_RELEASE(held, has_flush && has_clocks ? 1 : -1);
    while (PS_READ_ACQUIRE(held) == 1) check_sleep_ms(1);
    PS_WRITE(probescope_info.sequence, probescope_info.sequence + 1);
    ps_thread_clocks_end_walk();
    ps_flush_unlock();
    return NULL;
}

static void request(unsigned what) {}

static const ps_vm vm = {.request = request};

static void take_every_lock(void)
{
    CHECK_EQUAL(ps_thread_id(), syscall(SYS_gettid));
    CHECK_EQUAL(probescope_info.sequence % 2, 0);
    CHECK_EQUAL(probescope_info.pid, getpid());
    ps_looking_ns();
    ps_samples_feature.forget();
    CHECK(ps_flush_try_lock());
    ps_flush_unlock();
    CHECK(ps_thread_clocks_begin_walk());
    ps_thread_clocks_end_walk();
    ps_info_note("written by the child");
    ps_flush();
}

static void take_every_lock_and_watch(void)
{
    take_every_lock();
    CHECK_EQUAL(ps_watcher_start(&vm), 0);
    uint64_t looks = PS_READ(probescope_info.watcher_ticks);
    AWAIT(PS_READ(probescope_info.watcher_ticks) > looks);
    ps_watcher_stop();
}

static void frees_in_the_child_every_lock_that_another_thread_holds(void)
{
    enum { FORKS = 40 };
    static void *(*const work[])(void *) = {take_lock_of_looking, take_lock_of_stacks, hold_the_others};
    pthread_t threads[3];
    CHECK_EQUAL(ps_thread_id(), syscall(SYS_gettid)); /* the parent's, for the child to forget */
    held = 0;
    stop = false;
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, work[i], NULL);
    AWAIT(PS_READ_ACQUIRE(held) != 0);
    CHECK_EQUAL(PS_READ(held), 1);
    for (int i = 0; i < FORKS; i++) check_in_child(i % 8 ? take_every_lock : take_every_lock_and_watch);
    PS_WRITE_RELEASE(held, 2);
    PS_WRITE(stop, true);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

/* ---- The order ---- */

enum { MOST = 4 * PS_FORK_STEPS };

/* What ran: the step, with a letter for the time. Shared with the child. */
static struct record {
    int count;
    struct {
        char when;
        int step;
    } ran[MOST];
} * of_process, *of_child;
static pid_t parent;

static void note(char when, int step)
{
    struct record *record = getpid() == parent ? of_process : of_child;
    if (record->count == MOST) return;
    record->ran[record->count].when = when;
    record->ran[record->count++].step = step;
}

#define STEP(number)                                                                                         \
    static void before_##number(void)                                                                        \
    {                                                                                                        \
        note('b', number);                                                                                   \
    }                                                                                                        \
    static void in_parent_##number(void)                                                                     \
    {                                                                                                        \
        note('p', number);                                                                                   \
    }                                                                                                        \
    static void in_child_##number(void)                                                                      \
    {                                                                                                        \
        note('c', number);                                                                                   \
    }
STEP(0)
STEP(1)
STEP(2)
STEP(3)
STEP(4)
STEP(5)
STEP(6)
STEP(7)
STEP(8)
STEP(9)
STEP(10)
STEP(11)
#define FUNCTIONS(number)                                                                                    \
    {                                                                                                        \
        before_##number, in_parent_##number, in_child_##number                                               \
    }
static const ps_fork noting[] = {FUNCTIONS(0), FUNCTIONS(1), FUNCTIONS(2),  FUNCTIONS(3),
                                 FUNCTIONS(4), FUNCTIONS(5), FUNCTIONS(6),  FUNCTIONS(7),
                                 FUNCTIONS(8), FUNCTIONS(9), FUNCTIONS(10), FUNCTIONS(11)};
_Static_assert(sizeof(noting) / sizeof(noting[0]) == PS_FORK_STEPS, "one for each step");

static void runs_the_steps_in_the_order_of_the_list(void)
{
    struct record *records =
        mmap(NULL, 2 * sizeof(*records), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!CHECK(records != MAP_FAILED)) return;
    of_process = &records[0];
    of_child = &records[1];
    parent = getpid();
    /* Registered in another order than that of the list. */
    for (int i = 0; i < PS_FORK_STEPS; i++) {
        int step = i * 5 % PS_FORK_STEPS;
        ps_fork_at((enum ps_fork_step)step, noting[step]);
    }
    pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, NULL, 0);
    CHECK_EQUAL(of_process->count, 2 * PS_FORK_STEPS);
    CHECK_EQUAL(of_child->count, PS_FORK_STEPS);
    for (int i = 0; i < PS_FORK_STEPS; i++) {
        CHECK_EQUAL(of_process->ran[i].when, 'b');
        CHECK_EQUAL(of_process->ran[i].step, PS_FORK_STEPS - 1 - i);
        CHECK_EQUAL(of_process->ran[PS_FORK_STEPS + i].when, 'p');
        CHECK_EQUAL(of_process->ran[PS_FORK_STEPS + i].step, i);
        CHECK_EQUAL(of_child->ran[i].when, 'c');
        CHECK_EQUAL(of_child->ran[i].step, i);
    }
    for (int i = 0; i < PS_FORK_STEPS; i++) ps_fork_at((enum ps_fork_step)i, (ps_fork){NULL, NULL, NULL});
    munmap(records, 2 * sizeof(*records));
}

/* ---- The handler of libstapsdt ---- */

static SDTProvider_t *provider;

static void *unload(void *unused)
{
    (void)unused;
    providerUnload(provider);
    return NULL;
}

/* As a finalizer on the thread of CPython's worker does, for which a fork waits. */
static void await_unload(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, unload, NULL);
    pthread_join(thread, NULL);
}

static void nothing(void) {}

static void may_wait_before_a_fork_for_a_thread_that_unloads_a_provider(void)
{
    provider = providerInit("fork_test");
    CHECK(providerAddProbe(provider, "probe", 0) != NULL);
    CHECK_EQUAL(providerLoad(provider), 0);
    ps_fork_at(PS_FORK_VM, (ps_fork){.before = await_unload});
    alarm(60);
    check_in_child(nothing);
    alarm(0);
    CHECK(!provider->_handle);
    ps_fork_at(PS_FORK_VM, (ps_fork){NULL, NULL, NULL});
    providerDestroy(provider);
}

static void registers_once(void)
{
    for (int i = 0; i < 3; i++) CHECK_EQUAL(ps_fork_init(), 0);
    CHECK(ps_fork_is_handled());
}

int main(void)
{
    ps_info_start("test", "1", "0");
    CHECK(!ps_fork_is_handled());
    RUN(registers_once);
    RUN_FORKING_BESIDE_THREADS(frees_in_the_child_every_lock_that_another_thread_holds);
    RUN_FORKING(may_wait_before_a_fork_for_a_thread_that_unloads_a_provider);
    RUN(runs_the_steps_in_the_order_of_the_list); /* last: it replaces the core's steps */
    return check_report("fork");
}

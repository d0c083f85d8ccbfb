#include "usdt/looking.h"

#include <pthread.h>
#include <unistd.h>

#include "check.h"

static void busy_ns(uint64_t ns)
{
    uint64_t end = ps_monotonic_ns() + ns;
    while (ps_monotonic_ns() < end) {
    }
}

/* About one run in 64 is timed, and its time stands for the others. */
static void times_some_runs_for_all(void)
{
    uint64_t before = ps_looking_ns();
    for (int i = 0; i < 6400; i++) {
        ps_look look = ps_look_begin(PS_LOOK_FUNCTION);
        busy_ns(2000);
        ps_look_end(look);
    }
    uint64_t took = ps_looking_ns() - before;
    CHECK(ps_looks[PS_LOOK_FUNCTION].runs == 6400);
    CHECK(ps_looks[PS_LOOK_FUNCTION].timed >= 6400 / 96 && ps_looks[PS_LOOK_FUNCTION].timed <= 6400 / 32 + 1);
    CHECK(took >= 6400 * 2000u);             /* how much more depends on the machine */
    CHECK(ps_looking_ns() - before == took); /* counted once */
}

/* A run that was interrupted does not stand for the others. */
static void forgets_a_run_that_was_interrupted(void)
{
    for (int i = 0; i < 20; i++) {
        ps_look look = ps_look_begin_rare(PS_LOOK_BACKTRACE);
        busy_ns(1000);
        ps_look_end(look);
    }
    uint64_t before = ps_looking_ns();
    ps_look look = ps_look_begin_rare(PS_LOOK_BACKTRACE);
    usleep(50000);
    ps_look_end(look);
    CHECK(ps_looking_ns() - before < 1000000);
}

static void adds_what_the_vm_takes(void)
{
    ps_looking_besides(PS_LOOK_LINE, 100);
    uint64_t before = ps_looking_ns();
    for (int i = 0; i < 1000; i++) ps_look_end(ps_look_begin(PS_LOOK_LINE));
    uint64_t took = ps_looking_ns() - before;
    CHECK(took >= 1000 * 100u);

    /* Never negative. */
    ps_looking_besides(PS_LOOK_LINE, -1000000);
    before = ps_looking_ns();
    for (int i = 0; i < 1000; i++) ps_look_end(ps_look_begin(PS_LOOK_LINE));
    CHECK(ps_looking_ns() == before);
}

/* Returns the ns a run that 1,000 runs took, of which the VM's part is 1 ms as a rule. */
static uint64_t ns_a_run(int usual)
{
    ps_looking_besides(PS_LOOK_LATENCY, 1000000);
    ps_looking_usual(PS_LOOK_LATENCY, usual);
    uint64_t before = ps_looking_ns();
    for (int i = 0; i < 1000; i++) {
        ps_look look = ps_look_begin(PS_LOOK_LATENCY);
        for (uint64_t end = ps_ticks() + 200; ps_ticks() < end;) {
        }
        ps_look_end(look);
    }
    return (ps_looking_ns() - before) / 1000;
}

/* The timed part takes some 100 ns, and on a busy machine some us. The VM's part is far larger. */
static void scales_what_the_vm_takes_within_bounds(void)
{
    uint64_t slow = ns_a_run(1), fast = ns_a_run(1000000000);
    CHECK(slow >= 2500000 && slow < 2700000);
    CHECK(fast >= 500000 && fast < 700000);
}

static void *work(void *unused)
{
    (void)unused;
    CHECK(ps_looking_thread_begins());
    uint64_t end = ps_clock_read(CLOCK_THREAD_CPUTIME_ID) + 3000000;
    while (ps_clock_read(CLOCK_THREAD_CPUTIME_ID) < end) {
    }
    ps_looking_thread_ends();
    return NULL;
}

/* All CPU time of a thread of ours counts, also after the thread has ended. */
static void counts_the_whole_time_of_our_threads(void)
{
    uint64_t before = ps_looking_ns();
    for (int i = 0; i < 6; i++) { /* more than there is room for at the same time */
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
        pthread_join(thread, NULL);
    }
    CHECK(ps_looking_ns() - before >= 6 * 3000000u);
}

static void counts_work_that_is_no_hook(void)
{
    uint64_t before = ps_looking_ns();
    ps_looking_add(ps_ns_to_ticks(5000000));
    uint64_t took = ps_looking_ns() - before;
    CHECK(took >= 4990000 && took <= 5010000);
}

int main(void)
{
    RUN(times_some_runs_for_all);
    RUN(forgets_a_run_that_was_interrupted);
    RUN(adds_what_the_vm_takes);
    RUN(scales_what_the_vm_takes_within_bounds);
    RUN(counts_the_whole_time_of_our_threads);
    RUN(counts_work_that_is_no_hook);
    return check_report("looking");
}

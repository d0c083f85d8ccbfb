#include "base/last_ran.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/thread_id.h"
#include "check.h"

static struct {
    int tid;
    bool spins, stop;
    /* A file to read from, so that the thread spins in the kernel. 0: it spins in its own code. */
    int zeros;
} other;

static void *spin_or_sleep(void *unused)
{
    /* A thread's name is chosen by the application. These names look like fields. */
    prctl(PR_SET_NAME, other.zeros ? "a) 9 (b) 9 9 9" : "se.exec_start:9");
    static char memory[1 << 20];
    PS_WRITE_RELEASE(other.tid, (int)ps_thread_id());
    while (!PS_READ(other.stop)) {
        if (!PS_READ(other.spins)) check_sleep_ms(1000);
        /* Not by read(), because sanitizers check all of the memory behind it. */
        if (other.zeros) CHECK(syscall(SYS_read, other.zeros, memory, sizeof(memory)) == sizeof(memory));
    }
    return unused;
}

static pthread_t start(bool spins)
{
    pthread_t thread;
    other.stop = false;
    other.spins = spins;
    other.tid = 0;
    CHECK(pthread_create(&thread, NULL, spin_or_sleep, NULL) == 0);
    AWAIT(PS_READ_ACQUIRE(other.tid) != 0);
    return thread;
}

static void end(pthread_t thread)
{
    PS_WRITE(other.stop, true);
    pthread_join(thread, NULL);
}

static uint64_t own(void)
{
    (void)ps_clock_read(CLOCK_THREAD_CPUTIME_ID); /* makes the scheduler update its value */
    return ps_last_ran_ns((int)ps_thread_id());
}

/*
 * Two threads share one CPU. This one has it now, so the other one had it before. The scheduler notes
 * the same moment for both, until it notes that this one runs.
 */
static void tells_who_had_the_cpu_before(void)
{
    cpu_set_t before, one;
    CHECK(sched_getaffinity(0, sizeof(before), &before) == 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof(one), &one) == 0); /* the other thread inherits it */
    pthread_t thread = start(true);
    bool ran = false, same = false;
    for (int i = 0; i < 1000 && !(ran && same); i++) {
        uint64_t past = own();
        check_sleep_ms(5);
        uint64_t began = ps_last_ran_ns((int)ps_thread_id());
        uint64_t last = ps_last_ran_ns(PS_READ(other.tid)), now = own();
        CHECK(last <= began && began < now);
        ran |= last > past;
        same |= last > past && last == began;
    }
    CHECK(ran);
    CHECK(same);
    end(thread);
    sched_setaffinity(0, sizeof(before), &before);
}

static void stands_still_for_a_thread_that_sleeps(void)
{
    pthread_t thread = start(false);
    uint64_t first = 0;
    AWAIT(ps_last_ran_ns(PS_READ(other.tid)) == first ||
          ((first = ps_last_ran_ns(PS_READ(other.tid))), false));
    CHECK(first > 0);
    end(thread);
}

static void tells_who_sleeps(void)
{
    pthread_t thread = start(false);
    AWAIT(ps_is_asleep(PS_READ(other.tid)));
    end(thread);
    thread = start(true);
    check_sleep_ms(20);
    for (int i = 0; i < 100; i++) CHECK(!ps_is_asleep(PS_READ(other.tid)));
    end(thread);
    CHECK(!ps_is_asleep((int)ps_thread_id()));
}

static bool has_ticks(uint64_t least, struct ps_cpu_ticks *ticks)
{
    CHECK(ps_cpu_ticks_of(PS_READ(other.tid), ticks));
    return ticks->all >= least;
}

static void tells_what_part_of_its_time_a_thread_is_in_the_kernel(void)
{
    struct ps_cpu_ticks ticks;
    pthread_t thread = start(true);
    AWAIT(has_ticks(20, &ticks));
    CHECK(ticks.system <= ticks.all / 2);
    end(thread);
    other.zeros = open("/dev/zero", O_RDONLY);
    CHECK(other.zeros > 0);
    thread = start(true);
    AWAIT(has_ticks(20, &ticks));
    CHECK(ticks.system > ticks.all / 2);
    end(thread);
    close(other.zeros);
    other.zeros = 0;
}

/* Two threads that spin share one CPU, so each waits for about as long as it runs. */
static void tells_how_long_a_thread_waits_for_a_cpu(void)
{
    enum { ENOUGH_NS = 200000000 };
    struct ps_cpu_waits first, now;
    pthread_t thread = start(true);
    cpu_set_t before, one;
    CHECK(sched_getaffinity(0, sizeof(before), &before) == 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
    CHECK(sched_setaffinity(PS_READ(other.tid), sizeof(one), &one) == 0);
    CHECK(ps_cpu_waits_of(PS_READ(other.tid), &first));
    do {
        CHECK(ps_cpu_waits_of(PS_READ(other.tid), &now));
    } while (now.ran_ns - first.ran_ns < ENOUGH_NS);
    sched_setaffinity(0, sizeof(before), &before);
    CHECK(now.waited_ns - first.waited_ns > ENOUGH_NS / 2);
    end(thread);
}

static void knows_nothing_of_a_thread_that_is_gone(void)
{
    pthread_t thread = start(true);
    end(thread);
    AWAIT(ps_last_ran_ns(PS_READ(other.tid)) == 0);
    CHECK(!ps_is_asleep(PS_READ(other.tid)));
    struct ps_cpu_ticks ticks;
    CHECK(!ps_cpu_ticks_of(PS_READ(other.tid), &ticks));
    struct ps_cpu_waits waits;
    CHECK(!ps_cpu_waits_of(PS_READ(other.tid), &waits));
}

int main(void)
{
    if (!own()) {
        puts("last_ran: skipped: the kernel does not tell");
        return 0;
    }
    RUN(tells_who_had_the_cpu_before);
    RUN(stands_still_for_a_thread_that_sleeps);
    RUN(tells_who_sleeps);
    RUN(tells_what_part_of_its_time_a_thread_is_in_the_kernel);
    RUN(tells_how_long_a_thread_waits_for_a_cpu);
    RUN(knows_nothing_of_a_thread_that_is_gone);
    return check_report("last_ran");
}

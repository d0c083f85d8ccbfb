#include "base/cpu_timer.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "check.h"

enum { VALUE = 7 };

static uint32_t handled;
static int last_value;

static void handle(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    last_value = info->si_value.sival_int;
    PS_WRITE(handled, handled + 1);
}

static int number(void)
{
    return SIGRTMAX - 2;
}

static uint64_t cpu(void)
{
    return ps_clock_read(CLOCK_THREAD_CPUTIME_ID);
}

static void runs_out_once_when_the_thread_has_used_so_much(void)
{
    int timer = ps_cpu_timer_create((int)syscall(SYS_gettid), number(), VALUE);
    CHECK(timer >= 0);
    uint64_t due = cpu() + 20000000;
    handled = 0;
    ps_cpu_timer_start(timer, due);
    check_sleep_ms(60);
    CHECK_EQUAL(handled, 0);
    for (uint64_t end = cpu() + 2000000000; !PS_READ(handled) && cpu() < end;) {
    }
    CHECK_EQUAL(handled, 1);
    CHECK_EQUAL(last_value, VALUE);
    CHECK(cpu() >= due);
    for (uint64_t end = cpu() + 60000000; cpu() < end;) {
    }
    CHECK_EQUAL(handled, 1);
    ps_cpu_timer_delete(timer);
}

static int sleeper, cut;

static void *sleep_a_while(void *unused)
{
    PS_WRITE(sleeper, (int)syscall(SYS_gettid));
    struct timespec moment = {0, 300000000};
    PS_WRITE(cut, nanosleep(&moment, NULL) != 0 && errno == EINTR);
    return NULL;
}

/* The thread's clock passes that moment before the timer is started, as on a busy machine. */
static void ends_no_sleep_of_a_thread_whose_timer_another_one_starts(void)
{
    pthread_t thread;
    PS_WRITE(sleeper, 0);
    pthread_create(&thread, NULL, sleep_a_while, NULL);
    AWAIT(PS_READ(sleeper));
    check_sleep_ms(50);
    int timer = ps_cpu_timer_create(PS_READ(sleeper), number(), VALUE);
    CHECK(timer >= 0);
    ps_cpu_timer_start_in(timer, 1);
    pthread_join(thread, NULL);
    CHECK(!PS_READ(cut));
    ps_cpu_timer_delete(timer);
}

static void no_timer_of_a_thread_that_is_not_there(void)
{
    CHECK_EQUAL(ps_cpu_timer_create(1 << 21, number(), VALUE), -1);
}

/* What ps_cpu_timer_seen() returns agrees with what happens to a call here. */
static void says_whether_a_call_sees_it(void)
{
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number());
    pthread_sigmask(SIG_BLOCK, &one, NULL);
    enum ps_seen seen = PS_SEEN_UNKNOWN;
    for (int i = 0; i < 20 && seen == PS_SEEN_UNKNOWN; i++)
        seen = ps_cpu_timer_seen(number(), VALUE, &handled);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    CHECK(seen != PS_SEEN_UNKNOWN);
    int timer = ps_cpu_timer_create((int)syscall(SYS_gettid), number(), VALUE);
    int interrupted = 0;
    for (int i = 0; i < 300; i++) {
        ps_cpu_timer_start(timer, cpu() + 1000000);
        for (uint64_t end = cpu() + 900000; cpu() < end;) {
        }
        struct timespec moment = {0, 200000};
        interrupted += nanosleep(&moment, NULL) != 0 && errno == EINTR;
    }
    ps_cpu_timer_delete(timer);
    if (seen == PS_SEEN_BY_NOBODY) CHECK_EQUAL(interrupted, 0);
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(number(), &action, NULL);
    /* qemu-user uses clocks of the host, and ThreadSanitizer delays signals. */
    if (check_can_fork()) {
        RUN(runs_out_once_when_the_thread_has_used_so_much);
        RUN(ends_no_sleep_of_a_thread_whose_timer_another_one_starts);
        RUN(no_timer_of_a_thread_that_is_not_there);
        RUN(says_whether_a_call_sees_it);
    }
    return check_report("cpu_timer");
}

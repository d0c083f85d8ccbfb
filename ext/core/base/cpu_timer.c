#include "base/cpu_timer.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"

/* The kernel's struct sigevent. The C libraries differ in the name of the last field. */
struct event {
    union sigval value;
    int signal, notify;
    union {
        int thread;
        int pad[12];
    };
};

clockid_t ps_cpu_clock_of(int tid)
{
    enum { THREAD = 4, SCHEDULED = 2 }; /* CPUCLOCK_PERTHREAD_MASK, CPUCLOCK_SCHED */
    return (clockid_t)(~(unsigned)tid << 3 | THREAD | SCHEDULED);
}

int ps_cpu_timer_create(int tid, int signal, int value)
{
    struct event event = {
        .value.sival_int = value, .signal = signal, .notify = SIGEV_THREAD_ID, .thread = tid};
    int timer = -1;
    return syscall(SYS_timer_create, ps_cpu_clock_of(tid), &event, &timer) == 0 ? timer : -1;
}

static void set(int timer, int flags, uint64_t ns)
{
    struct itimerspec once = {.it_value = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)}};
    syscall(SYS_timer_settime, timer, flags, &once, NULL);
}

void ps_cpu_timer_start(int timer, uint64_t ns)
{
    set(timer, TIMER_ABSTIME, ns);
}

void ps_cpu_timer_start_in(int timer, uint64_t ns)
{
    set(timer, 0, ns);
}

void ps_cpu_timer_delete(int timer)
{
    syscall(SYS_timer_delete, timer);
}

/*
 * Without CONFIG_POSIX_CPU_TIMERS_TASK_WORK the timer's interrupt sends the signal during the
 * read(). The read() looks for signals after each page, and ends early. With the option the read()
 * is completed, and the signal comes right after it. A read() may also end early because a tracer
 * of the whole process stops it at that moment. So several reads have to agree.
 */
static enum ps_seen look(int timer, int zero, void *page, size_t size, const uint32_t *handled)
{
    enum { VECTORS = 64, AGREE = 4, MOST_NS = 100000000, SOON_NS = 50000 };
    struct iovec vector[VECTORS];
    for (int i = 0; i < VECTORS; i++) vector[i] = (struct iovec){page, size};
    uint64_t until = ps_clock_read(CLOCK_THREAD_CPUTIME_ID) + MOST_NS;
    for (int whole = 0, cut = 0; whole < AGREE;) {
        if (ps_clock_read(CLOCK_THREAD_CPUTIME_ID) > until) return PS_SEEN_UNKNOWN;
        uint32_t before = PS_READ(*handled);
        ps_cpu_timer_start(timer, ps_clock_read(CLOCK_THREAD_CPUTIME_ID) + SOON_NS);
        /*
         * When the timer ran out before it was started, its signal came at once and tells nothing.
         */
        if (PS_READ(*handled) != before) continue;
        ssize_t got = readv(zero, vector, VECTORS);
        if (PS_READ(*handled) == before) continue;
        if (got == (ssize_t)(size * VECTORS)) whole++;
        else if (++cut == AGREE) return PS_SEEN_BY_CALLS;
    }
    return PS_SEEN_BY_NOBODY;
}

enum ps_seen ps_cpu_timer_seen(int signal, int value, const uint32_t *handled)
{
    enum { BYTES = 256 * 1024 };
    int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    void *page = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int timer = ps_cpu_timer_create((int)syscall(SYS_gettid), signal, value);
    enum ps_seen seen = timer < 0 ? PS_SEEN_NO_TIMER : PS_SEEN_UNKNOWN;
    if (zero >= 0 && page != MAP_FAILED && timer >= 0) {
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, signal);
        pthread_sigmask(SIG_UNBLOCK, &one, NULL);
        seen = look(timer, zero, page, BYTES, handled);
        pthread_sigmask(SIG_BLOCK, &one, NULL);
    }
    if (timer >= 0) ps_cpu_timer_delete(timer);
    if (page != MAP_FAILED) munmap(page, BYTES);
    if (zero >= 0) close(zero);
    return seen;
}

/*
 * Does a kernel let its own threads starve beside thread pools? Does a thread of the library with a
 * short slice (decision 199) contribute to it?
 *
 *     cc -O1 -pthread -o starved bench/starved.c && ./starved [PROCESSES] [SECONDS]      # 10 and 20
 *
 * Each process has four threads that take turns with a mutex, and one that wakes up a hundred times
 * a second like the watcher. Meanwhile membarrier(2) waits for a grace period of RCU again and
 * again, like the removal of an uprobe. The kernel thread that ends grace periods is scheduled like
 * any other. Prints how long membarrier(2) waited, without short slices and with them.
 */
#define _GNU_SOURCE
#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, PROCESSES_MOST = 1000, SLICE_NS = 100000, TICK_NS = 10000000 };

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static bool short_slices;

/* The first version of struct sched_attr, for sched_setattr(2). */
struct scheduling {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void spin(int steps)
{
    volatile int n = 0;
    while (n < steps) n++;
}

static void *watch(void *unused)
{
    struct scheduling own = {.size = sizeof(own)};
    if (short_slices && syscall(SYS_sched_getattr, 0, &own, sizeof(own), 0) == 0) {
        own.runtime_ns = SLICE_NS;
        syscall(SYS_sched_setattr, 0, &own, 0);
    }
    for (;;) {
        nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
        spin(30000);
    }
    return unused;
}

static void *work(void *unused)
{
    for (;;) {
        pthread_mutex_lock(&turn);
        spin(50000);
        pthread_mutex_unlock(&turn);
    }
    return unused;
}

/*
 * Starts the pool in its own session, like a service: the kernel divides CPUs between sessions
 * first.
 */
static pid_t start_pool(void)
{
    pid_t child = fork();
    if (child) return child;
    setsid();
    pthread_t thread;
    pthread_create(&thread, NULL, watch, NULL);
    for (int i = 0; i < THREADS; i++) pthread_create(&thread, NULL, work, NULL);
    for (;;) pause();
}

static void measure(int processes, double seconds)
{
    pid_t pool[PROCESSES_MOST];
    for (int i = 0; i < processes; i++) pool[i] = start_pool();
    double begun = now(), longest = 0, total = 0;
    int count = 0, over = 0;
    while (now() < begun + seconds) {
        double before = now();
        if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) != 0) {
            perror("membarrier");
            break;
        }
        double took = now() - before;
        longest = took > longest ? took : longest;
        total += took;
        over += took > 1;
        count++;
        usleep(4000);
    }
    for (int i = 0; i < processes; i++) kill(pool[i], SIGKILL);
    for (int i = 0; i < processes; i++) waitpid(pool[i], NULL, 0);
    printf("%-20s %5d grace periods, mean %6.1f ms, longest %6.0f ms, %d over 1 s\n",
           short_slices ? "short slices" : "no short slices", count, count ? 1e3 * total / count : 0,
           1e3 * longest, over);
    fflush(stdout);
}

int main(int count, char **argument)
{
    int processes = count > 1 ? atoi(argument[1]) : 10;
    double seconds = count > 2 ? atof(argument[2]) : 20;
    if (processes < 1 || processes > PROCESSES_MOST) {
        fprintf(stderr, "PROCESSES is 1 to %d\n", PROCESSES_MOST);
        return 2;
    }
    for (int turn = 0; turn < 8; turn++) {
        short_slices = turn % 2;
        measure(processes, seconds);
    }
    return 0;
}

/*
 * For ticks_spec.rb: shows whether anything in the process notices the signal of a tick.
 *
 *   Ticks.signal            number of the signal, or nil without a handler
 *   Ticks.waits(number)     this many short waits, each followed by a moment of work, without the
 *                           VM lock => {calls:, interrupted:, short:}
 *   Ticks.exec_with_pending(path, argument)  blocks all signals, works for 100 ms and calls exec
 *   Ticks.storm(rate)       this many signals a second, like a timer's, to all of Ruby's threads,
 *                           until Ticks.calm => number sent
 *   Ticks.profile(seconds)  works for this CPU time, with SIGPROF for each 10 ms of CPU time as in
 *                           a profiler => number of signals
 *   Ticks.alarm(seconds)    alarm()
 *   Ticks.sandbox(action)   from now on a seccomp filter answers timer_create() with this action
 */
#include <ruby/ruby.h>
#include <ruby/thread.h>

#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static unsigned long ns_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (unsigned long)t.tv_sec * 1000000000ul + (unsigned long)t.tv_nsec;
}

static void work(unsigned long ns)
{
    unsigned long end = ns_of(CLOCK_THREAD_CPUTIME_ID) + ns;
    while (ns_of(CLOCK_THREAD_CPUTIME_ID) < end) {
    }
}

static int signal_of_ticks(void)
{
    struct sigaction now;
    return sigaction(SIGURG, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) ? SIGURG : 0;
}

static VALUE number_of_signal(VALUE self)
{
    int number = signal_of_ticks();
    return number ? INT2FIX(number) : Qnil;
}

static struct {
    unsigned long most, calls, interrupted, short_;
} waits;

static void *wait_and_work(void *unused)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    while (waits.calls < waits.most) {
        struct timespec time = {0, 500000};
        struct timeval same = {0, 500};
        struct epoll_event event;
        unsigned long began = ns_of(CLOCK_MONOTONIC);
        int result = 0;
        switch (waits.calls++ % 5) {
        case 0: result = nanosleep(&time, NULL); break;
        case 1: result = select(0, NULL, NULL, NULL, &same); break;
        case 2: result = ppoll(NULL, 0, &time, NULL); break;
        case 3: result = epoll_wait(epoll, &event, 1, 1); break;
        case 4: result = clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL) ? -1 : 0; break;
        }
        if (result < 0) waits.interrupted++;
        if (ns_of(CLOCK_MONOTONIC) - began < 490000) waits.short_++;
        work(300000);
    }
    close(epoll);
    return NULL;
}

static VALUE do_waits(VALUE self, VALUE number)
{
    waits.calls = waits.interrupted = waits.short_ = 0;
    waits.most = NUM2ULONG(number);
    rb_thread_call_without_gvl(wait_and_work, NULL, NULL, NULL);
    VALUE result = rb_hash_new();
    rb_hash_aset(result, ID2SYM(rb_intern("calls")), ULONG2NUM(waits.calls));
    rb_hash_aset(result, ID2SYM(rb_intern("interrupted")), ULONG2NUM(waits.interrupted));
    rb_hash_aset(result, ID2SYM(rb_intern("short")), ULONG2NUM(waits.short_));
    return result;
}

static VALUE exec_with_pending(VALUE self, VALUE path, VALUE argument)
{
    sigset_t all, pending, none;
    sigfillset(&all);
    sigemptyset(&none);
    char *program = StringValueCStr(path), *arguments[] = {program, StringValueCStr(argument), NULL};
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    work(100000000);
    sigpending(&pending);
    bool waits_there = sigismember(&pending, signal_of_ticks()) == 1;
    if (!waits_there) _exit(3);
    execv(program, arguments);
    _exit(4);
}

static struct {
    bool on;
    unsigned long gap_ns, sent;
    pthread_t thread;
} storm;

static void name_of(int tid, char *name, size_t size)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d/comm", tid);
    FILE *file = fopen(path, "re");
    if (!file || !fgets(name, (int)size, file)) name[0] = 0;
    if (file) fclose(file);
}

/*
 * Whether this is the VM's thread that ends time slices, which has the name of the program. No tick
 * is armed for it. From 3.3 on, a signal to it more often than every 10 ms prevents the end of
 * slices: a thread that computes keeps the VM lock for good.
 */
static bool ends_slices(int tid)
{
    char program[32], name[32];
    name_of((int)getpid(), program, sizeof(program));
    name_of(tid, name, sizeof(name));
    return tid != (int)getpid() && strcmp(name, program) == 0;
}

static void send_to_all(int number, int value)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *task;
    pid_t own = (pid_t)syscall(SYS_gettid);
    while (tasks && (task = readdir(tasks)) != NULL) {
        int tid = atoi(task->d_name);
        if (tid <= 0 || tid == own || ends_slices(tid)) continue;
        for (int i = 0; i < value; i++) {
            siginfo_t info;
            memset(&info, 0, sizeof(info));
            info.si_code = SI_TIMER;
            info.si_value.sival_int = i;
            if (syscall(SYS_rt_tgsigqueueinfo, getpid(), tid, number, &info) == 0)
                __atomic_fetch_add(&storm.sent, 1, __ATOMIC_RELAXED);
            unsigned long next = ns_of(CLOCK_MONOTONIC) + storm.gap_ns;
            while (ns_of(CLOCK_MONOTONIC) < next) {
            }
        }
    }
    if (tasks) closedir(tasks);
}

static void *blow(void *unused)
{
    while (__atomic_load_n(&storm.on, __ATOMIC_ACQUIRE)) {
        int number = signal_of_ticks();
        if (number) send_to_all(number, 8);
        struct timespec moment = {0, 100000};
        nanosleep(&moment, NULL);
    }
    return NULL;
}

static VALUE begin_storm(VALUE self, VALUE rate)
{
    storm.gap_ns = 1000000000ul / NUM2ULONG(rate);
    __atomic_store_n(&storm.on, true, __ATOMIC_RELEASE);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_create(&storm.thread, NULL, blow, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return Qnil;
}

static VALUE end_storm(VALUE self)
{
    __atomic_store_n(&storm.on, false, __ATOMIC_RELEASE);
    pthread_join(storm.thread, NULL);
    return ULONG2NUM(storm.sent);
}

static uint32_t profiled;

static void on_profile(int number)
{
    __atomic_fetch_add(&profiled, 1, __ATOMIC_RELAXED);
}

static VALUE profile(VALUE self, VALUE seconds)
{
    struct sigaction handler = {.sa_handler = on_profile, .sa_flags = SA_RESTART}, before;
    struct itimerval each = {{0, 10000}, {0, 10000}}, never = {{0, 0}, {0, 0}};
    profiled = 0;
    sigaction(SIGPROF, &handler, &before);
    setitimer(ITIMER_PROF, &each, NULL);
    work((unsigned long)(NUM2DBL(seconds) * 1e9));
    setitimer(ITIMER_PROF, &never, NULL);
    sigaction(SIGPROF, &before, NULL);
    return UINT2NUM(profiled);
}

static VALUE begin_alarm(VALUE self, VALUE seconds)
{
    return UINT2NUM(alarm(NUM2UINT(seconds)));
}

static VALUE sandbox(VALUE self, VALUE action)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_timer_create, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, NUM2UINT(action)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(steps) / sizeof(*steps), steps};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
        rb_sys_fail("seccomp");
    return Qnil;
}

void Init_ticks(void)
{
    VALUE ticks = rb_define_module("Ticks");
    rb_define_singleton_method(ticks, "signal", number_of_signal, 0);
    rb_define_singleton_method(ticks, "waits", do_waits, 1);
    rb_define_singleton_method(ticks, "exec_with_pending", exec_with_pending, 2);
    rb_define_singleton_method(ticks, "storm", begin_storm, 1);
    rb_define_singleton_method(ticks, "calm", end_storm, 0);
    rb_define_singleton_method(ticks, "profile", profile, 1);
    rb_define_singleton_method(ticks, "alarm", begin_alarm, 1);
    rb_define_singleton_method(ticks, "sandbox", sandbox, 1);
    rb_define_const(ticks, "KILL", UINT2NUM(SECCOMP_RET_KILL_PROCESS));
    rb_define_const(ticks, "ERROR", UINT2NUM(SECCOMP_RET_ERRNO | EPERM));
    rb_define_const(ticks, "ALLOW", UINT2NUM(SECCOMP_RET_ALLOW));
}

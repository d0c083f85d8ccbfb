/*
 * Wakes a Ruby process whose threads all wait, so that it runs a job.
 *
 * Ruby runs a job on the thread that ran Ruby code last, as soon as that thread runs again. In a
 * server with a request a second many requests of other threads may come first. A signal works
 * sooner. Ruby's C handler counts the signal and wakes the main thread, which checks for
 * interrupts, jobs among them, and for the signal's trap. ps_wake() calls the same C function on
 * the watcher's thread. It passes the number of a signal that Ruby reserves: Signal.trap refuses
 * SIGVTALRM in every version. So there is no trap, and Ruby does nothing about the signal. No
 * signal is sent and no disposition changes. After a trap ran, Mutex#sleep and
 * ConditionVariable#wait return early; here they go on to sleep.
 * (docs/decisions/161-waking-an-idle-ruby.md)
 *
 * As with every signal, the main thread's system call ends with EINTR, and a C extension that waits
 * there without the VM lock is asked to stop. Ruby begins its own waits again. Other code may not:
 * an open() of a FIFO would fail, a database client may cancel its query. So the main thread is
 * only woken out of system calls in which Ruby itself, or an event loop, waits.
 */
#include <ruby/ruby.h>
#include <ruby/debug.h>

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/task_file.h"
#include "base/thread_id.h"
#include "hooks.h"

/* Ruby's handler of trapped signals; NULL: it was not found, and nothing is woken */
static void (*handler)(int);
static int main_thread; /* its id, as gettid() returns it there */

/*
 * Ruby has one C function for all signals that it handles by default or for a trap. A handler of
 * another extension is in another file. Where Ruby is linked statically it may be in the same file,
 * but then the handlers differ.
 */
static void find_handler(void)
{
    static const int handled[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGALRM, SIGUSR1, SIGUSR2};
    Dl_info ruby, other;
    handler = NULL;
    if (!dladdr((void *)(uintptr_t)rb_profile_frames, &ruby)) return;
    for (size_t i = 0; i < sizeof(handled) / sizeof(handled[0]); i++) {
        struct sigaction now;
        if (sigaction(handled[i], NULL, &now) != 0 || now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)
            continue;
        if (!dladdr((void *)(uintptr_t)now.sa_handler, &other) || other.dli_fbase != ruby.dli_fbase) continue;
        if (handler && handler != now.sa_handler) {
            handler = NULL;
            return;
        }
        handler = now.sa_handler;
    }
}

/*
 * In a forked child, Ruby 3.1 and 3.2 return the id that the main thread had in the parent. So the
 * id is read on the thread itself, or before the fork, or set after the fork.
 */
int ps_native_id(VALUE thread)
{
    if (thread == rb_thread_current()) return (int)ps_thread_id();
    if (main_thread && thread == rb_thread_main()) return main_thread;
    VALUE id = rb_funcall(thread, rb_intern("native_thread_id"), 0);
    return FIXNUM_P(id) ? FIX2INT(id) : 0;
}

void ps_wake_init(void)
{
    main_thread = 0;
    int known = ps_native_id(rb_thread_main());
    main_thread = known ? known : (int)getpid();
    find_handler();
}

void ps_wake_after_fork(void)
{
    main_thread = (int)getpid();
}

/* True for a file that is no connection of a database client: no socket, or a listening one. */
static bool is_no_connection(int file)
{
    struct stat of;
    int listens = 0;
    socklen_t size = sizeof(listens);
    if (fstat(file, &of) != 0) return false;
    return !S_ISSOCK(of.st_mode) ||
           (getsockopt(file, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens);
}

/*
 * Ruby polls the one file that it reads or accepts from. ps_copy() because the other thread may
 * have left the call, and `files` with it.
 */
static bool polls_no_connection(uint64_t files, uint64_t count)
{
    struct pollfd one;
    return count == 1 && ps_copy(&one, (void *)(uintptr_t)files, sizeof(one)) && is_no_connection(one.fd);
}

/* Is the thread in a system call that waits, and that is begun again after EINTR? */
static bool waits(int thread)
{
    char text[128];
    long number;
    unsigned long argument[2];
    if (!ps_task_file_read(thread, "syscall", text, sizeof(text))) return false;
    /* The text is "running". */
    if (sscanf(text, "%ld %lx %lx", &number, &argument[0], &argument[1]) != 3) return false;
    switch (number) {
    case SYS_read: return is_no_connection((int)argument[0]);
#ifdef SYS_poll
    case SYS_poll: return polls_no_connection(argument[0], argument[1]);
#endif
    case SYS_ppoll: return argument[1] != 1 || polls_no_connection(argument[0], argument[1]);
    case SYS_futex:
    case SYS_pselect6:
    case SYS_epoll_pwait:
    case SYS_clock_nanosleep:
    case SYS_wait4:
    case SYS_waitid:
    case SYS_restart_syscall: /* a call that slept, after a SIGSTOP */
#ifdef SYS_select
    case SYS_select:
#endif
#ifdef SYS_epoll_wait
    case SYS_epoll_wait:
#endif
#ifdef SYS_epoll_pwait2
    case SYS_epoll_pwait2:
#endif
        return true;
    default: return false;
    }
}

bool ps_wake(void)
{
    if (!handler || !waits(main_thread)) return false;
    handler(SIGVTALRM);
    return true;
}

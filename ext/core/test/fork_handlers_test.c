/* There is no memory for any handler of forks. */
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/watcher.h"
#include "base/thread_id.h"
#include "usdt/info.h"
#include "check.h"
#include "libstapsdt.h"

/* Replaces the C library's. */
int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    return ENOMEM;
}

static void request(unsigned what) {}

static void starts_no_watcher(void)
{
    static const ps_vm vm = {.request = request};
    CHECK_EQUAL(ps_watcher_start(&vm), ENOMEM);
    CHECK(!ps_watcher_is_running());
    CHECK(!(probescope_info.flags & PS_INFO_WATCHER));
}

static void makes_no_provider(void)
{
    CHECK(!providerInit("shop"));
}

static void knows_the_thread_of_a_child(void)
{
    CHECK_EQUAL(ps_thread_id(), syscall(SYS_gettid));
    pid_t child = fork();
    if (child == 0) _exit(ps_thread_id() != (uint64_t)syscall(SYS_gettid));
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
    RUN(starts_no_watcher);
    RUN(makes_no_provider);
    RUN(knows_the_thread_of_a_child);
    return check_report("fork_handlers");
}

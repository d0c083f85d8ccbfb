#include "base/thread_id.h"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* Replaces the C library's getpid(). */
static int asked;
pid_t getpid(void)
{
    asked++;
    return (pid_t)syscall(SYS_getpid);
}

static void asks_the_kernel_once(void)
{
    uint64_t id = ps_thread_id();
    CHECK_EQUAL(id, syscall(SYS_gettid));
    int before = asked;
    for (int i = 0; i < 100; i++) CHECK_EQUAL(ps_thread_id(), id);
    CHECK_EQUAL(asked, before);
}

static void knows_the_thread_of_a_child(void)
{
    uint64_t of_parent = ps_thread_id();
    pid_t child = fork();
    if (child == 0)
        _exit(ps_thread_id() == (uint64_t)syscall(SYS_gettid) && ps_thread_id() != of_parent ? 0 : 1);
    int status = -1;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
}

int main(void)
{
    RUN(asks_the_kernel_once);
    RUN(knows_the_thread_of_a_child);
    return check_report("thread_id");
}

#include "base/thread_id.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fork.h"
#include "check.h"

/* Replaces the C library's syscall(), with which ps_thread_id() asks. */
static int asked;
long syscall(long number, ...)
{
    if (number != SYS_gettid) abort();
    asked++;
    return gettid();
}

static void asks_the_kernel_each_time_without_a_handler_of_forks(void)
{
    for (int i = 0; i < 100; i++) CHECK_EQUAL(ps_thread_id(), gettid());
    CHECK_EQUAL(asked, 100);
}

static void asks_the_kernel_once(void)
{
    for (int i = 0; i < 100; i++) CHECK_EQUAL(ps_thread_id(), gettid());
    CHECK_EQUAL(asked, 1);
}

static void knows_the_thread_of_a_child(void)
{
    uint64_t of_parent = ps_thread_id();
    pid_t child = fork();
    if (child == 0) _exit(ps_thread_id() == (uint64_t)gettid() && ps_thread_id() != of_parent ? 0 : 1);
    int status = -1;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
}

int main(void)
{
    RUN(asks_the_kernel_each_time_without_a_handler_of_forks);
    ps_fork_init();
    asked = 0;
    RUN(asks_the_kernel_once);
    RUN(knows_the_thread_of_a_child);
    return check_report("thread_id");
}

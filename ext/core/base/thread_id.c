#include "base/thread_id.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"

static __thread uint64_t id;
static bool is_kept; /* else each call asks the kernel: a child would get the parent's id */

/* Runs on the only thread of the child. */
static void after_fork_in_child(void)
{
    id = 0;
}

/* Registered here and not at the first call, which may be in a hook: registering takes memory. */
__attribute__((constructor)) static void init(void)
{
    is_kept = pthread_atfork(NULL, NULL, after_fork_in_child) == 0;
}

uint64_t ps_thread_id(void)
{
    if (PS_UNLIKELY(!id || !is_kept)) id = (uint64_t)syscall(SYS_gettid);
    return id;
}

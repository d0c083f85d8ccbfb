#include "base/thread_id.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"

static __thread uint64_t id;

/* Runs on the only thread of the child. */
static void after_fork_in_child(void)
{
    id = 0;
}

/* Registered here and not at the first call, which may be in a hook: registering takes memory. */
__attribute__((constructor)) static void init(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

uint64_t ps_thread_id(void)
{
    if (PS_UNLIKELY(!id)) id = (uint64_t)syscall(SYS_gettid);
    return id;
}

#include "thread_id.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "atomic.h"

uint64_t ps_thread_id(void)
{
    static __thread uint64_t id;
    static __thread pid_t of; /* a fork changes it */
    if (PS_UNLIKELY(!id || of != getpid())) {
        id = (uint64_t)syscall(SYS_gettid);
        of = getpid();
    }
    return id;
}

#include "base/thread_id.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fork.h"
#include "base/thread_record.h"

static __thread uint64_t id;

static void after_fork_in_child(void)
{
    id = 0;
}
PS_FORK_STEP(PS_FORK_THREAD_ID, .in_child = after_fork_in_child)

uint64_t ps_thread_id(void)
{
    if (PS_LIKELY(id)) return id;
    bool ours = ps_ours_begin();
    uint64_t asked = (uint64_t)syscall(SYS_gettid);
    ps_ours_end(ours);
    /* Without the handler, a child would keep the parent's id. */
    if (ps_fork_is_handled()) id = asked;
    return asked;
}

int ps_process_id(void)
{
    bool ours = ps_ours_begin();
    int asked = (int)getpid();
    ps_ours_end(ours);
    return asked;
}

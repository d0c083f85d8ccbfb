/* A program whose thread-local variables are larger than the watcher's stack. */
#include "agent/watcher.h"

#include "usdt/info.h"
#include "check.h"

static __thread volatile char large[300 * 1024];

static void nothing(unsigned what)
{
    (void)what;
}

static void starts_where_thread_local_variables_are_large(void)
{
    static const ps_vm vm = {.request = nothing};
    large[0] = 1;
    ps_info_start("ruby", "3.1.2", "0.1.0");
    CHECK_EQUAL(ps_watcher_start(&vm), 0);
    CHECK(ps_watcher_is_running());
    AWAIT(__atomic_load_n(&probescope_info.watcher_ticks, __ATOMIC_RELAXED) > 0);
    ps_watcher_stop();
}

int main(void)
{
    RUN(starts_where_thread_local_variables_are_large);
    return check_report("static_tls");
}

#include "base/fork.h"

#include <pthread.h>

#include "base/thread_record.h"

static ps_fork steps[PS_FORK_STEPS];
static bool is_handled;

void ps_fork_at(enum ps_fork_step step, ps_fork what)
{
    steps[step] = what;
}

static void before(void)
{
    bool ours = ps_ours_begin();
    for (int step = PS_FORK_STEPS - 1; step >= 0; step--)
        if (steps[step].before) steps[step].before();
    ps_ours_end(ours);
}

static void in_parent(void)
{
    bool ours = ps_ours_begin();
    for (int step = 0; step < PS_FORK_STEPS; step++)
        if (steps[step].in_parent) steps[step].in_parent();
    ps_ours_end(ours);
}

static void in_child(void)
{
    bool ours = ps_ours_begin();
    for (int step = 0; step < PS_FORK_STEPS; step++)
        if (steps[step].in_child) steps[step].in_child();
    ps_ours_end(ours);
}

int ps_fork_init(void)
{
    int error = is_handled ? 0 : pthread_atfork(before, in_parent, in_child);
    is_handled = !error;
    return error;
}

bool ps_fork_is_handled(void)
{
    return is_handled;
}

/*
 * What is to be done around a fork, in one order: that of enum ps_fork_step. Only base/fork.c
 * registers handlers with the C library. A file registers its step with PS_FORK_STEP().
 *
 *   before()     from the last step to the first, on the forking thread
 *   in_parent()  from the first step to the last, on the same thread
 *   in_child()   from the first step to the last, on the only thread of the child. A thread of the
 *                parent may have held any lock, so a step initialises the locks of its file.
 *
 * All steps run in every fork, whether a watcher runs or not.
 */
#ifndef PS_FORK_H
#define PS_FORK_H

#include <stdbool.h>

enum ps_fork_step {
    PS_FORK_THREAD_ID,       /* before every step that reads it */
    PS_FORK_INFO,            /* before every step that writes to probescope_info */
    PS_FORK_LOOKING,         /* before PS_FORK_TABLES, which takes the lock of the cost of hooks */
    PS_FORK_SAMPLES,         /* the stacks of the parent go */
    PS_FORK_TABLES,          /* the child's interval begins. From here on the core's locks are free */
    PS_FORK_HERE,            /* the records of the parent's threads are free */
    PS_FORK_VM,              /* what other threads did; timers, locks and the worker of the VM */
    PS_FORK_JOBS,            /* Ruby 3.1 and 3.2: its list of jobs */
    PS_FORK_OVERHEAD,        /* after PS_FORK_VM: asks the VM to cover functions again */
    PS_FORK_PROCESS_CONTEXT, /* its page is not inherited */
    PS_FORK_WATCHER,         /* flushes and starts the thread: after every step of what they use */
    PS_FORK_INSTALL,         /* Python: may install, which starts a watcher where none runs */
    PS_FORK_STEPS
};

/* NULL where there is nothing to do. */
typedef struct ps_fork {
    void (*before)(void);
    void (*in_parent)(void);
    void (*in_child)(void);
} ps_fork;

/* Before ps_fork_init(). Replaces an earlier registration of this step. */
void ps_fork_at(enum ps_fork_step step, ps_fork what);

/*
 * At the top level of a file: registers its step when the library is loaded. `...`: the fields of a
 * ps_fork.
 */
#define PS_FORK_STEP(step, ...)                                                                              \
    __attribute__((constructor)) static void register_##step(void)                                           \
    {                                                                                                        \
        ps_fork_at(step, (ps_fork){__VA_ARGS__});                                                            \
    }

/*
 * Called when the VM loads the extension and before the watcher starts. Registers the handler once.
 * Not a constructor: libstapsdt has a handler of its own, which takes its lock. The library
 * registers it when it is loaded. Handlers that run before a fork run in the reverse order. So
 * before() may wait for a thread that unloads a provider.
 *
 * Returns an errno: then no step runs, a child would wait for the parent's locks and threads, and
 * nothing is installed.
 */
int ps_fork_init(void);
/* Has ps_fork_init() succeeded? */
bool ps_fork_is_handled(void);

#endif

/*
 * install() and uninstall(): one change at a time. uninstall() waits for the watcher and the worker
 * to end, without the GIL. A call from another thread waits for the change, without the GIL as
 * well. Two kinds of calls may not wait. They leave a wish instead:
 *
 *   within a change    hooks that go may run an audit hook or a __del__ of the application's, which
 *                      calls install() or uninstall(). The change fulfils the wish before it ends
 *   on the worker      such code runs there too, and uninstall() waits for the worker's end. The
 *                      change that is under way fulfils the wish; without one, the main thread does
 *                      at its next step
 *
 * Python runs signal handlers between two steps of the main thread, so never within one of these
 * waits.
 */
#include "hooks.h"

#include <pthread.h>

#include "base/fork.h"
#include "base/memory.h"
#include "base/thread_record.h"
#include "eval_breaker.h"
#include "gil_wait.h"

enum wish { NOTHING, INSTALL, UNINSTALL };

static struct {
    pthread_mutex_t lock; /* no thread that holds it waits for the GIL */
    pthread_cond_t ended;
    bool under_way;
    pthread_t thread; /* the thread that makes the change */
    bool half_done;   /* part of the change is made, and part of it is left */
    enum wish wish;
    size_t memory_limit; /* of the last install() */
} change = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

/* Returns an errno. */
static int start(void)
{
    ps_turn turn;
    ps_turn_begin(&turn);
    int error = 0;
    if (!ps_features_installed()) {
        change.half_done = true;
        ps_memory_set_limit(change.memory_limit);
        ps_gil_wait_init();
        ps_requests_prepare();
        error = ps_features_install();
        change.half_done = false;
    }
    ps_turn_end(&turn);
    return error;
}

static void stop(void)
{
    if (!ps_features_installed()) return;
    ps_turn turn;
    ps_turn_begin(&turn);
    change.half_done = true;
    ps_features_uninstall();
    ps_exceptions_end();
    /*
     * Both threads may be waiting for the GIL. Without a GIL, another thread may be in a hook and
     * wait for its turn.
     */
    bool ours = ps_ours_begin();
    PyThreadState *state = PyEval_SaveThread();
    ps_watcher_stop();
    ps_worker_stop();
    PyEval_RestoreThread(state);
    ps_ours_end(ours);
    while (!ps_features_unhook()) PyEval_RestoreThread(PyEval_SaveThread());
    change.half_done = false;
    ps_turn_end(&turn);
}

static int fulfil(void *unused);

/* False: this call may not wait, and has left the wish. */
static bool begin_change(enum wish wish)
{
    PyThreadState *state = NULL;
    pthread_mutex_lock(&change.lock);
    bool is_within = change.under_way && pthread_equal(change.thread, pthread_self());
    if (is_within || ps_worker_is_here()) {
        bool for_main_thread = !change.under_way;
        if (wish) change.wish = wish;
        pthread_mutex_unlock(&change.lock);
        if (for_main_thread) ps_pending_add(fulfil, NULL);
        return false;
    }
    if (change.under_way) {
        pthread_mutex_unlock(&change.lock);
        state = PyEval_SaveThread();
        pthread_mutex_lock(&change.lock);
        while (change.under_way) pthread_cond_wait(&change.ended, &change.lock);
    }
    change.under_way = true;
    change.thread = pthread_self();
    pthread_mutex_unlock(&change.lock);
    if (state) PyEval_RestoreThread(state);
    return true;
}

static void end_change(void)
{
    pthread_mutex_lock(&change.lock);
    while (change.wish) {
        enum wish wish = change.wish;
        change.wish = NOTHING;
        pthread_mutex_unlock(&change.lock);
        /* The caller is gone: after an error status() says that nothing is installed. */
        if (wish == INSTALL) start();
        else stop();
        pthread_mutex_lock(&change.lock);
    }
    change.under_way = false;
    pthread_cond_broadcast(&change.ended);
    pthread_mutex_unlock(&change.lock);
}

/* Made as a pending call. */
static int fulfil(void *unused)
{
    (void)unused;
    if (begin_change(NOTHING)) end_change();
    return 0;
}

/*
 * The child does not have the thread that made the change, and would keep half of a change for
 * ever. So the library is installed in the child, whatever the change was. If the parent had a
 * watcher, the child has one by now.
 */
static void after_fork_in_child(void)
{
    pthread_mutex_init(&change.lock, NULL);
    pthread_cond_init(&change.ended, NULL);
    if (!change.under_way || pthread_equal(change.thread, pthread_self())) return;
    change.under_way = false;
    change.wish = NOTHING;
    if (!change.half_done) return;
    change.half_done = false;
    ps_features_install();
}
PS_FORK_STEP(PS_FORK_INSTALL, .in_child = after_fork_in_child)

int ps_install(size_t memory_limit)
{
    change.memory_limit = memory_limit;
    if (!begin_change(INSTALL)) return 0;
    int error = start();
    end_change();
    return error;
}

bool ps_uninstall(void)
{
    bool was_installed = ps_features_installed();
    if (!begin_change(UNINSTALL)) return was_installed;
    was_installed = ps_features_installed();
    stop();
    end_change();
    return was_installed;
}

void ps_uninstall_at_end(void)
{
    if (!ps_features_installed()) return;
    ps_features_uninstall();
    ps_exceptions_end();
    ps_watcher_stop();
    ps_gil_wait_abandon();
    ps_features_unhook();
}

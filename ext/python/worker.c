/*
 * The worker: a native thread of ours that does, with the GIL, what the watcher asks for. It exists
 * while somebody listens; once samples were taken, it stays.
 *
 *   watcher  ps_worker_request(): starts or wakes the worker
 *   worker   takes the GIL, switches hooks, takes samples, does upkeep
 *
 * Python code of ours that runs on it is never in the application's way: signals are handled on the
 * main thread, and asynchronous exceptions are sent to threads by number.
 */
#include "hooks.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/fork.h"
#include "gil_wait.h"
#include "stacks.h"
#include "thread_states.h"

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned requests; /* what the watcher asked for and no job has done yet */
    bool running, stop;
    bool stays;  /* until `stop`, whether anybody listens or not */
    bool busy;   /* it has the GIL, or waits for it */
    int forking; /* threads that are about to fork: the worker may not ask for the GIL */
    unsigned long thread;
    uint64_t ended_ns; /* when the worker last ended */
} worker = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* With the GIL. */
static void do_jobs(unsigned what)
{
    ps_turn turn;
    ps_turn_begin(&turn);
    if (what & PS_REQUEST_SWITCH) ps_features_switch();
    if (what & PS_REQUEST_SAMPLE) ps_sampling_take();
    if (what & PS_REQUEST_UPKEEP) ps_features_do_upkeep();
    ps_turn_end(&turn);
}

/* Both functions are called with the lock. */
static void become_busy(void)
{
    while (worker.forking) pthread_cond_wait(&worker.changed, &worker.lock);
    worker.busy = true;
}

static void become_idle(void)
{
    worker.busy = false;
    pthread_cond_broadcast(&worker.changed);
}

/*
 * Called with the lock and without the GIL: does what is asked for until nobody listens any more,
 * or until `stop`.
 */
static void serve(void)
{
    become_busy();
    ps_gil_wait_begin(worker.requests);
    pthread_mutex_unlock(&worker.lock);
    /*
     * One thread state for all jobs. Making one allocates without the GIL. tracemalloc does not
     * always survive that if it is switched off at that moment (cpython#128679, up to 3.12.8 and
     * 3.13.1).
     */
    PyGILState_STATE gil = PyGILState_Ensure();
    ps_gil_wait_end();
    pthread_mutex_lock(&worker.lock);
    while (!worker.stop && worker.requests) {
        unsigned what = worker.requests;
        worker.requests = 0;
        pthread_mutex_unlock(&worker.lock);
        do_jobs(what);
        PyThreadState *state = PyEval_SaveThread();
        pthread_mutex_lock(&worker.lock);
        become_idle();
        while (!worker.stop && !worker.requests && ps_watcher_wanted())
            pthread_cond_wait(&worker.changed, &worker.lock);
        become_busy();
        ps_gil_wait_begin(worker.requests);
        pthread_mutex_unlock(&worker.lock);
        PyEval_RestoreThread(state);
        ps_gil_wait_end();
        pthread_mutex_lock(&worker.lock);
    }
    pthread_mutex_unlock(&worker.lock);
    PyGILState_Release(gil);
    pthread_mutex_lock(&worker.lock);
    become_idle();
}

static __thread bool is_here;

bool ps_worker_is_here(void)
{
    return is_here;
}

static void *work(void *unused)
{
    (void)unused;
    is_here = true;
    ps_gil_wait_prepare();
    pthread_mutex_lock(&worker.lock);
    worker.thread = PyThread_get_thread_ident();
    ps_looking_thread_begins();
    while (!worker.stop && (worker.requests || worker.stays)) {
        if (worker.requests) serve();
        else pthread_cond_wait(&worker.changed, &worker.lock);
    }
    ps_looking_thread_ends();
    worker.running = false;
    worker.ended_ns = ps_monotonic_ns();
    pthread_cond_broadcast(&worker.changed);
    pthread_mutex_unlock(&worker.lock);
    return NULL;
}

/*
 * Called on the watcher's thread, without the GIL. The worker inherits its mask, which blocks all
 * signals.
 */
void ps_worker_request(unsigned what)
{
    if (what == PS_REQUEST_SAMPLE && ps_sampling_ask()) return;
    pthread_mutex_lock(&worker.lock);
    worker.requests |= what;
    ps_gil_wait_hurry(what);
    if (!worker.running && !worker.stop && !ps_os_fork_under_way()) {
        pthread_t thread;
        worker.running = pthread_create(&thread, NULL, work, NULL) == 0;
        if (worker.running) {
            pthread_setname_np(thread, PS_PROVIDER);
            pthread_detach(thread);
        }
    }
    pthread_cond_broadcast(&worker.changed);
    pthread_mutex_unlock(&worker.lock);
}

void ps_worker_stop(void)
{
    pthread_mutex_lock(&worker.lock);
    worker.stop = true;
    pthread_cond_broadcast(&worker.changed);
    while (worker.running) pthread_cond_wait(&worker.changed, &worker.lock);
    worker.requests = 0;
    worker.stop = worker.stays = false;
    pthread_mutex_unlock(&worker.lock);
}

bool ps_worker_stay(void)
{
    pthread_mutex_lock(&worker.lock);
    if (worker.running && !worker.stop) worker.stays = true;
    bool stays = worker.stays;
    pthread_mutex_unlock(&worker.lock);
    return stays;
}

int ps_threads_count(uint64_t *ended_ns)
{
    pthread_mutex_lock(&worker.lock);
    int count = ps_watcher_is_running() + worker.running;
    *ended_ns = worker.ended_ns;
    pthread_mutex_unlock(&worker.lock);
    return count;
}

void ps_threads_pause(void)
{
    ps_watcher_pause();
    ps_worker_stop();
}

void ps_threads_resume(void)
{
    ps_watcher_resume();
}

/*
 * Does this thread have the GIL (without a GIL: may it use objects), and can no thread but the
 * worker wait for it?
 */
static bool is_alone_with_worker(void)
{
    PyThreadState *own = PyGILState_GetThisThreadState();
    if (!own || own != ps_thread_state() || ps_is_finalizing()) return false;
    PyThreadState *state = ps_first_thread(own->interp);
    /* The worker's state may be so new that it does not have its thread's id yet. */
    while (state && (state == own || state->thread_id == worker.thread || !state->thread_id))
        state = PyThreadState_Next(state);
    return !state;
}

/*
 * Some servers fork in C and go on with Python in the child, as uWSGI does. If the server was
 * started without threads, nothing initialises the GIL again in the child. A thread that waits for
 * the GIL at the fork does not exist in the child, but leaves the GIL in a state in which the next
 * thread to take it may wait for ever. So the worker finishes first.
 */
static void let_worker_finish(void)
{
    pthread_mutex_lock(&worker.lock);
    worker.forking++;
    bool in_the_way = worker.busy && !ps_os_fork_under_way() && is_alone_with_worker();
    pthread_mutex_unlock(&worker.lock);
    if (!in_the_way) return;
    PyThreadState *state = PyEval_SaveThread();
    pthread_mutex_lock(&worker.lock);
    while (worker.busy) pthread_cond_wait(&worker.changed, &worker.lock);
    pthread_mutex_unlock(&worker.lock);
    PyEval_RestoreThread(state);
}

static void before_fork(void)
{
    let_worker_finish();
    ps_stacks_before_fork();
}

static void after_fork_in_parent(void)
{
    ps_stacks_after_fork(false);
    pthread_mutex_lock(&worker.lock);
    worker.forking--;
    pthread_cond_broadcast(&worker.changed);
    pthread_mutex_unlock(&worker.lock);
}

static void after_fork_in_child(void)
{
    pthread_mutex_init(&worker.lock, NULL);
    pthread_cond_init(&worker.changed, NULL);
    worker.running = worker.stop = worker.stays = worker.busy = false;
    worker.forking = 0;
    worker.requests = 0;
    ps_gil_wait_abandon();
    ps_turns_after_fork();
    ps_sampling_after_fork();
    ps_stacks_after_fork(true);
}
PS_FORK_STEP(PS_FORK_VM, before_fork, after_fork_in_parent, after_fork_in_child)

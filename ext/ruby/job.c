/*
 * Asks Ruby for a job from a thread without the VM lock.
 *
 * From 3.3 on Ruby has a function for that. Before, rb_postponed_job_register_one() is for threads
 * with the VM lock and for signal handlers on them. It reserves an entry first, and then writes
 * function and data one by one (bug #19991). If another thread runs the jobs in between, it calls
 * what the entry held before: NULL, or the function of one job with the data of another.
 *
 * Ruby 3.1 and 3.2 have a second list of jobs, made for MJIT's thread, with a lock. Its function,
 * rb_workqueue_register(), is not exported, so its steps are done here: link an entry under the
 * lock, and set the interrupt flag of the running thread. Ruby frees the entry with free() before
 * it calls the function. (docs/decisions/183-jobs-before-ruby-3.3.md)
 */
#include "job.h"

#include <ruby/ruby.h>
#include <ruby/debug.h>
#include <ruby/version.h>

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "vm_words.h"

enum {
    TIMER_INTERRUPT = 1,
    PENDING_INTERRUPT = 2,
    POSTPONED_JOB_INTERRUPT = 4,
    TRAP_INTERRUPT = 8,
    TERMINATE_INTERRUPT = 16
};

/* A job has seen that the words below are where they should be. */
static bool words_are_known;

/*
 * The pending interrupts of the calling thread, and after them its interrupt mask. NULL where this
 * Ruby has other words.
 */
static uint32_t *interrupts_here(void)
{
    if (RUBY_API_VERSION_CODE >= 40000) return NULL; /* not examined */
    VALUE self = rb_thread_current();
    void **thread = RTYPEDDATA_DATA(self);
    if (thread[THREAD_SELF] != (void *)self) return NULL;
    void **context = thread[THREAD_EC];
    if (!context || context[EC_THREAD] != (void *)thread) return NULL;
    return (uint32_t *)(void *)&context[EC_FLAG];
}

/* The interrupt mask of the thread that runs the job; NULL where this Ruby has other words. */
static uint32_t *interrupt_mask(void)
{
    uint32_t *interrupts = interrupts_here();
    if (!interrupts || interrupts[1] != (POSTPONED_JOB_INTERRUPT | TRAP_INTERRUPT)) return NULL;
    words_are_known = true;
    return interrupts + 1;
}

void ps_job_ask_here(void)
{
    ps_job_ask();
    uint32_t *interrupts = words_are_known ? interrupts_here() : NULL;
    if (interrupts) PS_FETCH_OR(*interrupts, POSTPONED_JOB_INTERRUPT);
}

void ps_job_do(VALUE (*work)(VALUE), VALUE argument)
{
    /*
     * The VM checks for interrupts after each call into it. Masked interrupts are delivered after
     * the job.
     */
    enum { FROM_OTHERS = TIMER_INTERRUPT | PENDING_INTERRUPT | TERMINATE_INTERRUPT };
    uint32_t *mask = interrupt_mask();
    int state = 0;
    if (mask) *mask |= FROM_OTHERS;
    rb_protect(work, argument, &state);
    if (mask) *mask &= ~(uint32_t)FROM_OTHERS;
    if (state) rb_set_errinfo(Qnil);
}

#ifdef HAVE_RB_POSTPONED_JOB_PREREGISTER

static rb_postponed_job_handle_t handle;

const char *ps_job_init(void (*function)(void *))
{
    handle = rb_postponed_job_preregister(0, function, NULL);
    return handle == POSTPONED_JOB_HANDLE_INVALID ? "Ruby has no room for one more postponed job" : NULL;
}

void ps_job_ask(void)
{
    rb_postponed_job_trigger(handle);
}

#else

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/fork.h"

extern void *ruby_current_vm_ptr;

/* The same as struct rb_workqueue_job, struct rb_postponed_job_struct, and a part of rb_vm_t. */
typedef struct entry {
    struct entry *next, *previous;
    void (*function)(void *);
    void *data;
} entry;

typedef struct postponed {
    void (*function)(void *);
    void *data;
} postponed;

typedef struct queue {
    postponed *postponed;
    uint32_t count;
    int encoding;
    struct {
        entry *first, *last;
    } jobs;
    pthread_mutex_t lock;
    VALUE original_name, name;
} queue;

/*
 * Counted in words. The words of rb_vm_t and rb_ractor_t are searched for, because what stands
 * before them differs between builds.
 */
enum { VM_MAIN_RACTOR = 4, VM_MOST = 512, RACTOR_MOST = 128 };

static struct {
    void (*function)(void *);
    queue *queue;   /* NULL: not found */
    void **running; /* the execution context that runs in the main Ractor, or ran last */
    entry *one;     /* the entry; NULL: there was no memory for it */
    bool queued;    /* the entry is in the list, or Ruby has freed it and will call run() */
    /*
     * Held while the list is changed and while a thread forks, so that a child's list is whole.
     * Only fork() waits for it.
     */
    pthread_mutex_t asking;
} job = {.asking = PTHREAD_MUTEX_INITIALIZER};

/*
 * In a forked child Ruby empties the list and initialises the lock anew, a moment after the
 * handlers of fork(). Until then no job is asked for in the child. The mark for that is in the last
 * word of the lock. Neither libc uses that word in a lock of this kind, and both clear it.
 */
static uintptr_t *new_child_mark(void)
{
    return (uintptr_t *)(void *)(&job.queue->lock + 1) - 1;
}

static void before_fork(void)
{
    pthread_mutex_lock(&job.asking);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&job.asking);
}

static void after_fork_in_child(void)
{
    PS_WRITE(*new_child_mark(), 1);
    if (job.queued) {
        job.one->previous->next = job.one->next;
        job.one->next->previous = job.one->previous;
        job.queued = false;
    }
    pthread_mutex_unlock(&job.asking);
}

/* Called by Ruby, which has freed the entry. */
static void run(void *unused)
{
    PS_WRITE(job.one, malloc(sizeof(entry)));
    PS_WRITE_RELEASE(job.queued, false);
    job.function(NULL);
}

static bool link_entry(void)
{
    if (!job.one) job.one = malloc(sizeof(entry));
    entry *added = job.one;
    if (!added) return false;
    added->function = run;
    added->data = NULL;
    pthread_mutex_lock(&job.queue->lock);
    entry *head = (entry *)(void *)&job.queue->jobs;
    added->next = head;
    added->previous = head->previous;
    head->previous->next = added;
    head->previous = added;
    PS_WRITE(job.queued, true);
    pthread_mutex_unlock(&job.queue->lock);
    return true;
}

void ps_job_ask(void)
{
    if (!job.queue || pthread_mutex_trylock(&job.asking) != 0) return;
    /*
     * Set the flag also when the entry is in the list already: the running thread may not have it.
     */
    if (!PS_READ(*new_child_mark()) && (PS_READ_ACQUIRE(job.queued) || link_entry())) {
        uint32_t *running = (uint32_t *)PS_READ_ACQUIRE(*job.running);
        if (running) PS_FETCH_OR(running[EC_FLAG * 2], POSTPONED_JOB_INTERRUPT);
    }
    pthread_mutex_unlock(&job.asking);
}

static void nothing(void *unused) {}

/* Is the lock free? Then all its words are 0. One of them tells the kind of lock. */
static bool is_free_lock(const pthread_mutex_t *lock)
{
    static const pthread_mutex_t none;
    return memcmp(lock, &none, sizeof(none)) == 0;
}

static bool holds(const queue *at, void (*function)(void *))
{
    for (uint32_t i = 0; i < at->count; i++)
        if (at->postponed[i].function == function) return at->postponed[i].data == &job;
    return false;
}

/*
 * Recognised by the empty list, the free lock, the program's name, and a job that was just
 * registered.
 */
static queue *find_queue(void **vm, VALUE name)
{
    for (int i = 0; i < VM_MOST; i++) {
        queue *at = (queue *)(void *)(vm + i);
        const entry *head = (const entry *)(const void *)&at->jobs;
        if (head->next != head || head->previous != head || at->name != name || !is_free_lock(&at->lock))
            continue;
        return at->postponed && at->count > 0 && at->count < 1000 && holds(at, nothing) ? at : NULL;
    }
    return NULL;
}

/* Recognised by the context and the main thread, which stand beside each other. */
static void **find_running(void **ractor, const void *context, const void *main_thread)
{
    for (int i = 0; i < RACTOR_MOST; i++)
        if (ractor[i] == context && ractor[i + 1] == main_thread) return &ractor[i];
    return NULL;
}

static const char *find(void)
{
    void **vm = ruby_current_vm_ptr, **thread = RTYPEDDATA_DATA(rb_thread_current());
    const char *reason = "the list of jobs is not where Ruby 3.1 and 3.2 have it";
    if (thread[THREAD_VM] != (void *)vm || thread[THREAD_RACTOR] != vm[VM_MAIN_RACTOR]) return reason;
    uint32_t *context = thread[THREAD_EC];
    void **running = find_running(vm[VM_MAIN_RACTOR], context, RTYPEDDATA_DATA(rb_thread_main()));
    if (!running) return reason;
    /* The VM lock is held here, so this function may be called. */
    if (!rb_postponed_job_register_one(0, nothing, &job)) return "Ruby's list of jobs is full";
    queue *found = find_queue(vm, rb_gv_get("$0"));
    if (!found || !(context[EC_FLAG * 2] & POSTPONED_JOB_INTERRUPT)) return reason;
    job.running = running;
    job.queue = found;
    return NULL;
}

const char *ps_job_init(void (*function)(void *))
{
    job.function = function;
    const char *reason = find();
    if (!reason) ps_fork_at(PS_FORK_JOBS, (ps_fork){before_fork, after_fork, after_fork_in_child});
    return reason;
}

#endif

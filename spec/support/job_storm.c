/*
 * For jobs_from_threads_spec.rb: native threads register a job without pause, while a Ruby thread
 * registers jobs of another extension. Each function checks that it is called with its own
 * argument.
 *
 *   JobStorm.run(way, seconds)  => {ours:, theirs:, registered:, wrong:}
 *     way: :job (ext/ruby/job.c), or :register_one, which only a thread with the VM lock
 *     may call. Yields now and then.
 *   JobStorm.asked              => 1, in a forked child
 */
#include "base/fork.c"
#include "base/thread_record.c"
#include "job.c"

#include <ruby/thread.h>

#include <sched.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4 };

static char argument_of_ours, arguments_of_theirs[8];
static unsigned long ours, theirs, wrong;
static bool stop, by_job;

static void on_ours(void *argument)
{
    if (argument != (by_job ? NULL : &argument_of_ours)) wrong++;
    ours++;
}

static void on_theirs(void *argument)
{
    if ((char *)argument < arguments_of_theirs || (char *)argument >= arguments_of_theirs + 8) wrong++;
    theirs++;
}

static void *ask(void *unused)
{
    while (!PS_READ(stop)) {
        if (by_job) ps_job_ask();
        else rb_postponed_job_register_one(0, on_ours, &argument_of_ours);
        sched_yield();
    }
    return NULL;
}

static VALUE run_storm(VALUE self, VALUE way, VALUE seconds)
{
    static bool ready;
    by_job = SYM2ID(way) == rb_intern("job");
    if (by_job && !ready) {
        const char *reason = ps_job_init(on_ours);
        if (reason) rb_raise(rb_eRuntimeError, "%s", reason);
        if (ps_fork_init() != 0) rb_raise(rb_eRuntimeError, "no handler of forks");
        ready = true;
    }
    pthread_t threads[THREADS];
    unsigned long registered = 0;
    ours = theirs = wrong = 0;
    PS_WRITE(stop, false);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, ask, NULL);
    time_t end = time(NULL) + NUM2INT(seconds);
    for (int i = 0; time(NULL) < end; i = (i + 1) % 8) {
        registered += rb_postponed_job_register(0, on_theirs, &arguments_of_theirs[i]);
        rb_thread_check_ints();
        if (i == 0) rb_yield(Qnil);
    }
    PS_WRITE(stop, true);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    rb_thread_check_ints();
    VALUE result = rb_hash_new();
    rb_hash_aset(result, ID2SYM(rb_intern("ours")), ULONG2NUM(ours));
    rb_hash_aset(result, ID2SYM(rb_intern("theirs")), ULONG2NUM(theirs));
    rb_hash_aset(result, ID2SYM(rb_intern("registered")), ULONG2NUM(registered));
    rb_hash_aset(result, ID2SYM(rb_intern("wrong")), ULONG2NUM(wrong));
    return result;
}

static void *ask_until_done(void *unused)
{
    for (int i = 0; i < 100000 && !PS_READ(ours); i++) {
        ps_job_ask();
        usleep(100);
    }
    return NULL;
}

/* Returns how often a job of a new thread ran, in a forked child. */
static VALUE asked(VALUE self)
{
    pthread_t thread;
    PS_WRITE(ours, 0);
    pthread_create(&thread, NULL, ask_until_done, NULL);
    while (pthread_tryjoin_np(thread, NULL) != 0) rb_thread_check_ints();
    return ULONG2NUM(ours);
}

void Init_job_storm(void)
{
    rb_define_singleton_method(rb_define_module("JobStorm"), "asked", asked, 0);
    rb_define_singleton_method(rb_define_module("JobStorm"), "run", run_storm, 2);
}

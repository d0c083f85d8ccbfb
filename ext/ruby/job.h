/*
 * The one job that Ruby runs for us, on one of its threads, with the VM lock, soon after it was
 * asked for.
 */
#ifndef PS_RUBY_JOB_H
#define PS_RUBY_JOB_H

#include <ruby/ruby.h>

/*
 * Called once, with the VM lock. Returns NULL, or the reason why this Ruby cannot run the job; then
 * ps_job_ask() must not be called.
 */
const char *ps_job_init(void (*function)(void *));
/*
 * Makes Ruby run the job once more. Called on any thread, with or without the VM lock. May do
 * nothing while another thread asks or forks: the watcher asks again.
 */
void ps_job_ask(void);
/*
 * The same, and the calling thread, which has the VM lock, runs the job when it checks for
 * interrupts. In an event that hands it the VM lock, Ruby would still ask the thread that ran last.
 */
void ps_job_ask_here(void);
/*
 * Calls work(argument) in the job, while no other thread runs. Exceptions from other threads are
 * held back until the job is over. No exception leaves it: Ruby would drop the exception and leave
 * the frames that it ended on the stack.
 */
void ps_job_do(VALUE (*work)(VALUE), VALUE argument);

#endif

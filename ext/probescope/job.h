/*
 * The one job that Ruby runs for us on a thread of its own, with the VM lock, soon after it was
 * asked for.
 */
#ifndef PS_RUBY_JOB_H
#define PS_RUBY_JOB_H

#include <ruby/ruby.h>

/*
 * Called with the VM lock, once. Returns NULL, or why this Ruby cannot be asked: ps_job_ask() does
 * nothing then.
 */
const char *ps_job_init(void (*function)(void *));
/*
 * Has Ruby run the job once more. Called on any thread, with or without the VM lock. May do nothing
 * while another thread asks or forks: the watcher asks again.
 */
void ps_job_ask(void);
/*
 * Calls work(argument) in the job, and no other thread runs meanwhile. No exception comes from
 * another thread, and none leaves: Ruby would drop it and leave the frames that it ended on the
 * stack.
 */
void ps_job_do(VALUE (*work)(VALUE), VALUE argument);

#endif

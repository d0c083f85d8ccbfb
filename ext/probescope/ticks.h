/*
 * Stacks that are read at the tick: a timer on the CPU clock of each thread of Ruby's sends that
 * thread a signal, and its handler reads the stack of its own thread.
 * (docs/decisions/200-rubys-stacks-are-read-at-the-tick.md)
 *
 *   thread   the handler: rb_profile_frames() into a ring
 *   watcher  ps_ticks_look(): is the job to take what is in the ring?
 *   job      ps_ticks_next(): the oldest, with the VM lock
 */
#ifndef PS_RUBY_TICKS_H
#define PS_RUBY_TICKS_H

#include <ruby/ruby.h>

#include <stdbool.h>
#include <stdint.h>

#include "samples.h"

typedef struct ps_tick {
    uint64_t thread_id;
    uint64_t weight; /* CPU time that it stands for, ns */
    uint32_t count;
    bool in_gc; /* a collection ran on that stack */
    /* Probescope::Native::Request; any other value: none, or nobody listens to stats__by_request */
    VALUE request;
    VALUE frames[PS_SAMPLE_FRAMES_MAX];
    int lines[PS_SAMPLE_FRAMES_MAX];
} ps_tick;

/*
 * With the VM lock. Why stacks cannot be read at the tick here; NULL: they are. Sets *later where
 * that is not known yet: the watcher finds out, and has hooks switched once more.
 */
const char *ps_ticks_begin(bool *later);
void ps_ticks_end(void);
/*
 * With the VM lock, after each ps_ticks_begin(): each tick has its request from now on, or none
 * has.
 */
void ps_ticks_by_request(bool wanted);
/*
 * With the VM lock: the current fiber of this thread is in that request from now on. nil: in none.
 */
void ps_ticks_enter(VALUE request);
bool ps_ticks_are_on(void);
/* The watcher's, at each of its ticks. */
bool ps_ticks_look(uint64_t now);
/* How long after that it is to look again. To wake up is most of what its looking costs. */
uint64_t ps_ticks_look_again_ns(void);
/* With the VM lock. False: there is none. */
bool ps_ticks_next(ps_tick *to);
/* With the VM lock: what nobody has taken, once they are off. */
void ps_ticks_forget(void);
void ps_ticks_mark(void);
void ps_ticks_after_fork(void);

#endif

/*
 * Stacks that are read at the tick. A timer on the CPU clock of each of Ruby's threads sends that
 * thread a signal, and the signal handler reads the stack of its own thread.
 * (docs/decisions/200-rubys-stacks-are-read-at-the-tick.md)
 *
 *   thread   the handler: rb_profile_frames() into a ring
 *   watcher  ps_ticks_look(): shall the job take stacks out of the ring?
 *   job      ps_ticks_next(): takes the oldest stack, with the VM lock
 */
#ifndef PS_RUBY_TICKS_H
#define PS_RUBY_TICKS_H

#include <ruby/ruby.h>

#include <stdbool.h>
#include <stdint.h>

#include "features/samples.h"

typedef struct ps_tick {
    uint64_t thread_id;
    uint64_t weight; /* CPU time that the tick stands for, ns */
    uint32_t count;
    bool in_gc;    /* a collection ran on that stack */
    bool is_cut;   /* the stack has more frames, outside of `count` */
    VALUE request; /* a Probescope::Native::Request; anything else: none, or not wanted */
    /* One more than are used shows whether there are more. */
    VALUE frames[PS_SAMPLE_FRAMES_MAX + 1];
    int lines[PS_SAMPLE_FRAMES_MAX + 1];
} ps_tick;

/* Reads the stack of the calling thread. */
void ps_tick_read(ps_tick *tick);

/*
 * Has the calling Ruby thread frames that rb_profile_frames() can read? Also false where this
 * version of Ruby has them elsewhere.
 */
bool ps_has_frames(void);

/*
 * With the VM lock. NULL: stacks are read at the tick from now on. Else the reason why they cannot
 * be. Sets *later when that is not known yet: the watcher finds out, and then hooks are switched
 * again.
 */
const char *ps_ticks_begin(bool *later);
void ps_ticks_end(void);
/*
 * With the VM lock, after each ps_ticks_begin(). wanted: from now on each tick carries its request;
 * else none does.
 */
void ps_ticks_by_request(bool wanted);
/*
 * With the VM lock: from now on the current fiber of this thread is in that request; nil: in none.
 */
void ps_ticks_enter(VALUE request);
bool ps_ticks_are_on(void);
/* Called by the watcher at each of its ticks. True when the job shall take stacks. */
bool ps_ticks_look(uint64_t now);
/* The time until the watcher is to look again. Most of what a look costs is the wake-up. */
uint64_t ps_ticks_look_again_ns(void);
/* With the VM lock. False when the ring is empty. */
bool ps_ticks_next(ps_tick *to);
/* With the VM lock, after ps_ticks_end(): drops the stacks that were not taken. */
void ps_ticks_forget(void);
void ps_ticks_after_fork(void);

#endif

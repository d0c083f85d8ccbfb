/*
 * Methods as targets of TracePoints, for functions_hooks.c and latency_hooks.c. Call these
 * functions on a Ruby thread with the VM lock.
 */
#ifndef PS_METHODS_H
#define PS_METHODS_H

#include <ruby/ruby.h>
#include <ruby/debug.h>

#include <stdbool.h>
#include <stdint.h>

#include "table/kept.h"

/* What the code of a method contains: needed to tell how the method was left. */
struct ps_contents {
    int line;           /* of the definition */
    bool methods;       /* other methods are defined in it */
    bool blocks;        /* it has blocks, which may become define_method bodies */
    bool rescues;       /* it has a rescue clause */
    bool swallows;      /* it can return from an ensure clause, or (before 3.3) from a rescue clause */
    bool returns_early; /* it returns on more than one line */
    int end_line;       /* its last line, if that has no code but the return; else 0 */
    int last_line;      /* the last line on which it returns; 0: it never returns */
};

void ps_methods_init(void);

/*
 * The module's own method of that name, even if a prepended module overrides it. There must be a
 * method of that name.
 */
VALUE ps_find_method(VALUE module, VALUE name);
/* nil: the method is written in C. */
VALUE ps_iseq_of(VALUE method);
/* Is this the body of a define_method method? */
bool ps_is_block(VALUE iseq);
/*
 * Is this a method's ISeq? ISeqs of files, classes, blocks and clauses have no :call event of their
 * own.
 */
bool ps_has_calls(VALUE iseq);

/* Finds the lines on which a method returns, and the line of its definition. */
void ps_find_end(VALUE iseq, struct ps_contents *contents);
/*
 * Adds the contents of a child of an ISeq to those of the ISeq. True when the child is itself a
 * method.
 */
bool ps_contents_include(struct ps_contents *sum, VALUE child, const struct ps_contents *inside);
/* The contents of an ISeq, its children included. */
struct ps_contents ps_contents_of(VALUE iseq);
/*
 * Does an exception leave the frame of this :return event? Call it while an exception is unwinding,
 * as far as is known.
 */
bool ps_leaves_raising(const struct ps_contents *contents, rb_trace_arg_t *arg);
/* Is the innermost frame a method of this name that is defined in a block with these contents? */
bool ps_runs_method_in(const struct ps_contents *block, ID name);
/* How many frames on the VM's stack are of the method of the innermost frame. */
uint32_t ps_count_frames(void);
/* The number of frames on the VM's stack; UINT32_MAX when there are too many to count. */
uint32_t ps_real_depth(void);

/* Runs work(argument) while no other thread gets the VM lock. */
VALUE ps_hold_vm_lock(VALUE (*work)(VALUE), VALUE argument);
/*
 * Does what Ruby 3.1 to 3.4 omit when a TracePoint is enabled on a Method of a define_method body:
 * the write barrier of the method's entry, which holds the hooks. Call it for each Method that
 * shares the body. Keep the TracePoint alive until some time after it is disabled: entries that no
 * Method leads to (those of a module's method in a class that includes the module) get no barrier.
 */
void ps_write_barrier(VALUE tracepoint, VALUE method);
/*
 * TracePoint#enable(target:). False when there is nothing to hook. may_raise: the caller is a hook,
 * and raises other errors, which are the application's.
 */
bool ps_enable_on(VALUE tracepoint, VALUE iseq_or_method, bool may_raise);
/* Disables what ps_enable_on() enabled there. */
void ps_disable_on(VALUE tracepoint, VALUE iseq_or_method);
/* Makes Ruby up to 3.2 add up again which events the hooks of the whole VM need. */
void ps_add_up_hooks(void);
/* Makes the JIT discard code that was compiled with hooks in it. */
void ps_kick_jit(void);

#endif

/*
 * Methods as what TracePoints are targeted at: for functions.c and latency.c. To be called on a
 * Ruby thread with the VM lock.
 */
#ifndef PS_METHODS_H
#define PS_METHODS_H

#include <ruby/ruby.h>
#include <ruby/debug.h>

#include <stdbool.h>
#include <stdint.h>

/* What stands in a method, for telling how it was left. */
struct ps_contents {
    int line;           /* of its definition */
    bool methods;       /* others are defined in it */
    bool blocks;        /* there are blocks in it, which may become define_method bodies */
    bool rescues;       /* it has a rescue clause */
    bool swallows;      /* it can return from an ensure clause, or (before 3.3) from a rescue clause */
    bool returns_early; /* not on its last line alone */
    int end_line;       /* where nothing happens but the return; 0: there is no such line */
    int last_line;      /* on which it returns; 0: it never does */
};

void ps_methods_init(void);

/*
 * The module's own method of that name, also under those of the modules that were prepended to it.
 * It has to have one.
 */
VALUE ps_find_method(VALUE module, VALUE name);
/* nil: it is written in C. */
VALUE ps_iseq_of(VALUE method);
/* Is this a define_method body? */
bool ps_is_block(VALUE iseq);
/*
 * Is this a method's ISeq? Others, of files, classes, blocks and clauses, have no :call event of
 * their own.
 */
bool ps_has_calls(VALUE iseq);

/* Finds the lines on which a method returns, and that of its definition. */
void ps_find_end(VALUE iseq, struct ps_contents *contents);
/*
 * Adds what stands in a child of an ISeq to what stands in that. True when the child is a method
 * itself.
 */
bool ps_contents_include(struct ps_contents *sum, VALUE child, const struct ps_contents *inside);
/* All of it. */
struct ps_contents ps_contents_of(VALUE iseq);
/*
 * Does an exception leave the frame of this :return event? Asked while one is on its way, as far as
 * is known.
 */
bool ps_leaves_raising(const struct ps_contents *contents, rb_trace_arg_t *arg);
/* Is what runs right now a method of this name that is defined in a block with these contents? */
bool ps_runs_method_in(const struct ps_contents *block, ID name);
/* How many of the frames on the VM's stack are of the method that runs right now. */
uint32_t ps_count_frames(void);
/* All of its frames; UINT32_MAX when they are too many to count. */
uint32_t ps_real_depth(void);

/* Runs work(argument) while no other thread can come in. */
VALUE ps_hold_vm_lock(VALUE (*work)(VALUE), VALUE argument);
/*
 * What Ruby omits when a TracePoint is enabled on a Method of a define_method body: the write
 * barrier of the method's entry, which has the hooks (3.1 to 3.4). For each Method that shares the
 * body. Whoever enables keeps the TracePoint alive until some time after it is disabled: entries
 * that no Method leads to (of a module's method in a class that includes it) go without the
 * barrier.
 */
void ps_write_barrier(VALUE tracepoint, VALUE method);
/*
 * TracePoint#enable(target:). False: there is nothing to hook. may_raise: in a hook, where other
 * errors are the application's.
 */
bool ps_enable_on(VALUE tracepoint, VALUE iseq_or_method, bool may_raise);
/* The reverse, of what was enabled there. */
void ps_disable_on(VALUE tracepoint, VALUE iseq_or_method);
/* Has Ruby up to 3.2 find out again which events hooks of the whole VM want. */
void ps_add_up_hooks(void);
/* Has the JIT throw away code that was compiled with hooks in it. */
void ps_kick_jit(void);

#endif

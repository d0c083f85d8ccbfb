/*
 * Methods: which there are, what they contain, and how they become targets of TracePoints. For every
 * hook that needs that, such as functions_hooks.c and latency_hooks.c. Call these functions on a Ruby
 * thread with the VM lock.
 */
#ifndef PS_METHODS_H
#define PS_METHODS_H

#include <ruby/ruby.h>
#include <ruby/debug.h>

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
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
 * Hides an object from ObjectSpace.each_object, which returns to the application every object that
 * has a class. No method may be called on a hidden object.
 */
VALUE ps_hidden(VALUE object);

/*
 * A walk over the methods of all modules, in slices. Whoever has one begins with PS_NO_WALK and
 * declares it: PS_KEPT(PS_HELD_WALK(walk)).
 */
typedef struct ps_walk {
    VALUE modules;               /* Array; nil: no walk is under way */
    VALUE names;                 /* Array: the methods of the current module; nil: not listed yet */
    long next_module, next_name; /* their indexes */
} ps_walk;
#define PS_NO_WALK                                                                                           \
    {                                                                                                        \
        .modules = Qnil, .names = Qnil                                                                       \
    }
#define PS_HELD_WALK(walk) PS_HELD((walk).modules), PS_HELD((walk).names)

/* Lists the modules that exist. Those that are made later are not walked over. */
void ps_walk_begin(ps_walk *walk);
/*
 * Calls look() with each module and the name of each method that the module itself defines. Stops
 * after the first call that ends later than `end` (CLOCK_MONOTONIC), and returns false. Returns true
 * after the last module. A method may be gone when look() is called. look() must not raise.
 */
bool ps_walk_modules(ps_walk *walk, void (*look)(VALUE module, VALUE name), uint64_t end);
/* Drops the lists. */
void ps_walk_end(ps_walk *walk);
/* From ps_walk_begin() to ps_walk_end(). On any thread, without the VM lock. */
static inline bool ps_walk_is_under_way(const ps_walk *walk)
{
    return !NIL_P(PS_READ(walk->modules));
}
/* Did the walk come to the end of its modules? */
static inline bool ps_walk_is_over(const ps_walk *walk)
{
    return walk->next_module >= RARRAY_LEN(walk->modules);
}

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

/*
 * Which Ruby threads are in the middle of something. For code with the VM lock on the main Ractor.
 *
 * A thread-local variable would not do: with RUBY_MN_THREADS=1 (3.3 and later) a Ruby thread goes
 * on on another native thread after it let go of the VM lock, and the variable stays behind. The
 * list is of entries on the machine stacks of those threads.
 */
#ifndef PS_RUBY_DOING_H
#define PS_RUBY_DOING_H

#include <ruby/ruby.h>

#include <stdbool.h>

#include "atomic.h"

typedef struct ps_doing {
    struct ps_doing *next;
    VALUE thread;
} ps_doing;

static inline void ps_doing_begin(ps_doing **list, ps_doing *entry)
{
    entry->thread = rb_thread_current();
    entry->next = *list;
    *list = entry;
}

/* A forked child forgets what threads of its parent did: the entry may not be in the list. */
static inline void ps_doing_end(ps_doing **list, const ps_doing *entry)
{
    while (*list && *list != entry) list = &(*list)->next;
    if (*list) *list = entry->next;
}

/* doing.c: work(argument), with an entry in the list meanwhile. May be left by an exception. */
VALUE ps_doing_while(ps_doing **list, VALUE (*work)(VALUE), VALUE argument);

/* Is the current thread? */
static inline bool ps_doing_here(const ps_doing *list)
{
    if (PS_LIKELY(!list)) return false;
    VALUE thread = rb_thread_current();
    while (list && list->thread != thread) list = list->next;
    return list != NULL;
}

#endif

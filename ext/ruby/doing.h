/*
 * Lists of the Ruby threads that are inside some piece of work. For code with the VM lock on the
 * main Ractor.
 *
 * A thread-local variable would not do. With RUBY_MN_THREADS=1 (3.3 and later) a Ruby thread that
 * released the VM lock may continue on another native thread, and the variable stays behind. So the
 * entries of a list are on the machine stacks of the Ruby threads.
 */
#ifndef PS_RUBY_DOING_H
#define PS_RUBY_DOING_H

#include <ruby/ruby.h>

#include <stdbool.h>

#include "base/atomic.h"

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

/* The entry may be missing: a forked child forgets the threads of its parent. */
static inline void ps_doing_end(ps_doing **list, const ps_doing *entry)
{
    while (*list && *list != entry) list = &(*list)->next;
    if (*list) *list = entry->next;
}

/* doing.c: runs work(argument) with an entry in the list. An exception may leave it. */
VALUE ps_doing_while(ps_doing **list, VALUE (*work)(VALUE), VALUE argument);

/* Is the current thread in the list? */
static inline bool ps_doing_here(const ps_doing *list)
{
    if (PS_LIKELY(!list)) return false;
    VALUE thread = rb_thread_current();
    while (list && list->thread != thread) list = list->next;
    return list != NULL;
}

#endif

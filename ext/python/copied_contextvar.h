/*
 * The value of a variable of ours (contextvars) in the context of another thread, read without the
 * GIL.
 *
 * A context has its values in a tree that is never changed: another value makes another tree. So
 * all that is read from a tree belongs together. If the tree has the same address afterwards, the
 * thread had the same values meanwhile.
 */
#ifndef PS_PYTHON_COPIED_CONTEXTVAR_H
#define PS_PYTHON_COPIED_CONTEXTVAR_H

#include "compat.h"

#include <stdbool.h>
#include <stdint.h>

#if PS_HAVE_GIL
/*
 * With the GIL, before the first look-up. variable: looked up from now on; it must live for ever.
 * The first call tries the look-up, in a context of its own.
 */
void ps_copied_contextvar_init(PyObject *variable);
/*
 * Any thread. False: contexts are not here what they are in the known releases, or there was no
 * memory for the trial.
 */
bool ps_copied_contextvar_works(void);
/* The address of the tree of the context that the thread with this state is in; 0: none. */
uintptr_t ps_copied_contextvar_tree(uintptr_t state);
/* The address of the variable's value in that tree; 0: it has none. */
uintptr_t ps_copied_contextvar_value(uintptr_t tree);
#else
static inline bool ps_copied_contextvar_works(void)
{
    return false;
}
#endif

#endif

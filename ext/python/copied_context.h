/*
 * The value that a variable of ours (contextvars) has in the context of another thread, copied
 * without the GIL.
 *
 * A context has its values in a tree that is never changed: another value makes another tree. So
 * what is found belongs together, and where the tree has the same address afterwards the thread had
 * the same values meanwhile.
 */
#ifndef PS_PYTHON_COPIED_CONTEXT_H
#define PS_PYTHON_COPIED_CONTEXT_H

#include "compat.h"

#include <stdbool.h>
#include <stdint.h>

#if PS_HAVE_GIL
/*
 * With the GIL, before anything is looked up: it is this variable, which lives for ever. Tries it,
 * the first time, in a context of its own.
 */
void ps_copied_context_init(PyObject *variable);
/*
 * Any thread. False: contexts are not here what they are in the releases that are known, or there
 * was no memory to try it.
 */
bool ps_copied_context_works(void);
/* Where the tree of the thread with this state is, which is in that context now; 0: nowhere. */
uintptr_t ps_copied_context_tree(uintptr_t state);
/* Where the value is that the variable has there; 0: it has none. */
uintptr_t ps_copied_context_value(uintptr_t tree);
#else
static inline bool ps_copied_context_works(void)
{
    return false;
}
#endif

#endif

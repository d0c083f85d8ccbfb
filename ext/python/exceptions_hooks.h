/*
 * Between exceptions_hooks.c and the files that hook exceptions: exceptions_monitoring.c (3.12 and
 * later), exceptions_slots.c and, if forced, exceptions_trace.c (before).
 */
#ifndef PS_PYTHON_EXCEPTIONS_HOOKS_H
#define PS_PYTHON_EXCEPTIONS_HOOKS_H

#include "features/backtraces.h"
#include "features/exceptions.h"
#include "features/requests.h"
#include "hooks.h"

/*
 * A raise, as the traceback has it. The traceback's first entry is the frame that handles the
 * exception, its last entry the frame that raised it, its length the depth. If an exception object
 * is raised again, the new entries are put before the old ones.
 */
typedef struct ps_raise {
    PyTracebackObject *origin; /* borrowed */
    uint32_t depth;
} ps_raise;

/*
 * The entries of an exception: a new reference, because another thread may raise the exception too.
 * NULL when it was never raised.
 */
static inline PyTracebackObject *ps_traceback(PyObject *exception)
{
    PyObject *traceback = PyException_GetTraceback(exception);
    if (!traceback || PyTraceBack_Check(traceback)) return (PyTracebackObject *)traceback;
    Py_DECREF(traceback);
    return NULL;
}

/* All of a traceback, as one raise. False when part of it is gone already. */
bool ps_exceptions_whole(PyTracebackObject *first, ps_raise *raise);

/* Does the exception only end a loop or a generator? That is no error. */
bool ps_exceptions_is_noise(PyObject *exception);

/*
 * The row of a raise, perhaps the overflow row. first: the first entry, from which the
 * application's own code is searched for.
 */
ps_row *ps_raise_row(PyTypeObject *type, PyTracebackObject *first, const ps_raise *raise);
/* The ticks that so many entries of a traceback cost. */
uint64_t ps_raise_cost(uint32_t depth);
/* Fires exception__detail, if that is due. first: the first entry of this raise. */
void ps_raise_detail(ps_row *row, PyObject *exception, PyTracebackObject *first, uint32_t depth);

/*
 * A walk for ps_nearest_own_line(): from `frame`, the reference to which moves with the walk, to its
 * callers. NULL after the last one.
 */
typedef struct ps_frame_walk {
    PyFrameObject *frame;
    bool (*is_own)(PyCodeObject *code);
} ps_frame_walk;
ps_line_kind ps_walk_frames(void *walk, int number);

/*
 * The message that is stored in an exception, read without a call: the first argument, if that is a
 * plain str.
 */
void ps_exceptions_message(char *to, PyObject *exception);

/*
 * Hooks exceptions as the probes in `wanted` need it; 0: takes the hooks out. False when that is
 * not possible; then the states say why.
 */
bool ps_exceptions_hook(ps_probe_set wanted);
/* Drops what the hooks hold. After ps_exceptions_hook(0). */
void ps_exceptions_forget(void);
/*
 * Before 3.12, exceptions_trace.c: raises and rescues by the trace hook, if the user accepted that.
 * The states say whether it is so.
 */
void ps_exceptions_trace(ps_probe_set wanted);
/* The span in which an exception was raised, as far as it is known. */
void ps_exceptions_span(ps_span *span, PyObject *exception, PyTracebackObject *first, uint32_t depth);
/*
 * Before 3.12, exceptions_spans.c: called when an exception is made, when it is gone, and when the
 * hooks are put in.
 */
void ps_exceptions_note_span(PyObject *exception);
void ps_exceptions_forget_span(PyObject *exception);
void ps_exceptions_forget_spans(void);
/*
 * Is there work for the worker? ps_exceptions_hook_upkeep() does it. last: before the process
 * flushes for the last time.
 */
bool ps_exceptions_hook_needs_upkeep(void);
void ps_exceptions_hook_upkeep(bool last);

#endif

/*
 * Between tracebacks.c, which times the functions that format tracebacks, and tracebacks_hooks.c,
 * which hooks these functions.
 */
#ifndef PS_PYTHON_TRACEBACKS_H
#define PS_PYTHON_TRACEBACKS_H

#include "hooks.h"

/* What a function formats. */
enum ps_subject {
    PS_AN_EXCEPTION, /* the exception in its arguments; without one, the exception that is being handled */
    PS_A_STACK,      /* a stack without an exception */
    PS_MAKES,        /* makes a TracebackException of the exception in its arguments */
    PS_MADE,         /* a TracebackException */
};

typedef struct ps_formatter {
    const char *module, *klass, *name; /* klass NULL: a function of the module */
    const char *kind;                  /* the kind in backtrace__done */
    enum ps_subject subject;
} ps_formatter;

/* The formatter that was hooked as this function; NULL when nobody listens any more. */
const ps_formatter *ps_tracebacks_hooked(PyObject *function);
bool ps_tracebacks_on(void);

/*
 * Called instead of a formatter: calls the formatter's own code, `ps_traceback_original`, and times
 * it.
 */
PyObject *ps_traceback_call(PyObject *function, PyObject *const *args, size_t flags, PyObject *names);
PyObject *ps_traceback_run(PyObject *function, PyObject *const *args, size_t flags, PyObject *names);
extern vectorcallfunc ps_traceback_original;

/* Called before the first hook. False with an exception. */
bool ps_tracebacks_ready(void);

#endif

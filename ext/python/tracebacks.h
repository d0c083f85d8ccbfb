/*
 * Between tracebacks.c, which times what formats tracebacks, and tracebacks_hooks.c, which has it
 * called.
 */
#ifndef PS_PYTHON_TRACEBACKS_H
#define PS_PYTHON_TRACEBACKS_H

#include "hooks.h"

/* What a function formats. */
enum ps_subject {
    PS_AN_EXCEPTION, /* in its arguments, else the one that is being handled */
    PS_A_STACK,      /* of no exception */
    PS_MAKES,        /* the exception in its arguments, into a TracebackException */
    PS_MADE,         /* such a TracebackException */
};

typedef struct ps_formatter {
    const char *module, *klass, *name; /* klass NULL: a function of the module */
    const char *kind;                  /* as backtrace__done has it */
    enum ps_subject subject;
} ps_formatter;

/* What was hooked as this function; NULL when nobody listens any more. */
const ps_formatter *ps_tracebacks_hooked(PyObject *function);
bool ps_tracebacks_on(void);

/*
 * Called instead of a formatter's own: what it runs by itself, `ps_traceback_original`, is called
 * from there and timed.
 */
PyObject *ps_traceback_call(PyObject *function, PyObject *const *args, size_t flags, PyObject *names);
PyObject *ps_traceback_run(PyObject *function, PyObject *const *args, size_t flags, PyObject *names);
extern vectorcallfunc ps_traceback_original;

/* Before the first hook: false with an exception. */
bool ps_tracebacks_ready(void);

#endif

/* Between exceptions.c and what tells it of exceptions: exceptions_monitoring.c (3.12 and later), exceptions_slots.c (before). */
#ifndef PS_PYTHON_EXCEPTIONS_H
#define PS_PYTHON_EXCEPTIONS_H

#include "hooks.h"

/* Ends of loops and of generators: no errors. */
bool ps_exceptions_is_noise(PyObject *exception);
/* Counts an exception that has its whole traceback. Its row, or NULL when it was never raised. */
ps_row *ps_exceptions_count(PyObject *exception);
/* Has the VM tell of exceptions as the probes in `wanted` need it; 0: not at all. False when it cannot; then the states say why. */
bool ps_exceptions_hook(uint32_t wanted);

#endif

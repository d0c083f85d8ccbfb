/*
 * What differs from version to version of CPython, and nothing else does. Each use of something that is not public says which
 * versions have it so.
 */
#ifndef PS_PYTHON_COMPAT_H
#define PS_PYTHON_COMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>

#include <stdint.h>

#define PS_HAVE_MONITORING (PY_VERSION_HEX >= 0x030C0000)
#define PS_HAVE_QUALNAME   (PY_VERSION_HEX >= 0x030B0000)

/* The calling thread's state without a check that there is one; public from 3.13 on. */
static inline PyThreadState *ps_thread_state(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    return PyThreadState_GetUnchecked();
#else
    return _PyThreadState_UncheckedGet();
#endif
}

/*
 * What names the frame that runs: compared only. It stays the same for as long as the frame lives, which for a generator is
 * until it ends. Fields of a struct that is public to include and not documented: 3.13 to 3.15; 3.11 and 3.12; up to 3.10.
 */
static inline uintptr_t ps_current_frame(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    return (uintptr_t)ps_thread_state()->current_frame;
#elif PY_VERSION_HEX >= 0x030B0000
    return (uintptr_t)ps_thread_state()->cframe->current_frame;
#else
    return (uintptr_t)ps_thread_state()->frame;
#endif
}

/*
 * The exception that is on its way on this thread, taken away while code of ours calls what could raise, and put back. To put back
 * nothing clears what was raised in between.
 */
typedef struct {
    PyObject *type, *value, *traceback;
} ps_error;

static inline ps_error ps_error_save(void)
{
    ps_error error = {NULL, NULL, NULL};
#if PY_VERSION_HEX >= 0x030C0000
    error.value = PyErr_GetRaisedException();
#else
    PyErr_Fetch(&error.type, &error.value, &error.traceback);
#endif
    return error;
}

static inline void ps_error_restore(ps_error error)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyErr_SetRaisedException(error.value);
#else
    PyErr_Restore(error.type, error.value, error.traceback);
#endif
}

/* New references. */
static inline PyCodeObject *ps_frame_code(PyFrameObject *frame)
{
#if PY_VERSION_HEX >= 0x03090000
    return PyFrame_GetCode(frame);
#else
    Py_INCREF(frame->f_code);
    return frame->f_code;
#endif
}

static inline PyObject *ps_frame_globals(PyFrameObject *frame)
{
#if PY_VERSION_HEX >= 0x030B0000
    return PyFrame_GetGlobals(frame);
#else
    Py_INCREF(frame->f_globals);
    return frame->f_globals;
#endif
}

/* Private and stable from 3.6 to 3.11, "unstable" and documented from 3.12 on. */
#if PY_VERSION_HEX < 0x030C0000
#define PyUnstable_Code_GetExtra              _PyCode_GetExtra
#define PyUnstable_Code_SetExtra              _PyCode_SetExtra
#define PyUnstable_Eval_RequestCodeExtraIndex _PyEval_RequestCodeExtraIndex
#endif

#endif

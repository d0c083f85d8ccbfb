/*
 * What differs from version to version of CPython, and nothing else does. Each use of something
 * that is not public says which versions have it so.
 */
#ifndef PS_PYTHON_COMPAT_H
#define PS_PYTHON_COMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if PY_VERSION_HEX < 0x030B0000
#error "probescope needs CPython 3.11 or later"
#endif

#include <frameobject.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "address.h"

#define PS_HAVE_MONITORING (PY_VERSION_HEX >= 0x030C0000)
/*
 * The profile hook of all threads: without a GIL they would have to stand still while it is put in.
 */
#define PS_HAVE_PROFILE_HOOK PS_HAVE_GIL
/* os.fork() warns when the process has other threads. */
#define PS_FORK_WARNS_OF_THREADS (PY_VERSION_HEX >= 0x030C0000)

#ifdef Py_GIL_DISABLED
#define PS_HAVE_GIL 0
#else
#define PS_HAVE_GIL 1
#endif
/* A module can say that it needs no GIL. */
#define PS_CAN_SAY_NO_GIL (PY_VERSION_HEX >= 0x030D0000)

/* Of PyCriticalSection: there since 3.13, where it does something. */
#if PS_HAVE_GIL
typedef struct {
    char unused;
} ps_section;
static inline void ps_section_begin(ps_section *section, PyObject *object) {}
static inline void ps_section_end(ps_section *section) {}
#else
typedef PyCriticalSection ps_section;
static inline void ps_section_begin(ps_section *section, PyObject *object)
{
    PyCriticalSection_Begin(section, object);
}
static inline void ps_section_end(ps_section *section)
{
    PyCriticalSection_End(section);
}
#endif

/* The calling thread's state without a check that there is one; public from 3.13 on. */
static inline PyThreadState *ps_thread_state(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    return PyThreadState_GetUnchecked();
#else
    return _PyThreadState_UncheckedGet();
#endif
}

/* Is the interpreter past its exit handlers? */
static inline bool ps_is_finalizing(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing();
#else
    return _Py_IsFinalizing();
#endif
}

static inline bool ps_is_main_interpreter(void)
{
    return PyThreadState_Get()->interp == PyInterpreterState_Main();
}

/*
 * What names the frame that runs. It stays the same for as long as the frame lives, which for a
 * generator is until it ends. Fields of a struct that is public to include and not documented: 3.13
 * to 3.15; 3.11 and 3.12.
 */
static inline ps_address ps_current_frame(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    return PS_ADDRESS(ps_thread_state()->current_frame);
#else
    return PS_ADDRESS(ps_thread_state()->cframe->current_frame);
#endif
}

/*
 * 3.12 and 3.13 count the calls of C that are nested in each other on a thread, of which there may
 * be 1,500 and 10,000. A field of a struct that is public to include. 3.14 looks at the size of the
 * C stack instead.
 */
#define PS_COUNTS_C_CALLS (PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000)
#if PS_COUNTS_C_CALLS
#include <opcode.h>

static inline int ps_c_calls_left(void)
{
    return ps_thread_state()->c_recursion_remaining;
}
#endif

/*
 * The exception that is on its way on this thread, taken away while code of ours calls what could
 * raise, and put back. To put back nothing clears what was raised in between.
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

/* What the frames of the running greenlet come from: each has its own. */
static inline ps_address ps_current_owner(void)
{
    return PS_ADDRESS(ps_thread_state()->datastack_chunk);
}

/* What a dict has under a name of ours: a new reference, or NULL, without an error. */
static inline PyObject *ps_dict_get(PyObject *dict, const char *name)
{
    PyObject *found = NULL;
#if PY_VERSION_HEX >= 0x030D0000
    if (PyDict_GetItemStringRef(dict, name, &found) < 0) PyErr_Clear();
#else
    found = PyDict_GetItemString(dict, name);
    Py_XINCREF(found);
#endif
    return found;
}

/*
 * The same by an interned key. Nothing is made for it, and an exception that is on its way stays as
 * it is.
 */
static inline PyObject *ps_dict_find(PyObject *dict, PyObject *key)
{
    PyObject *found = NULL, *error = PyErr_Occurred();
#if PY_VERSION_HEX >= 0x030D0000
    PyDict_GetItemRef(dict, key, &found);
#else
    found = _PyDict_GetItem_KnownHash(dict, key, ((PyASCIIObject *)key)->hash);
    Py_XINCREF(found);
#endif
    /* Of a key that is no str and is compared. */
    if (!found && PyErr_Occurred() != error) PyErr_Clear();
    return found;
}

/*
 * What an attribute of a class was found by: another number after each change of the class, and
 * never that of another class. 0: it has none at the moment. A class that is written in C has its
 * address for ever.
 */
static inline uint32_t ps_type_version(const PyTypeObject *type)
{
    if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return UINT32_MAX;
#if PY_VERSION_HEX < 0x030D0000
    if (!(type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG)) return 0;
#endif
    return type->tp_version_tag;
}

#if !PS_HAVE_MONITORING
/*
 * 3.11 keeps to itself what a frame object is, and changes it no more:
 * Include/internal/pycore_frame.h.
 */
struct ps_frame_object {
    PyObject ob_base;
    PyFrameObject *f_back;
    void *f_frame;
    PyObject *f_trace;
    int f_lineno;
    char f_trace_lines, f_trace_opcodes, f_fast_as_locals;
    PyObject *f_frame_data[1];
};

/* Has the call not ended? A generator that is suspended has not. */
static inline bool ps_frame_is_running(PyFrameObject *frame)
{
    /* What the frame was is moved into the object when the call ends. */
    const struct ps_frame_object *object = (const struct ps_frame_object *)frame;
    return object->f_frame != (const void *)object->f_frame_data;
}

/*
 * Where a frame can be that ran. Code begins with an instruction of the interpreter's own, which
 * raises nothing.
 */
enum { PS_FIRST_LASTI = 1 };

/* Who called, as far as it is known without making an object: once the call has ended. Borrowed. */
static inline PyFrameObject *ps_frame_known_back(PyFrameObject *frame)
{
    return ((struct ps_frame_object *)frame)->f_back;
}
#endif

/*
 * Are the characters of a str there to read? Not those of one that was made with functions that are
 * gone since 3.12.
 */
static inline bool ps_string_is_ready(PyObject *string)
{
#if PY_VERSION_HEX >= 0x030C0000
    return true;
#else
    return PyUnicode_IS_READY(string);
#endif
}

/*
 * What calls of this function run. The field is public to include; from 3.12 on what was made of
 * the old one is invalid then.
 */
static inline void ps_function_set_call(PyObject *function, vectorcallfunc call)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyFunction_SetVectorcall((PyFunctionObject *)function, call);
#else
    ((PyFunctionObject *)function)->vectorcall = call;
#endif
}

/*
 * 3.11 runs a call of what is exactly a function in the caller's loop and does not look at its
 * vectorcall. 3.12 looks.
 */
#define PS_CALLS_ARE_INLINED (PY_VERSION_HEX < 0x030C0000)

/* Private and stable up to 3.11, "unstable" and documented from 3.12 on. */
#if PY_VERSION_HEX < 0x030C0000
#define PyUnstable_Code_GetExtra              _PyCode_GetExtra
#define PyUnstable_Code_SetExtra              _PyCode_SetExtra
#define PyUnstable_Eval_RequestCodeExtraIndex _PyEval_RequestCodeExtraIndex
#endif

#if PS_HAVE_PROFILE_HOOK
#include <opcode.h>

/*
 * The profile and trace hooks of any thread, with the GIL held. PyEval_SetProfile() knows the
 * calling thread alone, and _PyEval_SetProfile() of 3.11 tells the application's audit hooks: so
 * before 3.12 these write the fields that it writes. They stand in a public header, and 3.11 gets
 * no more changes.
 */
#if !PS_HAVE_MONITORING
static inline void ps_thread_update_tracing(PyThreadState *thread)
{
    /* While a Python trace function runs it is off, and made up afterwards. */
    bool on = !thread->tracing && (thread->c_tracefunc || thread->c_profilefunc);
    thread->cframe->use_tracing = on ? 255 : 0;
}

static inline bool ps_count_profiled(Py_tracefunc nobodys, bool more)
{
    return true;
}
#else
static inline void ps_thread_update_tracing(PyThreadState *thread) {}

/*
 * Not in a public header; exported for the interpreter's own extensions. It tells audit hooks, and
 * fails where one objects.
 */
extern int _PyEval_SetProfile(PyThreadState *thread, Py_tracefunc function, PyObject *object);

/*
 * From 3.12 on the interpreter counts the threads that have a profile function, and instruments
 * code while there are some. This makes it count one more or one fewer, by way of the calling
 * thread, which has it again what it had afterwards. False: an audit hook objects. May let others
 * have the GIL.
 */
static inline bool ps_count_profiled(Py_tracefunc nobodys, bool more)
{
    PyThreadState *own = ps_thread_state();
    Py_tracefunc kept = own->c_profilefunc;
    own->c_profilefunc = more ? NULL : nobodys;
    bool done = _PyEval_SetProfile(own, more ? nobodys : NULL, own->c_profileobj) == 0;
    own->c_profilefunc = kept;
    if (!done) PyErr_Clear();
    return done;
}
#endif

/* The instruction that the frame is at; of one that has not begun, the first one. */
typedef struct {
    unsigned char code, argument;
} ps_instruction;

static inline ps_instruction ps_frame_instruction(PyFrameObject *frame, PyCodeObject *code)
{
    int offset = PyFrame_GetLasti(frame);
    if (offset < 0) offset = 0;
#if PS_HAVE_MONITORING
    /*
     * As it was compiled, whatever tools have put in its place. The code object keeps that once it
     * was asked for.
     */
    PyObject *bytes = PyCode_GetCode(code);
    ps_instruction instruction = {0, 0};
    if (bytes) memcpy(&instruction, PyBytes_AS_STRING(bytes) + offset, sizeof(instruction));
    else PyErr_Clear();
    Py_XDECREF(bytes);
#else
    ps_instruction instruction;
    memcpy(&instruction, code->co_code_adaptive + offset, sizeof(instruction));
#endif
    return instruction;
}

/* Where a call begins (argument 0), or goes on after it was suspended. */
static inline bool ps_is_resume(ps_instruction instruction)
{
#if PS_HAVE_MONITORING
    return instruction.code == RESUME;
#else
    return instruction.code == RESUME || instruction.code == RESUME_QUICK;
#endif
}

/* At an exit of any code: with an exception? What was returned is NULL then; in 3.12 it is None. */
static inline bool ps_frame_has_raised(PyFrameObject *frame, PyCodeObject *code, PyObject *result)
{
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000
    if (result != Py_None) return !result;
    unsigned char instruction = ps_frame_instruction(frame, code).code;
    return instruction != RETURN_CONST && instruction != RETURN_VALUE && instruction != YIELD_VALUE;
#else
    return !result;
#endif
}

/*
 * These three only for the code of generators, coroutines and async generators. At an entry: did it
 * run before?
 */
static inline bool ps_frame_is_resumed(PyFrameObject *frame, PyCodeObject *code)
{
    ps_instruction instruction = ps_frame_instruction(frame, code);
    return !ps_is_resume(instruction) || (instruction.argument & 3) != 0;
}

/*
 * Is the call suspended there? Since 3.13 it stands at the instruction after the yield, where it is
 * to go on.
 */
static inline bool ps_is_suspension(ps_instruction instruction)
{
    if (instruction.code == YIELD_VALUE) return true;
    return PY_VERSION_HEX >= 0x030D0000 && ps_is_resume(instruction) && (instruction.argument & 3) != 0;
}

/*
 * At an exit with an exception: was that thrown into it where it was suspended, or before it began,
 * and not handled?
 */
static inline bool ps_frame_was_thrown_into(PyFrameObject *frame, PyCodeObject *code)
{
    ps_instruction instruction = ps_frame_instruction(frame, code);
    return ps_is_suspension(instruction) || instruction.code == RETURN_GENERATOR;
}

/* At an exit without an exception: is it suspended? */
static inline bool ps_frame_is_suspended(PyFrameObject *frame, PyCodeObject *code)
{
    return ps_is_suspension(ps_frame_instruction(frame, code));
}
#endif

/* eval_breaker.c: up to 3.12 the main thread does not look for calls that other threads add. */
#define PS_NEEDS_POKE                (PY_VERSION_HEX < 0x030D0000)
#define PS_PENDING_TAKES_INTERPRETER (PY_VERSION_HEX < 0x030C0000)
#define PS_HAVE_REF_TRACER           (PY_VERSION_HEX >= 0x030D0000)
/* The interpreter tells when a thread goes from one context of contextvars to another. */
#define PS_HAVE_CONTEXT_WATCHERS (PY_VERSION_HEX >= 0x030E0000)

/*
 * What runs, from the innermost out, without a frame object for each: the head of a struct that is
 * not public. The fields have been where they are in all releases of each version; 3.14 and 3.15
 * are as 3.13.
 */
struct ps_walked_frame {
#if PY_VERSION_HEX >= 0x030C0000
    PyObject *code;
    struct ps_walked_frame *previous;
    PyObject *function, *globals, *builtins, *locals, *object;
    void *instruction;
    int stack_top;
    uint16_t return_offset;
    char owner; /* 3.12 only: further down than that 3.14 differs */
#else
    PyObject *function, *globals, *builtins, *locals, *code, *object;
    struct ps_walked_frame *previous;
    char *instruction;
#endif
};

static inline struct ps_walked_frame *ps_walk_from(PyThreadState *thread)
{
#if PY_VERSION_HEX >= 0x030D0000
    return (struct ps_walked_frame *)thread->current_frame;
#else
    return thread->cframe ? (struct ps_walked_frame *)thread->cframe->current_frame : NULL;
#endif
}

static inline struct ps_walked_frame *ps_walk_on(struct ps_walked_frame *frame)
{
    return frame->previous;
}

#if PY_VERSION_HEX >= 0x030C0000
/*
 * Its function is one: the lowest bits of a reference are tags from 3.14 on, and where there is
 * none it is NULL or None.
 */
static inline bool ps_walked_is_called(const struct ps_walked_frame *frame)
{
    PyObject *function = (PyObject *)((uintptr_t)frame->function & ~(uintptr_t)3);
    return function && PyFunction_Check(function);
}
#endif

/*
 * Borrowed. NULL: the interpreter's own. It has frames between a call from C and the function
 * called, and from 3.12 on one below each __init__ that a class is called into: that one has code,
 * and neither a function nor globals.
 */
static inline PyCodeObject *ps_walked_code(struct ps_walked_frame *frame)
{
#if PY_VERSION_HEX >= 0x030E0000
    PyObject *code = PyUnstable_InterpreterFrame_GetCode((struct _PyInterpreterFrame *)frame);
    bool found = code && PyCode_Check(code) && ps_walked_is_called(frame);
    Py_XDECREF(code);
    return found ? (PyCodeObject *)code : NULL;
#elif PY_VERSION_HEX >= 0x030D0000
    bool found = frame->code && PyCode_Check(frame->code) && ps_walked_is_called(frame);
    return found ? (PyCodeObject *)frame->code : NULL;
#elif PY_VERSION_HEX >= 0x030C0000
    if (frame->owner == 3 /* FRAME_OWNED_BY_CSTACK */ || !ps_walked_is_called(frame)) return NULL;
    return (PyCodeObject *)frame->code;
#else
    return (PyCodeObject *)frame->code;
#endif
}

static inline PyObject *ps_walked_globals(struct ps_walked_frame *frame)
{
    return frame->globals;
}

/* Where it is, for PyCode_Addr2Line(). */
static inline int ps_walked_instruction(struct ps_walked_frame *frame)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyUnstable_InterpreterFrame_GetLasti((struct _PyInterpreterFrame *)frame);
#else
    return (int)(frame->instruction - ((PyCodeObject *)frame->code)->co_code_adaptive);
#endif
}

/*
 * In ns when the frame's code is short and in us when it is long: line tables are read from their
 * beginning.
 */
static inline int ps_walked_line(struct ps_walked_frame *frame)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyUnstable_InterpreterFrame_GetLine((struct _PyInterpreterFrame *)frame);
#else
    PyCodeObject *code = (PyCodeObject *)frame->code;
    return PyCode_Addr2Line(code, (int)(frame->instruction - code->co_code_adaptive));
#endif
}

#endif

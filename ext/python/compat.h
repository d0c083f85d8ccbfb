/*
 * The differences between versions of CPython, and nothing else. Each use of something that is not
 * public names the versions that have it so.
 */
#ifndef PS_PYTHON_COMPAT_H
#define PS_PYTHON_COMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if PY_VERSION_HEX < 0x030B0000
#error "probescope needs CPython 3.11 or later"
#endif

#include <frameobject.h>

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/address.h"

#define PS_HAVE_MONITORING (PY_VERSION_HEX >= 0x030C0000)
/* os.fork() warns when the process has other threads. */
#define PS_FORK_WARNS_OF_THREADS (PY_VERSION_HEX >= 0x030C0000)

#ifdef Py_GIL_DISABLED
#define PS_HAVE_GIL 0
#else
#define PS_HAVE_GIL 1
#endif
/* struct _gil_runtime_state was compared up to 3.14 (gil_wait.c). */
#define PS_GIL_SIZE_IS_KNOWN (PY_VERSION_HEX < 0x030F0000)
/* A module can declare that it needs no GIL. */
#define PS_CAN_SAY_NO_GIL (PY_VERSION_HEX >= 0x030D0000)

/* A PyCriticalSection, which exists since 3.13. With a GIL it does nothing. */
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

/* The calling thread's state, without a check that there is one; public from 3.13 on. */
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
 * Identifies the frame that runs. The address stays the same as long as the frame lives, which for
 * a generator is until it ends. The fields are in a struct that is public to include and not
 * documented: 3.13 to 3.15; 3.11 and 3.12.
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
 * 3.12 and 3.13 count the nested calls of C on a thread, of which there may be 1,500 and 10,000.
 * The field is in a struct that is public to include. 3.14 checks the size of the C stack instead.
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
 * The exception that is set on this thread. It is saved while our code calls what could raise, and
 * then restored. Restoring an empty one clears what was raised in between.
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

/* The memory that the running greenlet's frames are in: each greenlet has its own. */
static inline ps_address ps_current_owner(void)
{
    return PS_ADDRESS(ps_thread_state()->datastack_chunk);
}

/* What a dict has under a name of ours: a new reference, or NULL without an error. */
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

/* The same by an interned key. Allocates nothing, and does not change an exception that is set. */
static inline PyObject *ps_dict_find(PyObject *dict, PyObject *key)
{
    PyObject *found = NULL, *error = PyErr_Occurred();
#if PY_VERSION_HEX >= 0x030D0000
    PyDict_GetItemRef(dict, key, &found);
#else
    found = _PyDict_GetItem_KnownHash(dict, key, ((PyASCIIObject *)key)->hash);
    Py_XINCREF(found);
#endif
    /* Raised by the comparison with a key that is no str. */
    if (!found && PyErr_Occurred() != error) PyErr_Clear();
    return found;
}

/*
 * The version of a class: it changes with each change of the class, and no other class ever has the
 * same. 0: the class has none at the moment. UINT32_MAX: the class is written in C, and no other
 * class ever has its address.
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
 * The struct of a frame object, which 3.11 does not publish, and does not change any more:
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

/* Has the call not ended? That of a suspended generator has not. */
static inline bool ps_frame_is_running(PyFrameObject *frame)
{
    /* When the call ends, its frame is moved into the object. */
    const struct ps_frame_object *object = (const struct ps_frame_object *)frame;
    return object->f_frame != (const void *)object->f_frame_data;
}

/*
 * The lowest tb_lasti of a frame that has run. The instruction before it is the interpreter's own,
 * and raises nothing.
 */
enum { PS_FIRST_LASTI = 1 };

/* The caller, as far as it is known without making an object: once the call has ended. Borrowed. */
static inline PyFrameObject *ps_frame_known_back(PyFrameObject *frame)
{
    return ((struct ps_frame_object *)frame)->f_back;
}
#endif

/*
 * Are the characters of a str there to read? Not if the str was made with functions that 3.12
 * removed.
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
 * Sets what a call of this function runs. The field is public to include. From 3.12 on the setter
 * also invalidates what was made from the old one.
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
 * 3.11 runs a call of a plain function in the caller's loop and ignores its vectorcall. 3.12 uses
 * it.
 */
#define PS_CALLS_ARE_INLINED (PY_VERSION_HEX < 0x030C0000)

/* Private and stable up to 3.11, "unstable" and documented from 3.12 on. */
#if PY_VERSION_HEX < 0x030C0000
#define PyUnstable_Code_GetExtra              _PyCode_GetExtra
#define PyUnstable_Code_SetExtra              _PyCode_SetExtra
#define PyUnstable_Eval_RequestCodeExtraIndex _PyEval_RequestCodeExtraIndex
#endif

#if !PS_HAVE_MONITORING
#include <opcode.h>

/*
 * The profile and trace hooks of any thread, with the GIL held. PyEval_SetProfile() sets the
 * calling thread's only, and _PyEval_SetProfile() calls the application's audit hooks. So we write
 * the fields that they write. The fields are in a public header, and 3.11 gets no more changes.
 */
static inline void ps_thread_update_tracing(PyThreadState *thread)
{
    /* Off while a Python trace function runs. The interpreter sets it again afterwards. */
    bool on = !thread->tracing && (thread->c_tracefunc || thread->c_profilefunc);
    thread->cframe->use_tracing = on ? 255 : 0;
}

/* The instruction that the frame is at; the first one if the frame has not begun. */
typedef struct {
    unsigned char code, argument;
} ps_instruction;

static inline ps_instruction ps_frame_instruction(PyFrameObject *frame, PyCodeObject *code)
{
    int offset = PyFrame_GetLasti(frame);
    if (offset < 0) offset = 0;
    ps_instruction instruction;
    memcpy(&instruction, code->co_code_adaptive + offset, sizeof(instruction));
    return instruction;
}

/* Does a call begin here (argument 0), or go on here after it was suspended? */
static inline bool ps_is_resume(ps_instruction instruction)
{
    return instruction.code == RESUME || instruction.code == RESUME_QUICK;
}

/*
 * Like ps_frame_was_thrown_into() and ps_frame_is_suspended(), only for the code of generators,
 * coroutines and async generators. At an entry: did the frame run before?
 */
static inline bool ps_frame_is_resumed(PyFrameObject *frame, PyCodeObject *code)
{
    ps_instruction instruction = ps_frame_instruction(frame, code);
    return !ps_is_resume(instruction) || (instruction.argument & 3) != 0;
}

/*
 * At an exit with an exception: was the exception thrown into the frame where it was suspended, or
 * before it began, and not handled?
 */
static inline bool ps_frame_was_thrown_into(PyFrameObject *frame, PyCodeObject *code)
{
    ps_instruction instruction = ps_frame_instruction(frame, code);
    return instruction.code == YIELD_VALUE || instruction.code == RETURN_GENERATOR;
}

/* At an exit without an exception: is the frame suspended? */
static inline bool ps_frame_is_suspended(PyFrameObject *frame, PyCodeObject *code)
{
    return ps_frame_instruction(frame, code).code == YIELD_VALUE;
}
#endif

/* eval_breaker.c: up to 3.12 the main thread does not notice calls that other threads add. */
#define PS_NEEDS_POKE                (PY_VERSION_HEX < 0x030D0000)
#define PS_PENDING_TAKES_INTERPRETER (PY_VERSION_HEX < 0x030C0000)
#define PS_HAVE_REF_TRACER           (PY_VERSION_HEX >= 0x030D0000)
/* The interpreter reports when a thread goes from one context of contextvars to another. */
#define PS_HAVE_CONTEXT_WATCHERS (PY_VERSION_HEX >= 0x030E0000)

/* The last 16 bytes of an int, the highest byte first. False without memory. */
static inline bool ps_int_bytes(uint8_t to[static 16], PyObject *number)
{
#if PY_VERSION_HEX >= 0x030D0000
    return PyLong_AsNativeBytes(number, to, 16, Py_ASNATIVEBYTES_BIG_ENDIAN) >= 0;
#else
    PyObject *bits = PyLong_FromLong(64);
    PyObject *high = bits ? PyNumber_Rshift(number, bits) : NULL;
    Py_XDECREF(bits);
    if (!high) return false;
    uint64_t halves[] = {htobe64(PyLong_AsUnsignedLongLongMask(high)),
                         htobe64(PyLong_AsUnsignedLongLongMask(number))};
    Py_DECREF(high);
    memcpy(to, halves, sizeof(halves));
    return true;
#endif
}

/*
 * The frames that run, from the innermost out, without a frame object for each: the head of a
 * struct that is not public. The fields have the same places in all releases of a version; 3.14 and
 * 3.15 are as 3.13.
 */
struct ps_walked_frame {
#if PY_VERSION_HEX >= 0x030C0000
    PyObject *code;
    struct ps_walked_frame *previous;
    PyObject *function, *globals, *builtins, *locals, *object;
    void *instruction;
    int stack_top;
    uint16_t return_offset;
    char owner; /* for 3.12 only: from here on 3.14 differs */
#else
    PyObject *function, *globals, *builtins, *locals, *code, *object;
    struct ps_walked_frame *previous;
    char *instruction;
#endif
};

/* For ps_here_lines_are(). With tags in the lowest bits of `code`, from 3.14 on. */
#define PS_VM_CODE                                                                                           \
    ((uint64_t)offsetof(struct ps_walked_frame, code) |                                                      \
     (uint64_t)offsetof(struct ps_walked_frame, instruction) << 16 |                                         \
     (uint64_t)offsetof(PyCodeObject, co_code_adaptive) << 32 |                                              \
     (uint64_t)offsetof(PyCodeObject, co_qualname) << 48)
#define PS_VM_LINES                                                                                          \
    ((uint64_t)offsetof(PyCodeObject, co_linetable) |                                                        \
     (uint64_t)offsetof(PyCodeObject, co_firstlineno) << 16 |                                                \
     (uint64_t)offsetof(PyBytesObject, ob_base.ob_size) << 32 |                                              \
     (uint64_t)offsetof(PyBytesObject, ob_sval) << 48)

/*
 * Calls are told apart by frame objects in 3.11 (functions_profile.c). The struct is not public; its
 * field f_frame comes after f_back.
 */
#define PS_VM_OBJECT (PS_HAVE_MONITORING ? 0 : sizeof(PyObject) + sizeof(PyFrameObject *))

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
 * Does the frame have a function? From 3.14 on the lowest bits of a reference are tags. Without a
 * function the field is NULL or None.
 */
static inline bool ps_walked_is_called(const struct ps_walked_frame *frame)
{
    PyObject *function = (PyObject *)((uintptr_t)frame->function & ~(uintptr_t)3);
    return function && PyFunction_Check(function);
}
#endif

/*
 * Borrowed. NULL: the frame is the interpreter's own. Such frames are between a call from C and the
 * function called, and from 3.12 on below each __init__ that a class is called into. The latter has
 * code, and neither a function nor globals.
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

/* Where the frame is, for PyCode_Addr2Line(). */
static inline int ps_walked_instruction(struct ps_walked_frame *frame)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyUnstable_InterpreterFrame_GetLasti((struct _PyInterpreterFrame *)frame);
#else
    return (int)(frame->instruction - ((PyCodeObject *)frame->code)->co_code_adaptive);
#endif
}

/*
 * Takes ns when the frame's code is short and us when it is long: line tables are read from their
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

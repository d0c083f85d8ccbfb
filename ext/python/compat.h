/*
 * What differs from version to version of CPython, and nothing else does. Each use of something that is not public says which
 * versions have it so.
 */
#ifndef PS_PYTHON_COMPAT_H
#define PS_PYTHON_COMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PS_HAVE_MONITORING (PY_VERSION_HEX >= 0x030C0000)
/* The profile hook of all threads: without a GIL they would have to stand still while it is put in. */
#define PS_HAVE_PROFILE_HOOK PS_HAVE_GIL
#define PS_HAVE_QUALNAME     (PY_VERSION_HEX >= 0x030B0000)
/* Frames are objects only once somebody asks, a traceback for one. */
#define PS_HAVE_LAZY_FRAMES (PY_VERSION_HEX >= 0x030B0000)

/* 3.8 says nothing about visibility, and ours is hidden unless it is said. */
#define PS_INIT_FUNCTION __attribute__((visibility("default"))) PyMODINIT_FUNC
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

/* What the frames of the running greenlet come from: each has its own, from 3.11 on. 0 where it is not known. */
static inline uintptr_t ps_current_owner(void)
{
#if PY_VERSION_HEX >= 0x030B0000
    return (uintptr_t)ps_thread_state()->datastack_chunk;
#else
    return 0;
#endif
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

#if !PS_HAVE_QUALNAME
/* The value of local number i, which is a cell's when an inner function uses it. Borrowed; NULL when it has none. */
static inline PyObject *ps_frame_local(PyFrameObject *frame, int i)
{
    PyCodeObject *code = frame->f_code;
    if (frame->f_localsplus[i]) return frame->f_localsplus[i];
    Py_ssize_t cells = code->co_cell2arg ? PyTuple_GET_SIZE(code->co_cellvars) : 0;
    for (Py_ssize_t cell = 0; cell < cells; cell++)
        if (code->co_cell2arg[cell] == i) {
            PyObject *holder = frame->f_localsplus[code->co_nlocals + cell];
            return holder ? PyCell_GET(holder) : NULL; /* none in a frame that was cleared */
        }
    return NULL;
}
#endif

#if PY_VERSION_HEX < 0x03090000
#define Py_SET_TYPE(object, type) ((void)(Py_TYPE(object) = (type)))
#endif

/* The caller's frame: a new reference, or NULL. */
static inline PyFrameObject *ps_frame_back(PyFrameObject *frame)
{
#if PY_VERSION_HEX >= 0x03090000
    return PyFrame_GetBack(frame);
#else
    Py_XINCREF(frame->f_back);
    return frame->f_back;
#endif
}

#if !PS_HAVE_MONITORING
static inline bool ps_is_group(PyObject *exception)
{
#if PY_VERSION_HEX >= 0x030B0000
    return PyType_IsSubtype(Py_TYPE(exception), (PyTypeObject *)PyExc_BaseExceptionGroup);
#else
    return false;
#endif
}

#if PS_HAVE_LAZY_FRAMES
/* 3.11 keeps to itself what a frame object is, and changes it no more: Include/internal/pycore_frame.h. */
struct ps_frame_object {
    PyObject ob_base;
    PyFrameObject *f_back;
    void *f_frame;
    PyObject *f_trace;
    int f_lineno;
    char f_trace_lines, f_trace_opcodes, f_fast_as_locals;
    PyObject *f_frame_data[1];
};
#endif

/* Has the call not ended? A generator that is suspended has not. */
static inline bool ps_frame_is_running(PyFrameObject *frame)
{
#if PS_HAVE_LAZY_FRAMES
    /* What the frame was is moved into the object when the call ends. */
    const struct ps_frame_object *object = (const struct ps_frame_object *)frame;
    return object->f_frame != (const void *)object->f_frame_data;
#elif PY_VERSION_HEX >= 0x030A0000
    return frame->f_state <= FRAME_EXECUTING;
#else
    return frame->f_executing || (frame->f_gen && frame->f_stacktop);
#endif
}

/* Where a frame can be that ran. From 3.11 on code begins with an instruction of the interpreter's own, which raises nothing. */
enum { PS_FIRST_LASTI = PS_HAVE_LAZY_FRAMES ? 1 : 0 };

/* Who called, as far as it is known without making an object: 3.11 knows it once the call has ended. Borrowed. */
static inline PyFrameObject *ps_frame_known_back(PyFrameObject *frame)
{
#if PS_HAVE_LAZY_FRAMES
    return ((struct ps_frame_object *)frame)->f_back;
#else
    return frame->f_back;
#endif
}
#endif

/* Are the characters of a str there to read? Not those of one that was made with functions that are gone since 3.12. */
static inline bool ps_string_is_ready(PyObject *string)
{
#if PY_VERSION_HEX >= 0x030C0000
    return true;
#else
    return PyUnicode_IS_READY(string);
#endif
}

/* What calls of this function run. The field is public to include; from 3.12 on what was made of the old one is invalid then. */
static inline void ps_function_set_call(PyObject *function, vectorcallfunc call)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyFunction_SetVectorcall((PyFunctionObject *)function, call);
#else
    ((PyFunctionObject *)function)->vectorcall = call;
#endif
}

/*
 * 3.11 runs a call of what is exactly a function in the caller's loop and does not look at its vectorcall. 3.12 looks, and
 * before there is no such shortcut.
 */
#define PS_CALLS_ARE_INLINED (PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000)
/* Generators answer to am_send. */
#define PS_HAVE_SEND (PY_VERSION_HEX >= 0x030A0000)

/* Private and stable from 3.6 to 3.11, "unstable" and documented from 3.12 on. */
#if PY_VERSION_HEX < 0x030C0000
#define PyUnstable_Code_GetExtra              _PyCode_GetExtra
#define PyUnstable_Code_SetExtra              _PyCode_SetExtra
#define PyUnstable_Eval_RequestCodeExtraIndex _PyEval_RequestCodeExtraIndex
#endif

/*
 * 3.8 and 3.9 count in an internal field how many trace functions there are, and tell of no line while it is 0. PyEval_SetTrace()
 * counts, for its own thread; with a trace function of ours in between the application's own would be counted wrong.
 */
#define PS_CAN_TRACE_LINES (PY_VERSION_HEX >= 0x030A0000)

#if PS_HAVE_PROFILE_HOOK
#include <opcode.h>

/*
 * The profile and trace hooks of any thread, with the GIL held. PyEval_SetProfile() knows the calling thread alone, and
 * _PyEval_SetProfile() of 3.9 to 3.11 tells the application's audit hooks: so before 3.12 these write the fields that it writes. They
 * stand in a public header, and 3.8 to 3.11 get no more changes.
 */
#if !PS_HAVE_MONITORING
static inline void ps_thread_update_tracing(PyThreadState *thread)
{
    /* While a Python trace function runs it is off, and made up afterwards. */
    bool on = !thread->tracing && (thread->c_tracefunc || thread->c_profilefunc);
#if PY_VERSION_HEX >= 0x030B0000
    thread->cframe->use_tracing = on ? 255 : 0;
#elif PY_VERSION_HEX >= 0x030A0000
    thread->cframe->use_tracing = on;
#else
    thread->use_tracing = on;
#endif
}

static inline bool ps_count_profiled(Py_tracefunc nobodys, bool more)
{
    return true;
}
#else
static inline void ps_thread_update_tracing(PyThreadState *thread) {}

/* Not in a public header; exported for the interpreter's own extensions. It tells audit hooks, and fails where one objects. */
extern int _PyEval_SetProfile(PyThreadState *thread, Py_tracefunc function, PyObject *object);

/*
 * From 3.12 on the interpreter counts the threads that have a profile function, and instruments code while there are some. This makes
 * it count one more or one fewer, by way of the calling thread, which has it again what it had afterwards. False: an audit hook
 * objects. May let others have the GIL.
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
#if PY_VERSION_HEX >= 0x030B0000
    int offset = PyFrame_GetLasti(frame);
#else
    int offset = frame->f_lasti * (PY_VERSION_HEX >= 0x030A0000 ? 2 : 1); /* 3.10 counts instructions */
#endif
    if (offset < 0) offset = 0;
#if PS_HAVE_MONITORING
    /* As it was compiled, whatever tools have put in its place. The code object keeps that once it was asked for. */
    PyObject *bytes = PyCode_GetCode(code);
    ps_instruction instruction = {0, 0};
    if (bytes) memcpy(&instruction, PyBytes_AS_STRING(bytes) + offset, sizeof(instruction));
    else PyErr_Clear();
    Py_XDECREF(bytes);
#else
    ps_instruction instruction;
#if PS_HAVE_LAZY_FRAMES
    const char *instructions = code->co_code_adaptive;
#else
    const char *instructions = PyBytes_AS_STRING(code->co_code);
#endif
    memcpy(&instruction, instructions + offset, sizeof(instruction));
#endif
    return instruction;
}

#if PY_VERSION_HEX >= 0x030B0000
/* Where a call begins (argument 0), or goes on after it was suspended. */
static inline bool ps_is_resume(ps_instruction instruction)
{
#if PS_HAVE_MONITORING
    return instruction.code == RESUME;
#else
    return instruction.code == RESUME || instruction.code == RESUME_QUICK;
#endif
}
#endif

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

/* These three only for the code of generators, coroutines and async generators. At an entry: did it run before? */
static inline bool ps_frame_is_resumed(PyFrameObject *frame, PyCodeObject *code)
{
#if PY_VERSION_HEX >= 0x030B0000
    ps_instruction instruction = ps_frame_instruction(frame, code);
    return !ps_is_resume(instruction) || (instruction.argument & 3) != 0;
#else
    return frame->f_lasti >= 0;
#endif
}

#if PY_VERSION_HEX >= 0x030B0000
/* Is the call suspended there? Since 3.13 it stands at the instruction after the yield, where it is to go on. */
static inline bool ps_is_suspension(ps_instruction instruction)
{
    if (instruction.code == YIELD_VALUE) return true;
    return PY_VERSION_HEX >= 0x030D0000 && ps_is_resume(instruction) && (instruction.argument & 3) != 0;
}
#endif

/* At an exit with an exception: was that thrown into it where it was suspended, or before it began, and not handled? */
static inline bool ps_frame_was_thrown_into(PyFrameObject *frame, PyCodeObject *code)
{
    ps_instruction instruction = ps_frame_instruction(frame, code);
#if PY_VERSION_HEX >= 0x030B0000
    return ps_is_suspension(instruction) || instruction.code == RETURN_GENERATOR;
#else
    return instruction.code == YIELD_VALUE || frame->f_lasti < 0;
#endif
}

/* At an exit without an exception: is it suspended? */
static inline bool ps_frame_is_suspended(PyFrameObject *frame, PyCodeObject *code)
{
#if PY_VERSION_HEX >= 0x030B0000
    return ps_is_suspension(ps_frame_instruction(frame, code));
#elif PY_VERSION_HEX >= 0x030A0000
    return frame->f_state == FRAME_SUSPENDED;
#else
    return frame->f_stacktop != NULL;
#endif
}
#endif

/* eval_breaker.c: from 3.9 to 3.12 the main thread does not look for calls that other threads add. */
#define PS_NEEDS_POKE                (PY_VERSION_HEX >= 0x03090000 && PY_VERSION_HEX < 0x030D0000)
#define PS_PENDING_TAKES_INTERPRETER (PS_NEEDS_POKE && PY_VERSION_HEX < 0x030C0000)
#define PS_PENDING_ENDS_LOUDLY       (PY_VERSION_HEX < 0x03090000)
#define PS_HAVE_REF_TRACER           (PY_VERSION_HEX >= 0x030D0000)
/* The interpreter tells when a thread goes from one context of contextvars to another. */
#define PS_HAVE_CONTEXT_WATCHERS (PY_VERSION_HEX >= 0x030E0000)

/*
 * What runs, from the innermost out, without a frame object for each: the head of a struct that is not public. Up to 3.10 there
 * are frame objects anyway. The fields have been where they are in all releases of each version; 3.14 and 3.15 are as 3.13.
 */
#if PY_VERSION_HEX >= 0x030B0000
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
#else
#define ps_walked_frame _frame
#endif

static inline struct ps_walked_frame *ps_walk_from(PyThreadState *thread)
{
#if PY_VERSION_HEX >= 0x030D0000
    return (struct ps_walked_frame *)thread->current_frame;
#elif PY_VERSION_HEX >= 0x030B0000
    return thread->cframe ? (struct ps_walked_frame *)thread->cframe->current_frame : NULL;
#else
    return thread->frame;
#endif
}

static inline struct ps_walked_frame *ps_walk_on(struct ps_walked_frame *frame)
{
#if PY_VERSION_HEX >= 0x030B0000
    return frame->previous;
#else
    return frame->f_back;
#endif
}

#if PY_VERSION_HEX >= 0x030C0000
/* Its function is one: the lowest bits of a reference are tags from 3.14 on, and where there is none it is NULL or None. */
static inline bool ps_walked_is_called(const struct ps_walked_frame *frame)
{
    PyObject *function = (PyObject *)((uintptr_t)frame->function & ~(uintptr_t)3);
    return function && PyFunction_Check(function);
}
#endif

/*
 * Borrowed. NULL: the interpreter's own. It has frames between a call from C and the function called, and from 3.12 on one below
 * each __init__ that a class is called into: that one has code, and neither a function nor globals.
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
#elif PY_VERSION_HEX >= 0x030B0000
    return (PyCodeObject *)frame->code;
#else
    return frame->f_code;
#endif
}

static inline PyObject *ps_walked_globals(struct ps_walked_frame *frame)
{
#if PY_VERSION_HEX >= 0x030B0000
    return frame->globals;
#else
    return frame->f_globals;
#endif
}

/* Where it is, for PyCode_Addr2Line(). */
static inline int ps_walked_instruction(struct ps_walked_frame *frame)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyUnstable_InterpreterFrame_GetLasti((struct _PyInterpreterFrame *)frame);
#elif PY_VERSION_HEX >= 0x030B0000
    return (int)(frame->instruction - ((PyCodeObject *)frame->code)->co_code_adaptive);
#elif PY_VERSION_HEX >= 0x030A0000
    return frame->f_lasti * (int)sizeof(_Py_CODEUNIT); /* in units from 3.10 on */
#else
    return frame->f_lasti;
#endif
}

/* In ns when the frame's code is short and in us when it is long: line tables are read from their beginning. */
static inline int ps_walked_line(struct ps_walked_frame *frame)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyUnstable_InterpreterFrame_GetLine((struct _PyInterpreterFrame *)frame);
#elif PY_VERSION_HEX >= 0x030B0000
    PyCodeObject *code = (PyCodeObject *)frame->code;
    return PyCode_Addr2Line(code, (int)(frame->instruction - code->co_code_adaptive));
#else
    return PyFrame_GetLineNumber(frame);
#endif
}

#endif

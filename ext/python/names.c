#include "hooks.h"

#include <string.h>

#include "coverage.h"

/* Bytes of a name, with its NUL: longer ones are cut by ps_site_intern anyway. */
enum { NAME_BUFFER = PS_NAME_MAX + 1 };

/* Appends; cut where it does not fit. Returns the new length. */
static size_t append(char *to, size_t size, const char *text, size_t length)
{
    size_t room = NAME_BUFFER - 1 - size;
    if (length > room) length = room;
    memcpy(to + size, text, length);
    to[size + length] = '\0';
    return size + length;
}

/* Appends a str as UTF-8. What cannot be encoded (lone surrogates) becomes "?". */
static size_t append_string(char *to, size_t size, PyObject *string)
{
    if (!string || !PyUnicode_Check(string)) return append(to, size, "?", 1);
    PyObject *bytes = PyUnicode_AsEncodedString(string, "utf-8", "replace");
    if (!bytes) {
        PyErr_Clear();
        return append(to, size, "?", 1);
    }
    size = append(to, size, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    Py_DECREF(bytes);
    return size;
}

/* "package.module." unless it is the program itself. */
static size_t append_module(char *to, size_t size, PyObject *module)
{
    if (!module || !PyUnicode_CheckExact(module)) return size;
    if (PyUnicode_CompareWithASCIIString(module, "__main__") == 0) return size;
    if (PyUnicode_CompareWithASCIIString(module, "builtins") == 0) return size;
    size = append_string(to, size, module);
    return append(to, size, ".", 1);
}

#if PS_HAVE_QUALNAME
static size_t append_qualified(char *to, size_t size, PyCodeObject *code, PyTypeObject *first)
{
    return append_string(to, size, code->co_qualname);
}
#else
/* Does what a class has under a method's name run this code? Looks through what usually wraps a method. */
static bool runs(PyObject *value, PyCodeObject *code)
{
    for (int depth = 0; value && depth < 8; depth++) {
        if (PyFunction_Check(value)) {
            if (PyFunction_GET_CODE(value) == (PyObject *)code) return true;
            /* functools.wraps */
            PyObject *dict = ((PyFunctionObject *)value)->func_dict;
            value = dict ? PyDict_GetItemString(dict, "__wrapped__") : NULL;
        } else if (Py_TYPE(value) == &PyClassMethod_Type || Py_TYPE(value) == &PyStaticMethod_Type ||
                   Py_TYPE(value) == &PyProperty_Type) {
            /* Members of built-in types: no code of the application runs for them. */
            PyObject *inner = PyObject_GetAttrString(value, Py_TYPE(value) == &PyProperty_Type ? "fget" : "__func__");
            Py_XDECREF(inner); /* the wrapper holds it */
            if (!inner) PyErr_Clear();
            value = inner;
        } else {
            return false;
        }
    }
    return false;
}

/* The class in whose body the method was defined: the first in the order of resolution that has this code. Borrowed. */
static PyTypeObject *defining_class(PyTypeObject *type, PyCodeObject *code)
{
    for (Py_ssize_t i = 0; type->tp_mro && i < PyTuple_GET_SIZE(type->tp_mro); i++) {
        PyTypeObject *class = (PyTypeObject *)PyTuple_GET_ITEM(type->tp_mro, i);
        if (!PyType_Check((PyObject *)class) || !class->tp_dict) continue;
        PyObject *value = PyDict_GetItemWithError(class->tp_dict, code->co_name);
        if (!value) PyErr_Clear();
        if (runs(value, code)) return class;
    }
    return NULL;
}

/*
 * Before 3.11 a code object knows its own name and not the class around it. Its frame says more: a method's first argument is of its
 * class. Functions inside functions, static methods and methods called by another name go without.
 */
static size_t append_qualified(char *to, size_t size, PyCodeObject *code, PyTypeObject *first)
{
    PyTypeObject *class = first ? defining_class(first, code) : NULL;
    /* A class method's is the class itself, any other's an instance. */
    if (!class && first) class = defining_class(Py_TYPE(first), code);
    if (class && (class->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
        size = append_string(to, size, ((PyHeapTypeObject *)class)->ht_qualname);
        size = append(to, size, ".", 1);
    }
    return append_string(to, size, code->co_name);
}
#endif

PyTypeObject *ps_first_type(PyFrameObject *frame)
{
#if PS_HAVE_QUALNAME
    return NULL;
#else
    PyObject *first = frame && frame->f_code->co_argcount > 0 ? ps_frame_local(frame, 0) : NULL;
    return !first || PyType_Check(first) ? (PyTypeObject *)first : Py_TYPE(first);
#endif
}

/* Of the innermost frame that runs this code. */
static PyTypeObject *running_first_type(PyCodeObject *code)
{
#if PS_HAVE_QUALNAME
    return NULL;
#else
    PyFrameObject *frame = ps_thread_state()->frame;
    while (frame && frame->f_code != code) frame = frame->f_back;
    return ps_first_type(frame);
#endif
}

static const ps_site *intern(const char *name, size_t size, PyCodeObject *code, int line)
{
    char path[NAME_BUFFER];
    size_t path_size = code ? append_string(path, 0, code->co_filename) : 0;
    return ps_site_intern(name, size, path, path_size, line > 0 ? (uint64_t)line : 0);
}

const ps_site *ps_code_site_of(PyCodeObject *code, PyObject *globals, PyTypeObject *first, int line)
{
    char name[NAME_BUFFER];
    size_t size = 0;
    /* Borrowed, and no error when there is none. Only a plain dict: another's lookup may be the application's code. */
    if (globals && PyDict_CheckExact(globals))
        size = append_module(name, size, PyDict_GetItemString(globals, "__name__"));
    size = append_qualified(name, size, code, first);
    return intern(name, size, code, line);
}

const ps_site *ps_code_site_at(PyCodeObject *code, PyObject *globals, int line)
{
    return ps_code_site_of(code, globals, running_first_type(code), line);
}

const ps_site *ps_code_site(PyCodeObject *code, PyObject *globals)
{
    return ps_code_site_at(code, globals, code->co_firstlineno);
}

const ps_site *ps_type_site(PyTypeObject *type, PyCodeObject *code, int line)
{
    char name[NAME_BUFFER];
    size_t size = 0;
    if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) {
        PyHeapTypeObject *heap = (PyHeapTypeObject *)type;
        /* From the class's own dict, as a plain look-up: a metaclass may have an idea of its own. */
        if (type->tp_dict) size = append_module(name, size, PyDict_GetItemString(type->tp_dict, "__module__"));
        size = append_string(name, size, heap->ht_qualname);
    } else {
        /* A static type's name has its module in it. */
        size = append(name, 0, type->tp_name, strlen(type->tp_name));
    }
    return intern(name, size, code, line);
}

const ps_site *ps_text_site(const char *text, PyCodeObject *code, int line)
{
    return intern(text, strlen(text), code, line);
}

bool ps_code_is_own(PyCodeObject *code)
{
    char path[NAME_BUFFER];
    append_string(path, 0, code->co_filename);
    return ps_coverage_is_own(path);
}

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

static const ps_site *intern(const char *name, size_t size, PyCodeObject *code, int line)
{
    char path[NAME_BUFFER];
    size_t path_size = code ? append_string(path, 0, code->co_filename) : 0;
    return ps_site_intern(name, size, path, path_size, line > 0 ? (uint64_t)line : 0);
}

const ps_site *ps_code_site_at(PyCodeObject *code, PyObject *globals, int line)
{
    char name[NAME_BUFFER];
    size_t size = 0;
    /* Borrowed, and no error when there is none. Only a plain dict: another's lookup may be the application's code. */
    if (globals && PyDict_CheckExact(globals))
        size = append_module(name, size, PyDict_GetItemString(globals, "__name__"));
    size = append_string(name, size, code->co_qualname);
    return intern(name, size, code, line);
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

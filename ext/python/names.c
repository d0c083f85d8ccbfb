#include "hooks.h"

#include <string.h>

#include "base/copy.h"
#include "features/coverage.h"

/*
 * Nothing here makes a Python object or runs bytecode. Hooks make names where neither is allowed:
 * in an allocation, and when an exception dies.
 */

static struct {
    PyObject *name, *module; /* "__name__" and "__module__" */
} keys;

PS_KEPT(PS_HELD(keys.name), PS_HELD(keys.module))

void ps_names_init(void)
{
    PS_KEEP_NEW(keys.name, PyUnicode_InternFromString("__name__"));
    PS_KEEP_NEW(keys.module, PyUnicode_InternFromString("__module__"));
    if (!keys.name || !keys.module) PyErr_Clear();
}

/* Bytes of a name, with its NUL. ps_site_intern() cuts longer names anyway. */
enum { NAME_BUFFER = PS_NAME_MAX + 1 };

/* One character as UTF-8; '?' for a character that has none. Returns the number of bytes. */
static size_t encode(char *to, Py_UCS4 c)
{
    if (c == 0 || (c >= 0xd800 && c <= 0xdfff)) c = '?';
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, c >>= 6) to[i] = (char)(0x80 | (c & 0x3f));
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    to[0] = (char)(first[length] | c);
    return length;
}

size_t ps_copy_string(char *to, size_t capacity, PyObject *string)
{
    size_t size = 0;
    for (Py_ssize_t i = 0; i < PyUnicode_GET_LENGTH(string) && size + 4 < capacity; i++)
        size += encode(to + size, PyUnicode_READ_CHAR(string, i));
    to[size] = '\0';
    return size;
}

/* Appends a str as UTF-8. */
static size_t append_string(char *to, size_t size, PyObject *string)
{
    if (!string || !PyUnicode_Check(string) || !ps_string_is_ready(string))
        return ps_name_append(to, size, "?", 1);
    if (PyUnicode_IS_COMPACT_ASCII(string))
        return ps_name_append(to, size, (const char *)PyUnicode_1BYTE_DATA(string),
                              (size_t)PyUnicode_GET_LENGTH(string));
    return size + ps_copy_string(to + size, NAME_BUFFER - size, string);
}

/*
 * Appends "package.module.", except for the program itself. dict: has the module's name under
 * `key`.
 */
static size_t append_module(char *to, size_t size, PyObject *dict, PyObject *key)
{
    PyObject *module = key ? ps_dict_find(dict, key) : NULL;
    bool named = module && PyUnicode_CheckExact(module) && ps_string_is_ready(module) &&
                 PyUnicode_CompareWithASCIIString(module, "__main__") != 0 &&
                 PyUnicode_CompareWithASCIIString(module, "builtins") != 0;
    if (named) {
        size = append_string(to, size, module);
        size = ps_name_append(to, size, ".", 1);
    }
    Py_XDECREF(module);
    return size;
}

#if PS_HAVE_GIL

/* Appends the str at this address, of which a copy is made first. Nothing if there is no str. */
static size_t append_copied(char *to, size_t size, uintptr_t at)
{
    union {
        PyCompactUnicodeObject string;
        char bytes[sizeof(PyCompactUnicodeObject)];
    } head;
    char text[NAME_BUFFER * sizeof(Py_UCS4)];
    PyObject *string = (PyObject *)&head;
    if (!ps_copy(&head, (void *)at, sizeof(PyASCIIObject)) || Py_TYPE(string) != &PyUnicode_Type) return size;
    if (!PyUnicode_IS_COMPACT(string) || !ps_string_is_ready(string)) return size;
    size_t kind = (size_t)PyUnicode_KIND(string), length = (size_t)PyUnicode_GET_LENGTH(string);
    if (length > NAME_BUFFER - 1) length = NAME_BUFFER - 1;
    size_t data = PyUnicode_IS_ASCII(string) ? sizeof(PyASCIIObject) : sizeof(PyCompactUnicodeObject);
    if (kind > sizeof(Py_UCS4) || !ps_copy(text, (char *)at + data, length * kind)) return size;
    for (size_t i = 0; i < length && size + 4 < NAME_BUFFER; i++)
        size += encode(to + size, PyUnicode_READ(kind, (void *)text, (Py_ssize_t)i));
    to[size] = '\0';
    return size;
}

/*
 * The address of what the dict at this address has for "__name__", or 0. The head of a dict's table
 * of keys is not public, but the same from 3.11 to 3.15, where there is a GIL.
 */
static uintptr_t find_module(uintptr_t globals)
{
    struct {
        Py_ssize_t references;
        uint8_t log2_size, log2_index_bytes, kind;
        uint32_t version;
        Py_ssize_t usable, entries;
    } keys_head;
    enum { UNICODE = 1, ENTRIES = 64 };
    struct {
        uintptr_t key, value;
    } entries[ENTRIES];
    PyDictObject dict;
    if (!ps_copy(&dict, (void *)globals, sizeof(dict)) || dict.ob_base.ob_type != &PyDict_Type) return 0;
    uintptr_t at = (uintptr_t)dict.ma_keys;
    if (!ps_copy(&keys_head, (void *)at, sizeof(keys_head)) || keys_head.kind != UNICODE ||
        keys_head.log2_index_bytes > 40)
        return 0;
    at += sizeof(keys_head) + ((size_t)1 << keys_head.log2_index_bytes);
    for (Py_ssize_t left = keys_head.entries; left > 0; left -= ENTRIES, at += sizeof(entries)) {
        size_t count = left < ENTRIES ? (size_t)left : ENTRIES;
        if (!ps_copy(entries, (void *)at, count * sizeof(entries[0]))) return 0;
        for (size_t i = 0; i < count; i++)
            if (entries[i].key == (uintptr_t)keys.name) return entries[i].value;
    }
    return 0;
}

size_t ps_copied_string(char *to, uintptr_t string)
{
    to[0] = '\0';
    return append_copied(to, 0, string);
}

size_t ps_copied_name(char *to, uintptr_t qualname, uintptr_t globals)
{
    size_t size = ps_copied_string(to, find_module(globals));
    if (strcmp(to, "__main__") == 0 || strcmp(to, "builtins") == 0) size = 0;
    if (size) size = ps_name_append(to, size, ".", 1);
    return append_copied(to, size, qualname);
}

#endif

static const ps_site *intern(const char *name, size_t size, PyCodeObject *code, int line)
{
    char path[NAME_BUFFER];
    size_t path_size = code ? append_string(path, 0, code->co_filename) : 0;
    return ps_site_intern(name, size, path, path_size, line > 0 ? (uint64_t)line : 0);
}

static size_t name_code(char *to, PyCodeObject *code, PyObject *globals)
{
    size_t size = 0;
    /* Only a plain dict: the look-up in any other may be the application's code. */
    if (globals && PyDict_CheckExact(globals)) size = append_module(to, size, globals, keys.name);
    return append_string(to, size, code->co_qualname);
}

const ps_site *ps_code_site_at(PyCodeObject *code, PyObject *globals, int line)
{
    char name[NAME_BUFFER];
    size_t size = name_code(name, code, globals);
    return intern(name, size, code, line);
}

const ps_site *ps_code_site(PyCodeObject *code, PyObject *globals)
{
    return ps_code_site_at(code, globals, code->co_firstlineno);
}

bool ps_code_is_covered(PyCodeObject *code, PyObject *globals, bool everything)
{
    char name[NAME_BUFFER], path[NAME_BUFFER];
    name_code(name, code, globals);
    append_string(path, 0, code->co_filename);
    return ps_coverage_function(path, name, everything);
}

static size_t name_type(char *to, PyTypeObject *type)
{
    /* The name of a static type contains its module. */
    if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE))
        return ps_name_append(to, 0, type->tp_name, strlen(type->tp_name));
    /* From the class's own dict, by a plain look-up: a metaclass may define its own. */
    size_t size = type->tp_dict ? append_module(to, 0, type->tp_dict, keys.module) : 0;
    return append_string(to, size, ((PyHeapTypeObject *)type)->ht_qualname);
}

ps_address ps_type_qualname(const PyTypeObject *type)
{
    if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return PS_NO_ADDRESS;
    return PS_ADDRESS(((const PyHeapTypeObject *)type)->ht_qualname);
}

bool ps_type_is_named(PyTypeObject *type, const char *name)
{
    char own[NAME_BUFFER];
    name_type(own, type);
    return strcmp(own, name) == 0;
}

const ps_site *ps_type_site(PyTypeObject *type, PyCodeObject *code, int line)
{
    char name[NAME_BUFFER];
    size_t size = name_type(name, type);
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

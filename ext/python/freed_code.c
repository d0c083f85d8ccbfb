/*
 * What a hook knows of a code object and a class (table/known.h) is stamped, so that it is not taken
 * for that of a later object at the same address.
 *
 * A code object of which something is known has a mark. When a marked code object is freed, CPython
 * calls note_freed(), which counts that by the hash of the address.
 *
 * CPython reports nothing about classes. A class has a version tag, which no other class ever has.
 * If the class has none at the moment, or another one than it had, its name is compared.
 * `C.__qualname__ = ...` leaves the tag and puts another str into the class, so the address of that
 * str is compared as well.
 */
#include "hooks.h"

uint32_t ps_freed_codes[1 << PS_FREED_BITS];
static Py_ssize_t mark_index = -1;

/* Called by CPython with the mark of a code object that is freed. */
static void note_freed(void *code)
{
    PS_FETCH_ADD(*ps_freed_like(code), 1);
}

void ps_freed_codes_init(void)
{
    mark_index = PyUnstable_Eval_RequestCodeExtraIndex(note_freed);
}

/* The mark is the address. False: there is no room for a mark. */
static bool mark(PyCodeObject *code)
{
    void *marked = NULL;
    if (mark_index < 0 || PyUnstable_Code_GetExtra((PyObject *)code, mark_index, &marked) < 0) return false;
    return marked || PyUnstable_Code_SetExtra((PyObject *)code, mark_index, code) == 0;
}

bool ps_known_is_same(ps_known *known, ps_key key, PyTypeObject *type)
{
    bool is_freed = (uint32_t)known->key.stamp[0] != (uint32_t)key.stamp[0];
    if (is_freed || !ps_type_is_named(type, ((const ps_row *)known->what)->site->name)) return false;
    ps_known_renew(known, key);
    return true;
}

void ps_know(ps_known_table *table, PyTypeObject *type, PyCodeObject *code, uint64_t number, const void *what)
{
    if (!code || mark(code)) ps_known_put(table, ps_key_of(type, code, number), (void *)what);
}

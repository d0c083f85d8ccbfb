#include "string_coverage.h"

#include "features/coverage.h"

/* Raises before anything is copied. */
static void check_strings(VALUE array)
{
    for (long i = 0; i < RARRAY_LEN(array); i++) {
        VALUE string = RARRAY_AREF(array, i);
        StringValueCStr(string);
    }
}

static const char *text_at(const void *array, size_t i)
{
    return RSTRING_PTR(RARRAY_AREF((VALUE)array, (long)i));
}

void ps_cover(VALUE roots, VALUE outside, VALUE ours, VALUE patterns)
{
    VALUE arrays[] = {roots, outside, ours, patterns};
    ps_strings copies[4] = {NULL};
    for (int i = 0; i < 4; i++)
        if (!NIL_P(arrays[i])) check_strings(arrays[i]);
    for (int i = 0; i < 4; i++)
        if (!NIL_P(arrays[i]))
            copies[i] = ps_strings_copy((const void *)arrays[i], (size_t)RARRAY_LEN(arrays[i]), text_at);
    ps_coverage_set(copies[0], copies[1], copies[2], copies[3], ".rb");
}

/* Strings that Ruby makes for paths end with a NUL. */
static const char *path_or_empty(VALUE path)
{
    return RB_TYPE_P(path, T_STRING) ? RSTRING_PTR(path) : "";
}

bool ps_is_own_path(VALUE path)
{
    return ps_coverage_is_own(path_or_empty(path));
}

bool ps_covers_file(VALUE path, bool everything)
{
    return ps_coverage_file(path_or_empty(path), everything);
}

bool ps_covers_function(VALUE path, const char *name, bool everything)
{
    return ps_coverage_function(path_or_empty(path), name, everything);
}

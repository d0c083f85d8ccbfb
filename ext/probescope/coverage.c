#include "coverage.h"

#include <fnmatch.h>
#include <string.h>

static struct {
    VALUE roots, outside, ours;         /* Arrays of Strings */
    VALUE path_patterns, name_patterns; /* Arrays of NUL-terminated Strings, or nil both: the default */
} coverage = {Qnil, Qnil, Qnil, Qnil, Qnil};

void ps_coverage_mark(void)
{
    rb_gc_mark(coverage.roots);
    rb_gc_mark(coverage.outside);
    rb_gc_mark(coverage.ours);
    rb_gc_mark(coverage.path_patterns);
    rb_gc_mark(coverage.name_patterns);
}

/* A pattern that can match a path holds a slash or ends like a Ruby file. */
static bool is_path_pattern(const char *pattern)
{
    const char *dot = strrchr(pattern, '.');
    return strchr(pattern, '/') || (dot && strcmp(dot, ".rb") == 0);
}

void ps_coverage_set(VALUE roots, VALUE outside, VALUE ours, VALUE patterns)
{
    coverage.roots = roots;
    coverage.outside = outside;
    coverage.ours = ours;
    coverage.path_patterns = coverage.name_patterns = Qnil;
    if (NIL_P(patterns)) return;
    VALUE paths = rb_ary_new(), names = rb_ary_new();
    for (long i = 0; i < RARRAY_LEN(patterns); i++) {
        VALUE pattern = RARRAY_AREF(patterns, i);
        rb_ary_push(is_path_pattern(StringValueCStr(pattern)) ? paths : names, pattern);
    }
    coverage.path_patterns = paths;
    coverage.name_patterns = names;
}

static bool starts_with_any(VALUE path, VALUE prefixes)
{
    for (long i = 0; i < RARRAY_LEN(prefixes); i++) {
        VALUE prefix = RARRAY_AREF(prefixes, i);
        if (RSTRING_LEN(prefix) <= RSTRING_LEN(path) &&
            memcmp(RSTRING_PTR(path), RSTRING_PTR(prefix), (size_t)RSTRING_LEN(prefix)) == 0)
            return true;
    }
    return false;
}

static bool is_ours(VALUE path)
{
    return !NIL_P(coverage.ours) && RB_TYPE_P(path, T_STRING) && starts_with_any(path, coverage.ours);
}

static bool contains(VALUE path, const char *part)
{
    return memmem(RSTRING_PTR(path), (size_t)RSTRING_LEN(path), part, strlen(part)) != NULL;
}

bool ps_coverage_is_own(VALUE path)
{
    if (NIL_P(coverage.roots) || !RB_TYPE_P(path, T_STRING) || !RSTRING_LEN(path)) return false;
    if (RSTRING_PTR(path)[0] == '<' || RSTRING_PTR(path)[0] == '(') return false; /* <internal:kernel>, (eval) */
    /* A script started as `ruby app.rb` has a relative path; it is the application itself. */
    if (RSTRING_PTR(path)[0] == '/' && !starts_with_any(path, coverage.roots)) return false;
    return !is_ours(path) && !starts_with_any(path, coverage.outside) && !contains(path, "/vendor/") &&
           !contains(path, "/node_modules/");
}

static bool matches_any(const char *string, VALUE patterns)
{
    for (long i = 0; i < RARRAY_LEN(patterns); i++)
        if (fnmatch(RSTRING_PTR(RARRAY_AREF(patterns, i)), string, 0) == 0) return true;
    return false;
}

static bool path_matches(VALUE path)
{
    char copy[4096];
    if (!RB_TYPE_P(path, T_STRING) || (size_t)RSTRING_LEN(path) >= sizeof(copy)) return false;
    memcpy(copy, RSTRING_PTR(path), (size_t)RSTRING_LEN(path));
    copy[RSTRING_LEN(path)] = '\0';
    return matches_any(copy, coverage.path_patterns);
}

bool ps_coverage_by_name(void)
{
    return !NIL_P(coverage.name_patterns) && RARRAY_LEN(coverage.name_patterns) > 0;
}

bool ps_coverage_file(VALUE path, bool everything)
{
    if (is_ours(path)) return false;
    if (everything || ps_coverage_by_name()) return true;
    return NIL_P(coverage.path_patterns) ? ps_coverage_is_own(path) : path_matches(path);
}

bool ps_coverage_function(VALUE path, const char *name, bool everything)
{
    if (is_ours(path)) return false;
    if (everything) return true;
    if (NIL_P(coverage.path_patterns)) return ps_coverage_is_own(path);
    return path_matches(path) || matches_any(name, coverage.name_patterns);
}

#include "features/coverage.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    ps_strings roots, outside, ours, patterns;
    const char *suffix;
} coverage = {.suffix = ""};

ps_strings ps_strings_copy(const void *list, size_t count, const char *(*text)(const void *, size_t))
{
    ps_strings strings = calloc(count + 1, sizeof(*strings));
    for (size_t i = 0; strings && i < count; i++)
        if (!(strings[i] = strdup(text(list, i)))) break;
    return strings;
}

void ps_strings_free(ps_strings strings)
{
    for (size_t i = 0; strings && strings[i]; i++) free(strings[i]);
    free(strings);
}

void ps_coverage_set(ps_strings roots, ps_strings outside, ps_strings ours, ps_strings patterns,
                     const char *suffix)
{
    ps_strings_free(coverage.roots);
    ps_strings_free(coverage.outside);
    ps_strings_free(coverage.ours);
    ps_strings_free(coverage.patterns);
    coverage.roots = roots;
    coverage.outside = outside;
    coverage.ours = ours;
    coverage.patterns = patterns;
    coverage.suffix = suffix;
}

static bool starts_with_any(const char *path, ps_strings prefixes)
{
    for (size_t i = 0; prefixes && prefixes[i]; i++)
        if (strncmp(path, prefixes[i], strlen(prefixes[i])) == 0) return true;
    return false;
}

/* A pattern matches paths when it has a slash or ends with the suffix of the language's files. */
static bool is_path_pattern(const char *pattern)
{
    const char *dot = strrchr(pattern, '.');
    return strchr(pattern, '/') || (dot && strcmp(dot, coverage.suffix) == 0);
}

/*
 * A script that was started by a relative path has that path as its file name. The file lies below
 * one of the roots.
 */
static bool matches_below_roots(const char *pattern, const char *path)
{
    char whole[4096];
    if (strncmp(path, "./", 2) == 0) path += 2;
    for (size_t i = 0; coverage.roots && coverage.roots[i]; i++) {
        int length = snprintf(whole, sizeof(whole), "%s%s", coverage.roots[i], path);
        if (length < (int)sizeof(whole) && fnmatch(pattern, whole, 0) == 0) return true;
    }
    return false;
}

static bool matches_path(const char *pattern, const char *path)
{
    if (fnmatch(pattern, path, 0) == 0) return true;
    /* Not for <frozen importlib> and (eval). */
    return *path && !strchr("/<(", *path) && matches_below_roots(pattern, path);
}

static bool matches(const char *string, bool is_path)
{
    for (size_t i = 0; coverage.patterns[i]; i++)
        if (is_path_pattern(coverage.patterns[i]) == is_path &&
            (is_path ? matches_path(coverage.patterns[i], string)
                     : fnmatch(coverage.patterns[i], string, 0) == 0))
            return true;
    return false;
}

bool ps_coverage_by_name(void)
{
    for (size_t i = 0; coverage.patterns && coverage.patterns[i]; i++)
        if (!is_path_pattern(coverage.patterns[i])) return true;
    return false;
}

bool ps_coverage_is_ours(const char *path)
{
    return starts_with_any(path, coverage.ours);
}

bool ps_coverage_is_own(const char *path)
{
    /* Not for <frozen importlib> and (eval). */
    if (!coverage.roots || !*path || *path == '<' || *path == '(') return false;
    /* A script that was started by a relative path belongs to the application. */
    if (*path == '/' && !starts_with_any(path, coverage.roots)) return false;
    return !starts_with_any(path, coverage.ours) && !starts_with_any(path, coverage.outside) &&
           !strstr(path, "/vendor/") && !strstr(path, "/node_modules/");
}

bool ps_coverage_file(const char *path, bool everything)
{
    if (starts_with_any(path, coverage.ours)) return false;
    if (everything || ps_coverage_by_name()) return true;
    return coverage.patterns ? matches(path, true) : ps_coverage_is_own(path);
}

bool ps_coverage_function(const char *path, const char *name, bool everything)
{
    if (starts_with_any(path, coverage.ours)) return false;
    if (everything) return true;
    return coverage.patterns ? matches(path, true) || matches(name, false) : ps_coverage_is_own(path);
}

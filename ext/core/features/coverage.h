/*
 * Which functions the probes cover. By default, those of the application's own files. Otherwise
 * those that PROBESCOPE_FUNCTIONS or the API names. While a tracer listens to functions__all, all
 * functions.
 */
#ifndef PS_COVERAGE_H
#define PS_COVERAGE_H

#include <stdbool.h>
#include <stddef.h>

/* An array of strings, each with a NUL. NULL ends the array. */
typedef char **ps_strings;

/*
 * Copies the strings of a VM's list. text: returns one of them, with a NUL, valid until the next
 * call. Without memory returns NULL, or an array that ends early.
 */
ps_strings ps_strings_copy(const void *list, size_t count, const char *(*text)(const void *list, size_t i));
/* NULL is allowed. */
void ps_strings_free(ps_strings strings);

/*
 * Takes over the settings that the package prepared, and frees them at the next call.
 * - roots: directories of the application, each with a slash at its end, and single files
 * - outside: directories of packages and of the runtime, likewise. "/vendor/" and the like match
 *   anywhere.
 * - ours: prefixes of the paths of probescope's own files, which are never covered
 * - patterns: globs. A glob with a slash, or with the suffix of the language's files, matches
 *   paths. Others match function names. NULL: the default.
 * - suffix: for example ".py"
 */
void ps_coverage_set(ps_strings roots, ps_strings outside, ps_strings ours, ps_strings patterns,
                     const char *suffix);

/* True when the file is one of probescope's. */
bool ps_coverage_is_ours(const char *path);
/* True when the file is one of the application's own. */
bool ps_coverage_is_own(const char *path);
/*
 * True when any function of this file may be covered. The name of the function is not known yet:
 * when there are patterns over names, every file may.
 */
bool ps_coverage_file(const char *path, bool everything);
/* True when the function is covered. */
bool ps_coverage_function(const char *path, const char *name, bool everything);

/* True when there are patterns over names. */
bool ps_coverage_by_name(void);

#endif

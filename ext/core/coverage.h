/*
 * Which functions the probes cover: by default the application's own files, else what
 * PROBESCOPE_FUNCTIONS or the API names, and everything while functions__all is listened to.
 */
#ifndef PS_COVERAGE_H
#define PS_COVERAGE_H

#include <stdbool.h>
#include <stddef.h>

/* Strings, each with a NUL, and a NULL at the end. */
typedef char **ps_strings;

/*
 * Takes the settings as the package prepares them, and owns them from now on:
 * roots    directories that hold the application, each with a slash at its end, and single files of
 *          it
 * outside  directories of packages and of the runtime itself, likewise; "/vendor/" and the like
 *          match anywhere
 * ours     start of the paths of probescope's own files, which are never covered
 * patterns globs over paths (with a slash, or that end as the language's files do) and over
 * function names, or NULL: the default
 * suffix   ".py"
 */
void ps_coverage_set(ps_strings roots, ps_strings outside, ps_strings ours, ps_strings patterns,
                     const char *suffix);

/* Is this file one of probescope's? */
bool ps_coverage_is_ours(const char *path);
/* Is this file one of the application's own? */
bool ps_coverage_is_own(const char *path);
/*
 * May any function of this file be covered? Decides without a name; with patterns over names every
 * file may.
 */
bool ps_coverage_file(const char *path, bool everything);
/* Is this function covered? */
bool ps_coverage_function(const char *path, const char *name, bool everything);

/* Do the patterns ask for names at all? */
bool ps_coverage_by_name(void);

#endif

/*
 * Which functions the probes cover: by default the application's own files, else what PROBESCOPE_FUNCTIONS or
 * Probescope.functions= names, and everything while functions__all is listened to.
 */
#ifndef PS_RUBY_COVERAGE_H
#define PS_RUBY_COVERAGE_H

#include <ruby/ruby.h>

#include <stdbool.h>

/*
 * Takes the settings as lib/probescope/coverage.rb prepares them:
 * roots    directories that hold the application, each with a slash at its end
 * outside  directories of gems and of Ruby itself, likewise; "/vendor/" and the like match anywhere
 * ours     start of the paths of probescope's own files, which are never covered
 * patterns globs over paths (with a slash or .rb) and over function names, or nil for the default
 */
void ps_coverage_set(VALUE roots, VALUE outside, VALUE ours, VALUE patterns);
void ps_coverage_mark(void);

/* Is this file one of the application's own? path is a String or nil. */
bool ps_coverage_is_own(VALUE path);
/* May any function of this file be covered? Decides without a name; with patterns over names every file may. */
bool ps_coverage_file(VALUE path, bool everything);
/* Is this function covered? */
bool ps_coverage_function(VALUE path, const char *name, bool everything);
/* Do the patterns ask for names at all? */
bool ps_coverage_by_name(void);

#endif

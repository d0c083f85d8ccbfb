/*
 * core/features/coverage.h for Ruby's Strings: which functions the probes cover. A path is a String
 * or nil.
 */
#ifndef PS_RUBY_STRING_COVERAGE_H
#define PS_RUBY_STRING_COVERAGE_H

#include <ruby/ruby.h>

#include <stdbool.h>

/*
 * Takes the settings as lib/probescope/coverage.rb prepares them: Arrays of Strings. patterns may
 * be nil.
 */
void ps_cover(VALUE roots, VALUE outside, VALUE ours, VALUE patterns);
bool ps_is_own_path(VALUE path);
bool ps_covers_file(VALUE path, bool everything);
bool ps_covers_function(VALUE path, const char *name, bool everything);

#endif

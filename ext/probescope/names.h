/*
 * Names of Ruby's things, found with calls that run no Ruby code: a class may have a `name` of its
 * own, and nothing of the application is ever called. All need the VM lock; none may be called
 * inside a GC hook, and inside an allocation hook only ps_class_name() and ps_ruby_site().
 *
 * One method has one name, whichever probe tells of it, and no name has an address in it: an
 * object's own methods are one row and not one for each object
 * (docs/decisions/165-one-name-for-a-method.md).
 */
#ifndef PS_RUBY_NAMES_H
#define PS_RUBY_NAMES_H

#include <ruby/ruby.h>
#include <ruby/debug.h>

#include "sites.h"

enum { PS_NAME_BUFFER = PS_NAME_MAX + 1 };

/*
 * "Foo::Bar"; "(anonymous Foo)" for a class without a name, by its nearest superclass that has one.
 * Returns the length.
 */
size_t ps_class_name(char *to, VALUE klass);
/*
 * "Foo#bar", "Foo.bar" for a singleton method of a module, "#<Foo>.bar" for one of another object.
 * method_id: a Symbol.
 */
size_t ps_method_name(char *to, VALUE klass, VALUE method_id);
/*
 * The same, also for a block in it; "<main>", "<class:Foo>" and the like outside methods. frame: of
 * rb_profile_frames().
 */
size_t ps_frame_name(char *to, VALUE frame);
/* Of the method that an event is of; outside methods as the frame's name. */
size_t ps_event_name(char *to, rb_trace_arg_t *arg);
/* Is it of a method, or of a block in one? */
bool ps_frame_is_method(VALUE frame);
/* path is a String or nil. */
const ps_site *ps_ruby_site(const char *name, size_t size, VALUE path, long line);
/*
 * Would ps_ruby_site() return this one? It may say no where it would: for names that are cut, or
 * are no UTF-8.
 */
bool ps_ruby_site_is(const ps_site *site, const char *name, size_t size, VALUE path, long line);

/* Called once, while the library is loaded. */
void ps_names_init(void);

#endif

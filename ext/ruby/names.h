/*
 * Names of classes, methods and frames, found with calls that run no Ruby code: a class may define
 * its own `name`, and no method of the application is ever called. All functions need the VM lock.
 * None may be called inside a GC hook. Inside an allocation hook only ps_class_name() and
 * ps_ruby_site() may be called.
 *
 * A method has the same name in all probes. No name contains an address: an object's own methods
 * are one row, and not one row for each object (docs/decisions/165-one-name-for-a-method.md).
 */
#ifndef PS_RUBY_NAMES_H
#define PS_RUBY_NAMES_H

#include <ruby/ruby.h>
#include <ruby/debug.h>

#include "table/interned_strings.h"

enum { PS_NAME_BUFFER = PS_NAME_MAX + 1 };

/*
 * "Foo::Bar". A class without a name is "(anonymous Foo)", after its nearest superclass that has a
 * name. Returns the length.
 */
size_t ps_class_name(char *to, VALUE klass);
/*
 * "Foo#bar"; "Foo.bar" for a singleton method of a module; "#<Foo>.bar" for one of another object.
 * method_id is a Symbol.
 */
size_t ps_method_name(char *to, VALUE klass, VALUE method_id);
/*
 * The same for a frame of rb_profile_frames(). A block has the name of its method. Outside methods
 * the name is "<main>", "<class:Foo>" and the like.
 */
size_t ps_frame_name(char *to, VALUE frame);
/* The name of an event's method; outside methods the name of the frame. */
size_t ps_event_name(char *to, rb_trace_arg_t *arg);
/* Is the frame that of a method, or of a block in one? */
bool ps_frame_is_method(VALUE frame);
/* path is a String or nil. */
const ps_site *ps_ruby_site(const char *name, size_t size, VALUE path, long line);
/*
 * Would ps_ruby_site() return this site? The answer may be a wrong false, for names that are cut or
 * are not UTF-8.
 */
bool ps_ruby_site_is(const ps_site *site, const char *name, size_t size, VALUE path, long line);

/* Called once, while the library is loaded. */
void ps_names_init(void);

#endif

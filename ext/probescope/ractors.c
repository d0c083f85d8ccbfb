/*
 * Ruby before 3.1.4 crashes when a Ractor is created while an allocation hook is in (Bug #18464; with
 * ObjectSpace.trace_object_allocations as well). Ruby 4.0 has one list of these hooks for all Ractors, and takes one out while another
 * Ractor may be at the list (seen on 4.0.5: freed twice). So on those versions Ractor.new first takes ours out, for good: from the
 * first Ractor on, allocations are refused and backtraces are counted without their cost. Debian 12 has such a Ruby.
 *
 * Ractor.new is wrapped by a prepended module, from the start: a call hook on it would leave YJIT of 3.1 slow for good. On
 * other versions nothing of this is there.
 */
#include <ruby/ruby.h>
#include <ruby/version.h>

#include <string.h>

#include "compat.h"
#include "hooks.h"
#include "info.h"

static bool seen; /* a Ractor was created, on a version that minds */

bool ps_newobj_allowed(void)
{
    return !seen;
}

const char *ps_newobj_reason(void)
{
    return "this version of Ruby crashes when allocations are hooked and Ractors exist";
}

static void forbid(void)
{
    seen = true;
    ps_exceptions_forbid_newobj();
    ps_objects_forbid_newobj();
}

/* Called instead of Ractor.new, on any Ractor. */
static VALUE guarded_new(int argc, VALUE *argv, VALUE self)
{
    if (!seen) forbid();
    return rb_call_super_kw(argc, argv, RB_PASS_CALLED_KEYWORDS);
}

void ps_ractors_init(void)
{
    const char *crashing[] = {"3.1.0", "3.1.1", "3.1.2", "3.1.3"};
    bool crashes = ruby_api_version[0] >= 4;
    for (size_t i = 0; i < sizeof(crashing) / sizeof(crashing[0]); i++)
        crashes |= strcmp(ruby_version, crashing[i]) == 0;
    if (!crashes || !rb_const_defined(rb_cObject, rb_intern("Ractor"))) return;
    VALUE ractor = rb_const_get(rb_cObject, rb_intern("Ractor"));
    VALUE guard = rb_define_module_under(rb_path2class("Probescope::Native"), "RactorGuard");
    if (NUM2LONG(rb_funcall(ractor, rb_intern("count"), 0)) > 1) seen = true;
    /* Ractors may create Ractors: what is defined here is safe in them. */
    rb_ext_ractor_safe(true);
    rb_define_method(guard, "new", guarded_new, -1);
    rb_ext_ractor_safe(false);
    rb_prepend_module(rb_singleton_class(ractor), guard);
}

/*
 * For bench/latency.rb: the thinnest wrapper of a method that C allows, in a module that is
 * prepended to its class.
 */
#include <ruby/ruby.h>

static VALUE pass_on(int count, VALUE *given, VALUE self)
{
    return rb_call_super(count, given);
}

void Init_super(void)
{
    rb_define_method(rb_define_module("Wrapper"), "wrapped", pass_on, -1);
}

/*
 * For bench/latency.rb: the smallest possible wrapper of a method in C, in a module that is
 * prepended to the method's class.
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

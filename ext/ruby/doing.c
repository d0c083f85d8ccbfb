#include "doing.h"

struct one {
    ps_doing doing;
    ps_doing **list;
    VALUE (*work)(VALUE);
    VALUE argument;
};

static VALUE begin(VALUE pointer)
{
    const struct one *one = (const struct one *)pointer;
    return one->work(one->argument);
}

static VALUE end(VALUE pointer)
{
    const struct one *one = (const struct one *)pointer;
    ps_doing_end(one->list, &one->doing);
    return Qnil;
}

VALUE ps_doing_while(ps_doing **list, VALUE (*work)(VALUE), VALUE argument)
{
    struct one one = {.list = list, .work = work, .argument = argument};
    ps_doing_begin(list, &one.doing);
    return rb_ensure(begin, (VALUE)&one, end, (VALUE)&one);
}

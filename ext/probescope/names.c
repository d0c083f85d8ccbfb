#include "names.h"

#include <ruby/debug.h>

#include <stdio.h>
#include <string.h>

#include "compat.h"

#define NO_FILE "<cfunc>"

static size_t print(char *to, const char *before, VALUE string, const char *after)
{
    int size = snprintf(to, PS_NAME_BUFFER, "%s%.*s%s", before,
                        (int)(RSTRING_LEN(string) < PS_NAME_MAX ? RSTRING_LEN(string) : PS_NAME_MAX),
                        RSTRING_PTR(string), after);
    return size < PS_NAME_BUFFER ? (size_t)size : PS_NAME_BUFFER - 1;
}

static VALUE own_name(VALUE klass)
{
    VALUE name = RB_TYPE_P(klass, T_CLASS) || RB_TYPE_P(klass, T_MODULE) ? rb_mod_name(klass) : Qnil;
    return RB_TYPE_P(name, T_STRING) ? name : Qnil;
}

size_t ps_class_name(char *to, VALUE klass)
{
    VALUE name = own_name(klass);
    if (!NIL_P(name)) return print(to, "", name, "");
    /* A refinement has the name of what it refines. */
    if (RB_TYPE_P(klass, T_MODULE)) {
        name = own_name(rb_attr_get(klass, rb_intern("__refined_class__")));
        if (!NIL_P(name)) return print(to, "", name, "");
    }
    if (RB_TYPE_P(klass, T_CLASS)) {
        for (VALUE parent = rb_class_superclass(klass); RTEST(parent); parent = rb_class_superclass(parent)) {
            name = own_name(parent);
            if (!NIL_P(name)) return print(to, "(anonymous ", name, ")");
        }
    }
    return (size_t)snprintf(to, PS_NAME_BUFFER, "(anonymous)");
}

static size_t receiver(char *to, VALUE klass)
{
    if (!(RB_TYPE_P(klass, T_CLASS) && RB_FL_TEST(klass, RUBY_FL_SINGLETON))) {
        size_t size = ps_class_name(to, klass);
        if (size + 1 < PS_NAME_BUFFER) to[size++] = '#';
        return size;
    }
    VALUE object = ps_attached_object(klass);
    bool is_module = RB_TYPE_P(object, T_CLASS) || RB_TYPE_P(object, T_MODULE);
    if (is_module) {
        size_t size = ps_class_name(to, object);
        if (size + 1 < PS_NAME_BUFFER) to[size++] = '.';
        return size;
    }
    char name[PS_NAME_BUFFER];
    ps_class_name(name, RB_SPECIAL_CONST_P(object) ? rb_cObject : rb_obj_class(object));
    int size = snprintf(to, PS_NAME_BUFFER, "#<%s>.", name);
    return size < PS_NAME_BUFFER ? (size_t)size : PS_NAME_BUFFER - 1;
}

size_t ps_method_name(char *to, VALUE klass, VALUE method_id)
{
    if (!RB_SYMBOL_P(method_id)) return (size_t)snprintf(to, PS_NAME_BUFFER, "<main>");
    size_t size = RTEST(klass) ? receiver(to, klass) : 0;
    VALUE name = rb_sym2str(method_id);
    size_t room = PS_NAME_BUFFER - size, length = (size_t)RSTRING_LEN(name) < room ? (size_t)RSTRING_LEN(name) : room;
    memcpy(to + size, RSTRING_PTR(name), length);
    return size + length;
}

size_t ps_frame_name(char *to, VALUE frame)
{
    VALUE name = rb_profile_frame_qualified_method_name(frame);
    if (!RB_TYPE_P(name, T_STRING)) name = rb_profile_frame_label(frame);
    if (!RB_TYPE_P(name, T_STRING)) name = rb_profile_frame_full_label(frame);
    if (!RB_TYPE_P(name, T_STRING)) return 0;
    size_t size = (size_t)RSTRING_LEN(name) < PS_NAME_MAX ? (size_t)RSTRING_LEN(name) : PS_NAME_MAX;
    memcpy(to, RSTRING_PTR(name), size);
    return size;
}

const ps_site *ps_ruby_site(const char *name, size_t size, VALUE path, long line)
{
    if (!RB_TYPE_P(path, T_STRING)) return ps_site_intern(name, size, NO_FILE, strlen(NO_FILE), 0);
    return ps_site_intern(name, size, RSTRING_PTR(path), (size_t)RSTRING_LEN(path), line > 0 ? (uint64_t)line : 0);
}

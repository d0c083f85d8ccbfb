#include "names.h"

#include <string.h>

#include "compat.h"

#define NO_FILE "<cfunc>"

#define APPEND(to, size, literal) ps_name_append((to), (size), (literal), sizeof(literal) - 1)

/*
 * Appends one of Ruby's names without the addresses in it: "#<Class:0x00007f01>::Foo" becomes
 * "(anonymous)::Foo".
 */
static size_t append_name(char *to, size_t size, VALUE name)
{
    const char *text = RSTRING_PTR(name), *end = text + RSTRING_LEN(name), *mark;
    while ((mark = memchr(text, '#', (size_t)(end - text))) != NULL) {
        const char *address = mark, *close;
        while (address + 3 < end && memcmp(address, ":0x", 3) != 0) address++;
        close = address + 3 < end ? memchr(address, '>', (size_t)(end - address)) : NULL;
        if (!close) break;
        size = ps_name_append(to, size, text, (size_t)(mark - text));
        size = APPEND(to, size, "(anonymous)");
        text = close + 1;
    }
    return ps_name_append(to, size, text, (size_t)(end - text));
}

static VALUE own_name(VALUE klass)
{
    VALUE name = RB_TYPE_P(klass, T_CLASS) || RB_TYPE_P(klass, T_MODULE) ? rb_mod_name(klass) : Qnil;
    return RB_TYPE_P(name, T_STRING) ? name : Qnil;
}

static size_t append_class(char *to, size_t size, VALUE klass)
{
    VALUE name = own_name(klass);
    if (!NIL_P(name)) return append_name(to, size, name);
    /* A refinement gets the name of the class that it refines. */
    if (RB_TYPE_P(klass, T_MODULE)) {
        name = own_name(rb_attr_get(klass, rb_intern("__refined_class__")));
        if (!NIL_P(name)) return append_name(to, size, name);
    }
    if (RB_TYPE_P(klass, T_CLASS)) {
        for (VALUE parent = rb_class_superclass(klass); RTEST(parent); parent = rb_class_superclass(parent)) {
            name = own_name(parent);
            if (NIL_P(name)) continue;
            size = APPEND(to, size, "(anonymous ");
            size = append_name(to, size, name);
            return APPEND(to, size, ")");
        }
    }
    return APPEND(to, size, "(anonymous)");
}

size_t ps_class_name(char *to, VALUE klass)
{
    return append_class(to, 0, klass);
}

static size_t append_receiver(char *to, size_t size, VALUE klass)
{
    if (!(RB_TYPE_P(klass, T_CLASS) && RB_FL_TEST(klass, RUBY_FL_SINGLETON))) {
        size = append_class(to, size, klass);
        return APPEND(to, size, "#");
    }
    VALUE object = ps_attached_object(klass);
    if (RB_TYPE_P(object, T_CLASS) || RB_TYPE_P(object, T_MODULE)) {
        size = append_class(to, size, object);
        return APPEND(to, size, ".");
    }
    size = APPEND(to, size, "#<");
    size = append_class(to, size, RB_SPECIAL_CONST_P(object) ? rb_cObject : rb_obj_class(object));
    return APPEND(to, size, ">.");
}

/* method: a String. */
static size_t name_of_method(char *to, VALUE klass, VALUE method)
{
    size_t size = RTEST(klass) ? append_receiver(to, 0, klass) : 0;
    return ps_name_append(to, size, RSTRING_PTR(method), (size_t)RSTRING_LEN(method));
}

size_t ps_method_name(char *to, VALUE klass, VALUE method_id)
{
    return name_of_method(to, klass, rb_sym2str(method_id));
}

/* ---- Frames ---- */

/*
 * rb_profile_frames() returns method entries and ISeqs. Of a method's class Ruby returns only the
 * name, which contains an address if the class has no name. The class itself is the second word of
 * a method entry (rb_callable_method_entry_t in Ruby's method.h, the same from 2.3 to 4.0). When
 * the library is loaded, two methods whose classes are known show whether that is so. If not, names
 * are made from Ruby's, and a class without a name is not named after its superclass.
 */
static struct {
    bool tell_classes;
    VALUE mask, entry; /* flags that identify a method entry */
} frames;

static bool is_method_entry(VALUE frame)
{
    return (RBASIC(frame)->flags & frames.mask) == frames.entry;
}

/*
 * The class of a method entry. For a method of an included module the entry has an ICLASS, which
 * stands for the module in a class's ancestors.
 */
static VALUE class_of_entry(VALUE frame)
{
    VALUE klass = ((const VALUE *)frame)[1];
    return RB_TYPE_P(klass, T_ICLASS) ? RBASIC_CLASS(klass) : klass;
}

/* Makes a name from what Ruby returns. */
static size_t name_by_path(char *to, VALUE frame, VALUE method)
{
    VALUE path = rb_profile_frame_classpath(frame);
    size_t size = 0;
    if (RB_TYPE_P(path, T_STRING)) {
        size = append_name(to, 0, path);
        size =
            RTEST(rb_profile_frame_singleton_method_p(frame)) ? APPEND(to, size, ".") : APPEND(to, size, "#");
    }
    return ps_name_append(to, size, RSTRING_PTR(method), (size_t)RSTRING_LEN(method));
}

bool ps_frame_is_method(VALUE frame)
{
    return frames.tell_classes ? is_method_entry(frame) : !NIL_P(rb_profile_frame_method_name(frame));
}

size_t ps_frame_name(char *to, VALUE frame)
{
    VALUE name = rb_profile_frame_method_name(frame);
    if (RB_TYPE_P(name, T_STRING)) {
        if (!frames.tell_classes) return name_by_path(to, frame, name);
        return name_of_method(to, is_method_entry(frame) ? class_of_entry(frame) : Qnil, name);
    }
    name = rb_profile_frame_label(frame);
    if (!RB_TYPE_P(name, T_STRING)) name = rb_profile_frame_full_label(frame);
    if (!RB_TYPE_P(name, T_STRING)) return 0;
    return ps_name_append(to, 0, RSTRING_PTR(name), (size_t)RSTRING_LEN(name));
}

size_t ps_event_name(char *to, rb_trace_arg_t *arg)
{
    enum { LOOK_NEAR = 8 };
    VALUE method_id = rb_tracearg_method_id(arg);
    if (RB_SYMBOL_P(method_id)) return ps_method_name(to, rb_tracearg_defined_class(arg), method_id);
    VALUE found[LOOK_NEAR];
    int lines[LOOK_NEAR], count = rb_profile_frames(0, LOOK_NEAR, found, lines);
    /* A C function that raises has a frame of its own, without a path. */
    for (int i = 0; i < count; i++)
        if (!NIL_P(rb_profile_frame_path(found[i]))) return ps_frame_name(to, found[i]);
    return APPEND(to, 0, "<main>");
}

static VALUE expected_class; /* set only while the library is loaded */

/* Called as a method of expected_class. */
static VALUE look_at_own_frame(VALUE self)
{
    VALUE found[8];
    int lines[8], count = rb_profile_frames(0, 8, found, lines);
    if (count < 2 || NIL_P(rb_profile_frame_method_name(found[0]))) return Qfalse;
    VALUE mask = RUBY_T_MASK | (VALUE)0xf << RUBY_FL_USHIFT, entry = RBASIC(found[0])->flags & mask;
    if ((entry & RUBY_T_MASK) != RUBY_T_IMEMO || ((const VALUE *)found[0])[1] != expected_class)
        return Qfalse;
    for (int i = 1; i < count; i++) {
        /* Every other frame is a method entry if and only if Ruby returns a class path for it. */
        bool is_entry = (RBASIC(found[i])->flags & mask) == entry;
        if (is_entry != RB_TYPE_P(rb_profile_frame_classpath(found[i]), T_STRING)) return Qfalse;
    }
    frames.mask = mask;
    frames.entry = entry;
    return Qtrue;
}

void ps_names_init(void)
{
    static const char name[] = "look_at_own_frame";
    VALUE klass = rb_class_new(rb_cObject), module = rb_module_new();
    rb_define_method(klass, name, look_at_own_frame, 0);
    rb_define_singleton_method(module, name, look_at_own_frame, 0);
    expected_class = klass;
    bool known = RTEST(rb_funcall(rb_class_new_instance(0, NULL, klass), rb_intern(name), 0));
    expected_class = rb_singleton_class(module);
    frames.tell_classes = known && RTEST(rb_funcall(module, rb_intern(name), 0));
    RB_GC_GUARD(klass);
    RB_GC_GUARD(module);
}

/* ---- Sites ---- */

const ps_site *ps_ruby_site(const char *name, size_t size, VALUE path, long line)
{
    if (!RB_TYPE_P(path, T_STRING)) return ps_site_intern(name, size, NO_FILE, strlen(NO_FILE), 0);
    return ps_site_intern(name, size, RSTRING_PTR(path), (size_t)RSTRING_LEN(path),
                          line > 0 ? (uint64_t)line : 0);
}

static bool is_text(const char *text, const char *bytes, size_t size)
{
    return strncmp(text, bytes, size) == 0 && text[size] == '\0';
}

bool ps_ruby_site_is(const ps_site *site, const char *name, size_t size, VALUE path, long line)
{
    if (!is_text(site->name, name, size)) return false;
    if (!RB_TYPE_P(path, T_STRING)) return strcmp(site->path, NO_FILE) == 0;
    return site->line == (line > 0 ? (uint64_t)line : 0) &&
           is_text(site->path, RSTRING_PTR(path), (size_t)RSTRING_LEN(path));
}

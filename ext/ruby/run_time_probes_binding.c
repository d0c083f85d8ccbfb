/*
 * Run-time probes: Probescope::Probe, and Probescope::Native::Provider for
 * lib/probescope/provider.rb.
 *
 * A Probe's methods run on any thread, and in any Ractor once the Probe was made shareable
 * (Ractor.make_shareable). The arguments of #fire are examined without running Ruby code. Its
 * block, which is the application's, runs only while a tracer listens.
 */
#include "features/run_time_probes.h"

#include <ruby/ruby.h>
#include <string.h>

#include "base/atomic.h"
#include "compat.h"
#include "hooks.h"

/* Strings that do not end with a NUL are copied. The copies of one call share this room. */
enum { COPIED = 2048 };

typedef struct {
    ps_run_time_probe base;
    VALUE provider, name;
} Probe;

typedef struct {
    char text[COPIED];
    size_t used;
} Copies;

static void provider_free(void *provider)
{
    ps_run_time_free(provider);
}

static void probe_mark(void *data)
{
    rb_gc_mark(((Probe *)data)->provider);
    rb_gc_mark(((Probe *)data)->name);
}

static const rb_data_type_t provider_type = {"probescope/provider",
                                             {NULL, provider_free, NULL},
                                             0,
                                             0,
                                             RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_FROZEN_SHAREABLE};
static const rb_data_type_t probe_type = {"probescope/probe",
                                          {probe_mark, RUBY_DEFAULT_FREE, NULL},
                                          0,
                                          0,
                                          RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_FROZEN_SHAREABLE};
static VALUE provider_class, probe_class;
PS_KEPT(PS_HELD(provider_class), PS_HELD(probe_class))

static VALUE provider_new(VALUE self, VALUE name)
{
    SDTProvider_t *provider = providerInit(StringValueCStr(name));
    if (!provider) rb_memerror();
    return TypedData_Wrap_Struct(provider_class, &provider_type, provider);
}

static SDTProvider_t *provider_of(VALUE self)
{
    return rb_check_typeddata(self, &provider_type);
}

/* add(name, types): a Probe, or a String that says what is wrong. */
static VALUE provider_add(VALUE self, VALUE name, VALUE types)
{
    SDTProvider_t *provider = provider_of(self);
    Check_Type(name, T_SYMBOL);
    Check_Type(types, T_ARRAY);
    long count = RARRAY_LEN(types);
    if (count > PS_MOST_ARGUMENTS)
        return rb_sprintf("%ld arguments: at most %d are possible", count, PS_MOST_ARGUMENTS);
    Probe *probe;
    VALUE made = TypedData_Make_Struct(probe_class, Probe, &probe_type, probe);
    RB_OBJ_WRITE(made, &probe->name, rb_sym2str(name));
    for (long i = 0; i < count; i++) probe->base.types[i] = (ArgType_t)NUM2INT(RARRAY_AREF(types, i));
    probe->base.count = (int)count;
    RB_OBJ_WRITE(made, &probe->provider, self);
    const char *wrong = ps_run_time_add(&probe->base, provider, StringValueCStr(probe->name));
    return wrong ? rb_utf8_str_new_cstr(wrong) : made;
}

/* load: nil, or a String that says what is wrong. */
static VALUE provider_load(VALUE self)
{
    const char *wrong = ps_run_time_load(provider_of(self));
    return wrong ? rb_utf8_str_new_cstr(wrong) : Qnil;
}

static VALUE provider_unload(VALUE self)
{
    return providerUnload(provider_of(self)) == 0 ? Qtrue : Qfalse;
}

/* The path of a file that tracers can be given, or nil. */
static VALUE provider_path(VALUE self)
{
#ifdef LIBSTAPSDT_PROBESCOPE
    const char *path = providerPath(provider_of(self));
    return path ? rb_str_new_cstr(path) : Qnil;
#else
    return Qnil;
#endif
}

/* A pointer to the text, which ends with a NUL. Valid as long as the string and the copies are. */
static uint64_t text_of(VALUE string, Copies *copies)
{
    const char *text = RSTRING_PTR(string);
    size_t length = (size_t)RSTRING_LEN(string), room = COPIED - copies->used;
    if (length == 0) return (uintptr_t) "";
    /*
     * Nearly all of Ruby's strings end with a NUL. The byte behind the others may be read: it is
     * memory of Ruby's, too.
     */
    if (text[length] == '\0') return (uintptr_t)text;
    if (length >= room) length = room ? room - 1 : 0;
    if (room == 0) return (uintptr_t) "";
    char *copy = memcpy(copies->text + copies->used, text, length);
    copy[length] = '\0';
    copies->used += length + 1;
    return (uintptr_t)copy;
}

static bool integer_of(ArgType_t type, VALUE value, uint64_t *to)
{
    if (FIXNUM_P(value)) {
        *to = (uint64_t)FIX2LONG(value);
        return ps_type_holds(type, *to, FIX2LONG(value) < 0);
    }
    if (!RB_TYPE_P(value, T_BIGNUM)) return false;
    int sign =
        rb_integer_pack(value, to, 1, sizeof(*to), 0,
                        INTEGER_PACK_NATIVE_BYTE_ORDER | INTEGER_PACK_LSWORD_FIRST | INTEGER_PACK_2COMP);
    /* 2 and -2: the value has more than 64 bits. */
    return (sign == 1 || sign == -1) && ps_type_holds(type, *to, sign < 0);
}

static bool convert(ArgType_t type, VALUE value, uint64_t *to, Copies *copies)
{
    if ((int)type == sdtString) {
        if (SYMBOL_P(value)) value = rb_sym2str(value);
        *to = RB_TYPE_P(value, T_STRING) ? text_of(value, copies) : 0;
        return *to || NIL_P(value);
    }
    if ((int)type != sdtDouble) return integer_of(type, value, to);
    double number = RB_FLOAT_TYPE_P(value) ? RFLOAT_VALUE(value)
                    : FIXNUM_P(value)      ? (double)FIX2LONG(value)
                                           : 0;
    memcpy(to, &number, sizeof(number));
    return RB_FLOAT_TYPE_P(value) || FIXNUM_P(value);
}

/* Describes a value without calling a method that its class defines. */
static VALUE described(VALUE value)
{
    if (RB_SPECIAL_CONST_P(value)) return rb_inspect(value);
    if (RB_TYPE_P(value, T_BIGNUM))
        return rb_sprintf("an Integer of %" PRIuSIZE " bits", rb_absint_numwords(value, 1, NULL));
    return rb_sprintf("an instance of %s", rb_obj_classname(value));
}

/* Counts the event as dropped; raises as well while Probes are strict, in development. */
static VALUE refuse(Probe *probe, int count, int wrong, const VALUE *given)
{
    static const ps_type_names names = {"a String, a Symbol or nil", "a Float", "an Integer"};
    char wanted[PS_TYPE_BUFFER];
    if (!ps_run_time_refuse(&probe->base)) return Qfalse;
    if (count != probe->base.count)
        rb_raise(rb_eArgError, "probe %" PRIsVALUE " takes %d arguments, not %d", probe->name,
                 probe->base.count, count);
    ps_run_time_wanted(wanted, probe->base.types[wrong], &names);
    rb_raise(rb_eTypeError, "argument %d of probe %" PRIsVALUE " has to be %s, not %" PRIsVALUE, wrong,
             probe->name, wanted, described(given[wrong]));
}

/* Not inlined, so that the copies are not on the stack while a block runs. */
__attribute__((noinline)) static VALUE fire(Probe *probe, int count, const VALUE *given)
{
    uint64_t values[SDT_MAX_ARGUMENTS] = {0};
    const ArgType_t *types = probe->base.types;
    Copies copies;
    copies.used = 0;
    if (count != probe->base.count) return refuse(probe, count, 0, given);
    for (int i = 0; i < count; i++)
        if (!convert(types[i], given[i], &values[i], &copies)) return refuse(probe, count, i, given);
    return ps_run_time_fire(&probe->base, values) ? Qtrue : Qfalse;
}

static VALUE fire_block(Probe *probe)
{
    VALUE given = rb_yield_values(0), result;
    if (RB_TYPE_P(given, T_ARRAY)) result = fire(probe, (int)RARRAY_LEN(given), RARRAY_CONST_PTR(given));
    else result = fire(probe, 1, &given);
    RB_GC_GUARD(given);
    return result;
}

/* fire(*arguments), fire { arguments }: true when the probe fired. */
static VALUE probe_fire(int count, VALUE *given, VALUE self)
{
    Probe *probe = RTYPEDDATA_DATA(self);
    if (PS_LIKELY(!probeIsEnabled(probe->base.sdt)) && !(PS_READ(ps_run_time_strict) && !rb_block_given_p()))
        return Qfalse;
    return count == 0 && rb_block_given_p() ? fire_block(probe) : fire(probe, count, given);
}

static VALUE probe_enabled(VALUE self)
{
    return probeIsEnabled(((Probe *)RTYPEDDATA_DATA(self))->base.sdt) ? Qtrue : Qfalse;
}

static VALUE probe_dropped(VALUE self)
{
    return ULL2NUM(PS_READ(((Probe *)RTYPEDDATA_DATA(self))->base.dropped));
}

static VALUE probe_name(VALUE self)
{
    return rb_str_intern(((Probe *)RTYPEDDATA_DATA(self))->name);
}

static VALUE set_strict(VALUE self, VALUE value)
{
    PS_WRITE(ps_run_time_strict, RTEST(value));
    return value;
}

/* For bench/fire_block.rb: the least that a call of a C function with a block costs. */
static VALUE do_nothing(int count, VALUE *given, VALUE self)
{
    return Qfalse;
}

void ps_run_time_probes_init(VALUE probescope, VALUE native)
{
    PS_KEEP(provider_class, rb_define_class_under(native, "Provider", rb_cObject));
    rb_undef_alloc_func(provider_class);
    rb_define_singleton_method(provider_class, "new", provider_new, 1);
    rb_define_method(provider_class, "add", provider_add, 2);
    rb_define_method(provider_class, "load", provider_load, 0);
    rb_define_method(provider_class, "unload", provider_unload, 0);
    rb_define_method(provider_class, "path", provider_path, 0);
    PS_KEEP(probe_class, rb_define_class_under(probescope, "Probe", rb_cObject));
    rb_undef_alloc_func(probe_class);
    rb_undef_method(CLASS_OF(probe_class), "new");
    rb_ext_ractor_safe(true);
    rb_define_method(probe_class, "fire", probe_fire, -1);
    rb_define_method(probe_class, "enabled?", probe_enabled, 0);
    rb_define_method(probe_class, "dropped", probe_dropped, 0);
    rb_define_method(probe_class, "name", probe_name, 0);
    rb_ext_ractor_safe(false);
    rb_define_singleton_method(native, "strict=", set_strict, 1);
    rb_define_singleton_method(native, "nothing", do_nothing, -1);
    rb_define_const(native, "PROVIDERS", rb_str_freeze(rb_str_new_cstr(ps_provider_library())));
    rb_define_const(native, "MOST_ARGUMENTS", INT2FIX(PS_MOST_ARGUMENTS));
}

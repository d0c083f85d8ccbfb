/*
 * Backtraces that become strings: which code asks for them, and how long it takes. At 100 frames it
 * takes 25 us, five times what the capture cost. Raising the same exception again asks for them
 * too, before anybody reads a line.
 *
 * Ruby has no event for it that leaves YJIT's code whole. So at the first listen modules are
 * prepended: to Exception for `backtrace` and `full_message`, to Kernel for `caller` and
 * `caller_locations`. While somebody listens, they hold methods that call super and read the
 * clocks; otherwise they are empty. A method that was removed leaves nothing behind. A method that
 * was replaced and put back would be called at each raise for ever.
 *
 * An exception that passes through is not changed. No state outlives a call, so there is nothing to
 * undo.
 */
#include <ruby/ruby.h>
#include <ruby/debug.h>

#include <string.h>

#include "base/address.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/stopwatch.h"
#include "features/backtraces.h"
#include "features/exceptions.h"
#include "usdt/info.h"
#include "usdt/looking.h"
#include "usdt/probe.h"
#include "hooks.h"
#include "names.h"
#include "string_coverage.h"

enum { KNOWN_FRAMES = 256 };

static struct {
    /*
     * The modules; nil before the first listen. The one of Kernel's singleton class is for
     * `Kernel.caller`.
     */
    VALUE of_exceptions, of_kernel, of_singleton;
    bool exceptions_wanted, kernel_wanted;
    bool exceptions_on, kernel_on;
    const char *exceptions_reason, *kernel_reason; /* why they are wanted and not on */
    /*
     * Frames between the probe and the asking code. Known until the next collection: then an
     * address may belong to another frame.
     */
    struct {
        ps_address frame;
        const ps_site *site; /* of `line`, or NULL */
        int line;
        bool builtin, own;
    } known[KNOWN_FRAMES];
    /* The exception that last answered `backtrace`. A collection empties this as well. */
    ps_address exception;
} backtraces = {.of_exceptions = Qnil, .of_kernel = Qnil, .of_singleton = Qnil};

static ID id_bind_call, id_bt, id_backtrace, id_full_message, id_caller, id_caller_locations;
static VALUE allocated_objects;
/* The originals, as UnboundMethods. */
static VALUE own_backtrace, own_full_message, own_caller, own_caller_locations;

void ps_backtraces_forget(void)
{
    memset(backtraces.known, 0, sizeof(backtraces.known));
    backtraces.exception = PS_NO_ADDRESS;
}

PS_KEPT(PS_HELD(backtraces.of_exceptions), PS_HELD(backtraces.of_kernel), PS_HELD(backtraces.of_singleton),
        PS_HELD(own_backtrace), PS_HELD(own_full_message), PS_HELD(own_caller), PS_HELD(own_caller_locations),
        PS_COMPARED(backtraces.known), PS_COMPARED(backtraces.exception))

/*
 * While somebody listens, an application may give one of these methods an alias, to redefine the
 * method and call the old one. The alias is then our method, whose super is the redefined one: an
 * endless recursion, also after the detach. So a call by another name calls the original, with one
 * frame more in between.
 */
static bool is_aliased(void)
{
    return rb_frame_callee() != rb_frame_this_func();
}

static VALUE call_original(VALUE method, VALUE self, int argc, const VALUE *argv)
{
    VALUE all[3] = {self, argc > 0 ? argv[0] : Qnil, argc > 1 ? argv[1] : Qnil};
    return rb_funcallv_kw(method, id_bind_call, argc + 1, all,
                          rb_keyword_given_p() ? RB_PASS_KEYWORDS : RB_NO_KEYWORDS);
}

/* ---- Who asked ---- */

static int know(VALUE frame)
{
    int i = (int)(((uintptr_t)frame >> 3 ^ (uintptr_t)frame >> 11) % KNOWN_FRAMES);
    if (ps_address_equal(backtraces.known[i].frame, PS_ADDRESS(frame))) return i;
    VALUE path = rb_profile_frame_path(frame);
    backtraces.known[i].frame = PS_ADDRESS(frame);
    backtraces.known[i].site = NULL;
    backtraces.known[i].own = ps_is_own_path(path);
    backtraces.known[i].builtin =
        !RB_TYPE_P(path, T_STRING) || !RSTRING_LEN(path) || RSTRING_PTR(path)[0] == '<';
    return i;
}

static const ps_site *site_of(VALUE frame, int line)
{
    int i = know(frame);
    if (!backtraces.known[i].site || backtraces.known[i].line != line) {
        char name[PS_NAME_BUFFER];
        size_t size = ps_frame_name(name, frame);
        backtraces.known[i].site = ps_ruby_site(name, size, rb_profile_frame_path(frame), line);
        backtraces.known[i].line = line;
    }
    return backtraces.known[i].site;
}

/* A function in C has no path. */
static bool is_full_message(VALUE frame)
{
    static const char expected[] = "full_message";
    VALUE name = NIL_P(rb_profile_frame_path(frame)) ? rb_profile_frame_method_name(frame) : Qnil;
    return RB_TYPE_P(name, T_STRING) && RSTRING_LEN(name) == sizeof(expected) - 1 &&
           memcmp(RSTRING_PTR(name), expected, sizeof(expected) - 1) == 0;
}

struct stack {
    VALUE frames[PS_LINES_LOOKED_AT];
    int lines[PS_LINES_LOOKED_AT], count;
};
enum { OURS = 1 }; /* frame 0 is ours */

static ps_line_kind kind_of_line(void *of, int number)
{
    const struct stack *stack = of;
    if (number + OURS >= stack->count) return PS_NO_LINE;
    int known = know(stack->frames[number + OURS]);
    if (backtraces.known[known].own) return PS_OWN_LINE;
    return backtraces.known[known].builtin ? PS_BUILTIN_LINE : PS_OTHER_LINE;
}

/*
 * The nearest line of the application's own code; else the nearest line of Ruby code. Sets
 * *in_full_message when full_message called us.
 */
static const ps_site *find_asker(bool *in_full_message)
{
    struct stack stack;
    stack.count = rb_profile_frames(0, PS_LINES_LOOKED_AT, stack.frames, stack.lines);
    *in_full_message = stack.count > OURS && is_full_message(stack.frames[OURS]);
    int other, own = ps_nearest_own_line(kind_of_line, &stack, &other), nearest = own < 0 ? other : own;
    return nearest < 0 ? &ps_site_none : site_of(stack.frames[nearest + OURS], stack.lines[nearest + OURS]);
}

/* ---- Exceptions ---- */

/*
 * "app.rb:12:in `name'" -> its place, under the name of the exception's class. Text in another form
 * gives no place.
 */
static const ps_site *place_of(VALUE exception, VALUE first)
{
    char name[PS_NAME_BUFFER];
    size_t size = ps_class_name(name, rb_obj_class(exception));
    if (!RB_TYPE_P(first, T_STRING)) return ps_site_intern(name, size, "", 0, 0);
    const char *text = RSTRING_PTR(first), *end = text + RSTRING_LEN(first);
    for (const char *colon = text; (colon = memchr(colon, ':', (size_t)(end - colon))) != NULL; colon++) {
        const char *at = colon + 1;
        uint64_t line = 0;
        while (at < end && *at >= '0' && *at <= '9' && line < UINT32_MAX)
            line = line * 10 + (uint64_t)(*at++ - '0');
        bool ends = at == end || (end - at > 3 && memcmp(at, ":in", 3) == 0);
        if (at > colon + 1 && ends) return ps_site_intern(name, size, text, (size_t)(colon - text), line);
    }
    return ps_site_intern(name, size, "", 0, 0);
}

/* The first line that is not inside of Ruby itself: Integer() and others are written in Ruby. */
static VALUE first_line(VALUE strings)
{
    static const char internal[] = "<internal:";
    for (long i = 0; i < RARRAY_LEN(strings); i++) {
        VALUE line = RARRAY_AREF(strings, i);
        bool inside = RB_TYPE_P(line, T_STRING) && RSTRING_LEN(line) >= (long)sizeof(internal) - 1 &&
                      memcmp(RSTRING_PTR(line), internal, sizeof(internal) - 1) == 0;
        if (!inside) return line;
    }
    return RARRAY_AREF(strings, 0);
}

/* strings: the exception's backtrace, an Array. held: the exception's "bt". */
static void record(const char *kind, const ps_site *asked, VALUE exception, VALUE held, VALUE strings,
                   uint64_t ticks)
{
    bool any = RB_TYPE_P(strings, T_ARRAY) && RARRAY_LEN(strings) > 0;
    /*
     * The exception was raised before the attach, or is not among the last raises any more: then its
     * place gives the row.
     */
    ps_row *row = ps_exceptions_origin(exception, held);
    const ps_site *raised = row ? row->site : place_of(exception, any ? first_line(strings) : Qnil);
    if (!row) row = ps_exceptions_unseen(raised);
    ps_backtrace backtrace = {kind, asked, raised, any ? (uint64_t)RARRAY_LEN(strings) : 0, ticks};
    ps_backtraces_done(&backtrace, row, ps_requests_counted());
}

/*
 * Called instead of Exception#backtrace, on any thread and in any Ractor: by the application, by C
 * functions that show exceptions, and by Ruby at each raise, to see whether there is a backtrace
 * already. Only the first call after a capture makes strings. The count of allocations shows which
 * call that is.
 */
static VALUE backtrace(VALUE self)
{
    if (PS_UNLIKELY(is_aliased())) return call_original(own_backtrace, self, 0, NULL);
    VALUE held = rb_attr_get(self, id_bt);
    if (NIL_P(held) || !backtraces.exceptions_on || !ps_is_main_ractor()) return rb_call_super(0, NULL);
    /*
     * The strings exist already, as at `raise E, "message", []` and when an exception is raised
     * again and again. No clock is read.
     */
    if (!RB_TYPE_P(held, T_DATA) || ps_address_equal(backtraces.exception, PS_ADDRESS(self)))
        return rb_call_super(0, NULL);
    size_t allocated = rb_gc_stat(allocated_objects);
    ps_stopwatch start = ps_stopwatch_start();
    VALUE strings = rb_call_super(0, NULL);
    uint64_t ticks = ps_stopwatch_stop(start);
    allocated = rb_gc_stat(allocated_objects) - allocated;
    /* Were the methods taken out meanwhile? A redefined method may have run for long. */
    if (!backtraces.exceptions_on || !RB_TYPE_P(strings, T_ARRAY)) return strings;
    backtraces.exception = PS_ADDRESS(self);
    if (allocated <= (size_t)RARRAY_LEN(strings)) return strings;
    ps_look look = ps_look_begin_rare(PS_LOOK_BACKTRACE);
    bool in_full_message;
    const ps_site *asked = find_asker(&in_full_message);
    /* full_message() records it itself. */
    if (!in_full_message) record("backtrace", asked, self, held, strings, ticks);
    ps_look_end(look);
    return strings;
}

/*
 * Called instead of Exception#full_message, which makes its text anew each time, also that of the
 * message.
 */
static VALUE full_message(int argc, VALUE *argv, VALUE self)
{
    VALUE options;
    /*
     * Bad options are refused here, so that the error's backtrace has no frame more than without
     * us.
     */
    rb_scan_args(argc, argv, "0:", &options);
    if (PS_UNLIKELY(is_aliased())) return call_original(own_full_message, self, argc, argv);
    if (!backtraces.exceptions_on || !ps_is_main_ractor())
        return rb_call_super_kw(argc, argv, RB_PASS_CALLED_KEYWORDS);
    ps_stopwatch start = ps_stopwatch_start();
    VALUE text = rb_call_super_kw(argc, argv, RB_PASS_CALLED_KEYWORDS);
    uint64_t ticks = ps_stopwatch_stop(start);
    VALUE held = rb_attr_get(self, id_bt);
    if (!backtraces.exceptions_on || NIL_P(held)) return text;
    /* full_message has made the strings, so this makes none. */
    VALUE strings = RB_TYPE_P(held, T_DATA) ? rb_funcall(own_backtrace, id_bind_call, 1, self) : held;
    ps_look look = ps_look_begin_rare(PS_LOOK_BACKTRACE);
    bool nested;
    record("full_message", find_asker(&nested), self, held, strings, ticks);
    ps_look_end(look);
    return text;
}

/* ---- Callers ---- */

static VALUE one_more(VALUE level)
{
    long number = NUM2LONG(level);
    return LONG2NUM(number >= 0 && number < LONG_MAX ? number + 1 : number);
}

/*
 * The arguments of `caller`, one frame further, because ours is between. Bad ones are refused here,
 * in Ruby's words: the error's backtrace then has one frame of a C function, as it would have
 * without us. Returns how many arguments there are.
 */
static int shift(int argc, const VALUE *argv, VALUE *to)
{
    VALUE first, last;
    int exclusive;
    rb_check_arity(argc, 0, 2);
    if (argc == 2 && NIL_P(argv[1])) argc = 1;
    if (argc == 0) {
        to[0] = INT2FIX(2);
        return 1;
    }
    if (argc == 1 && rb_range_values(argv[0], &first, &last, &exclusive)) {
        to[0] = rb_range_new(NIL_P(first) ? INT2FIX(1) : one_more(first), NIL_P(last) ? last : one_more(last),
                             exclusive);
        return 1;
    }
    long level = NUM2LONG(argv[0]), size = argc == 2 ? NUM2LONG(argv[1]) : 0;
    if (level < 0) rb_raise(rb_eArgError, "negative level (%ld)", level);
    if (size < 0) rb_raise(rb_eArgError, "negative size (%ld)", size);
    to[0] = one_more(LONG2NUM(level));
    to[1] = LONG2NUM(size);
    return argc;
}

/*
 * Does a Range that counts from the end begin with the innermost frame, which is ours? It does if a
 * Range that begins one frame further is out of range.
 */
static bool begins_with_ours(VALUE level)
{
    VALUE first, last;
    int exclusive;
    if (!rb_range_values(level, &first, &last, &exclusive) || NUM2LONG(first) >= 0) return false;
    VALUE further = rb_range_new(LONG2NUM(NUM2LONG(first) - 1), INT2FIX(-1), 0);
    return NIL_P(rb_call_super(1, &further));
}

static VALUE ask(const char *kind, VALUE original, VALUE self, int argc, const VALUE *argv)
{
    VALUE shifted[2];
    argc = shift(argc, argv, shifted);
    if (PS_UNLIKELY(is_aliased())) {
        argc = shift(argc, (VALUE[2]){shifted[0], shifted[1]}, shifted);
        return call_original(original, self, argc, shifted);
    }
    ps_stopwatch start = ps_stopwatch_start();
    VALUE frames = rb_call_super(argc, shifted);
    uint64_t ticks = ps_stopwatch_stop(start);
    if (argc == 1 && RB_TYPE_P(frames, T_ARRAY) && !FIXNUM_P(shifted[0]) && begins_with_ours(shifted[0]))
        frames = Qnil;
    if (!backtraces.kernel_on || !ps_is_main_ractor()) return frames;
    ps_look look = ps_look_begin_rare(PS_LOOK_BACKTRACE);
    bool nested;
    uint64_t depth = RB_TYPE_P(frames, T_ARRAY) ? (uint64_t)RARRAY_LEN(frames) : 0;
    ps_backtraces_fire(&(ps_backtrace){kind, find_asker(&nested), &ps_site_none, depth, ticks});
    ps_look_end(look);
    return frames;
}

/* Called instead of Kernel#caller and Kernel#caller_locations. */
static VALUE caller(int argc, VALUE *argv, VALUE self)
{
    return ask("caller", own_caller, self, argc, argv);
}

static VALUE caller_locations(int argc, VALUE *argv, VALUE self)
{
    return ask("caller_locations", own_caller_locations, self, argc, argv);
}

/* ---- On and off ---- */

/*
 * `ancestors` shows the module. From Ruby 3.4 on backtraces name a method's module, if the module
 * has a permanent name. So the name is temporary where Ruby has temporary names (from 3.3 on).
 */
static VALUE new_module(const char *constant, const char *temporary)
{
    ID set_temporary_name = rb_intern("set_temporary_name");
    if (!rb_method_boundp(rb_cModule, set_temporary_name, 0))
        return rb_define_module_under(rb_path2class("Probescope::Native"), constant);
    VALUE module = rb_module_new();
    rb_funcall(module, set_temporary_name, 1, rb_str_new_cstr(temporary));
    return module;
}

static void original(VALUE *place, VALUE klass, ID name)
{
    PS_KEEP(*place, rb_funcall(klass, rb_intern("instance_method"), 1, rb_id2sym(name)));
}

void ps_backtraces_init(void)
{
    id_bind_call = rb_intern("bind_call");
    id_bt = rb_intern("bt");
    id_backtrace = rb_intern("backtrace");
    id_full_message = rb_intern("full_message");
    id_caller = rb_intern("caller");
    id_caller_locations = rb_intern("caller_locations");
    allocated_objects = rb_id2sym(rb_intern("total_allocated_objects"));
    original(&own_backtrace, rb_eException, id_backtrace);
    original(&own_full_message, rb_eException, id_full_message);
    original(&own_caller, rb_mKernel, id_caller);
    original(&own_caller_locations, rb_mKernel, id_caller_locations);
}

/*
 * Why methods of this class may not be overridden; NULL when they may. To prepend and to define
 * must run no code of the application and must not raise.
 */
static const char *objection(VALUE klass, VALUE module, ID first, ID second)
{
    if (!rb_method_basic_definition_p(klass, first) || !rb_method_basic_definition_p(klass, second))
        return "the application defines methods of its own for backtraces as strings";
    if (!rb_method_basic_definition_p(rb_cModule, rb_intern("method_added")) ||
        !rb_method_basic_definition_p(rb_cModule, rb_intern("method_removed")))
        return "the application defines method_added or method_removed of its own";
    if (RB_OBJ_FROZEN(klass) || (!NIL_P(module) && RB_OBJ_FROZEN(module)))
        return "the application has frozen Exception or Kernel";
    return NULL;
}

static void begin_exceptions(void)
{
    backtraces.exceptions_reason =
        objection(rb_eException, backtraces.of_exceptions, id_backtrace, id_full_message);
    if (backtraces.exceptions_reason) return;
    if (NIL_P(backtraces.of_exceptions)) {
        PS_KEEP(backtraces.of_exceptions, new_module("Backtraces", "probescope's backtraces"));
        rb_prepend_module(rb_eException, backtraces.of_exceptions);
    }
    /* Callable in any Ractor. */
    rb_ext_ractor_safe(true);
    rb_define_method(backtraces.of_exceptions, "backtrace", backtrace, 0);
    rb_define_method(backtraces.of_exceptions, "full_message", full_message, -1);
    rb_ext_ractor_safe(false);
    backtraces.exceptions_on = true;
}

static void begin_kernel(void)
{
    VALUE singleton = rb_singleton_class(rb_mKernel);
    const char *reason = objection(rb_cObject, backtraces.of_kernel, id_caller, id_caller_locations);
    if (!reason) reason = objection(singleton, backtraces.of_singleton, id_caller, id_caller_locations);
    backtraces.kernel_reason = reason;
    if (reason) return;
    if (NIL_P(backtraces.of_kernel)) {
        PS_KEEP(backtraces.of_kernel, new_module("Callers", "probescope's callers"));
        PS_KEEP(backtraces.of_singleton, new_module("KernelCallers", "probescope's callers of Kernel"));
        rb_prepend_module(rb_mKernel, backtraces.of_kernel);
        rb_prepend_module(singleton, backtraces.of_singleton);
    }
    rb_ext_ractor_safe(true);
    rb_define_private_method(backtraces.of_kernel, "caller", caller, -1);
    rb_define_private_method(backtraces.of_kernel, "caller_locations", caller_locations, -1);
    rb_define_method(backtraces.of_singleton, "caller", caller, -1);
    rb_define_method(backtraces.of_singleton, "caller_locations", caller_locations, -1);
    rb_ext_ractor_safe(false);
    backtraces.kernel_on = true;
}

struct removal {
    VALUE module;
    ID name;
};

static VALUE remove_protected(VALUE pointer)
{
    const struct removal *removal = (const struct removal *)pointer;
    rb_remove_method_id(removal->module, removal->name);
    return Qnil;
}

/*
 * NameError: the method is gone already, and the name finds another module's method. The
 * application must not see that error.
 */
static void remove_method(VALUE module, ID name)
{
    if (!rb_method_boundp(module, name, 0)) return;
    int state = 0;
    struct removal removal = {module, name};
    rb_protect(remove_protected, (VALUE)&removal, &state);
    if (!state) return;
    if (rb_obj_class(rb_errinfo()) != rb_eNameError) rb_jump_tag(state);
    rb_set_errinfo(Qnil);
}

/*
 * The methods stay if the application has frozen the module, or would be told of their removal.
 * Then they are frames that only call super.
 */
static void take_out(VALUE module, ID first, ID second)
{
    if (RB_OBJ_FROZEN(module) || !rb_method_basic_definition_p(rb_cModule, rb_intern("method_removed")))
        return;
    remove_method(module, first);
    remove_method(module, second);
}

static void end_exceptions(void)
{
    if (backtraces.exceptions_on) take_out(backtraces.of_exceptions, id_backtrace, id_full_message);
    backtraces.exceptions_on = false;
    backtraces.exceptions_reason = NULL;
}

static void end_kernel(void)
{
    if (backtraces.kernel_on) {
        take_out(backtraces.of_kernel, id_caller, id_caller_locations);
        take_out(backtraces.of_singleton, id_caller, id_caller_locations);
    }
    backtraces.kernel_on = false;
    backtraces.kernel_reason = NULL;
}

static bool hook(ps_probe_set wanted)
{
    bool exceptions = (wanted & ps_backtraces_feature.probes) != 0;
    bool kernel = (wanted & PS_BIT(BACKTRACE__DONE)) != 0;
    if (exceptions != backtraces.exceptions_wanted) {
        if (exceptions) begin_exceptions();
        else end_exceptions();
        backtraces.exceptions_wanted = exceptions;
    }
    if (kernel != backtraces.kernel_wanted) {
        if (kernel) begin_kernel();
        else end_kernel();
        backtraces.kernel_wanted = kernel;
    }
    /*
     * Tracers raise one semaphore after the other, so the reason may be known before the probe is
     * wanted.
     */
    if (backtraces.exceptions_reason)
        ps_info_degrade(wanted & ps_backtraces_feature.probes, backtraces.exceptions_reason);
    if (backtraces.kernel_reason) ps_info_degrade(wanted & PS_BIT(BACKTRACE__DONE), backtraces.kernel_reason);
    if (!exceptions) ps_backtraces_forget();
    return true;
}

const ps_hooks ps_backtraces_hooks = {
    .feature = &ps_backtraces_feature,
    .hook = hook,
};

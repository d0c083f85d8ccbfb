/*
 * Latency probes: a TracePoint on each method that the application named, in place only while
 * somebody listens to its probe. The TracePoint is targeted at the method's body, so visibility,
 * arguments and blocks do not matter.
 *
 * The method that a class has under the name is looked up when a tracer comes and each second from
 * then on. From such a look on, a method that was defined anew is reported, and a removed one no
 * longer.
 */
#include "features/latency.h"

#include <ruby/ruby.h>
#include <ruby/debug.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "usdt/looking.h"
#include "compat.h"
#include "hooks.h"
#include "methods.h"
#include "names.h"

#define SLICE_NS      2000000u
#define LOOK_AGAIN_NS 1000000000u

/* One method of a probe. */
struct method {
    struct method *next;
    ps_latency *latency;
    VALUE module, name;             /* the name is a Symbol */
    VALUE original_name;            /* the name in events: `name` may be an alias */
    VALUE tracepoint, iseq, target; /* nil while it is not hooked */
    VALUE retired;                  /* the last one that was disabled: functions_hooks.c, disable_target() */
    uint64_t key;                   /* of its open calls: a new one each time that it is hooked */
    struct ps_contents contents;
    bool gone; /* no longer traced */
};

static struct method *methods;
static VALUE raise_hook = Qnil;
static ID id_original_name, id_owner;
static uint64_t looked_ns;

void ps_latency_init(void)
{
    id_original_name = rb_intern("original_name");
    id_owner = rb_intern("owner");
}

static void each_method(void (*visit)(void *place))
{
    for (struct method *method = methods; method; method = method->next) {
        visit(&method->module);
        visit(&method->name);
        visit(&method->original_name);
        visit(&method->tracepoint);
        visit(&method->retired);
        visit(&method->iseq);
        visit(&method->target);
    }
}

PS_KEPT(PS_HELD(raise_hook), PS_HELD_EACH(each_method))

/* ---- Calls ---- */

/* The open calls of the current fiber; NULL where it cannot be traced. */
static ps_open_calls *open_calls(void)
{
    ps_stack *stack = ps_current_stack();
    if (PS_UNLIKELY(!stack)) return NULL;
    if (PS_UNLIKELY(!stack->open)) stack->open = ps_open_calls_new();
    return stack->open;
}

/*
 * Called by Ruby on the raising or rescuing thread, with the VM lock (in another Ractor, with that
 * Ractor's lock).
 */
static void on_raise_or_rescue(VALUE tracepoint, void *unused)
{
    const ps_stack *stack = ps_current_stack();
    if (!stack || !stack->open) return;
    stack->open->unwinding =
        rb_tracearg_event_flag(rb_tracearg_from_tracepoint(tracepoint)) == RUBY_EVENT_RAISE;
    if (stack->open->unwinding) stack->open->raises++;
}

/* See is_retry() in functions_hooks.c. */
static bool is_retry(const ps_open_calls *calls, const struct method *method)
{
    const ps_open_call *top = calls->depth ? &calls->list[calls->depth - 1] : NULL;
    if (PS_LIKELY(!top || top->key != method->key)) return false;
    if (!method->contents.rescues || top->raises == calls->raises) return false;
    uint32_t open = 0;
    for (uint32_t i = 0; i < calls->depth; i++) open += calls->list[i].key == method->key;
    return ps_count_frames() <= open;
}

static void leave(const struct method *method, ps_open_calls *calls, rb_trace_arg_t *arg, uint64_t now)
{
    ps_open_call call;
    if (!ps_open_calls_leave(calls, method->key, ps_real_depth, &call)) return;
    int outcome = PS_OUTCOME_RETURNED;
    if (PS_UNLIKELY(calls->unwinding) && ps_leaves_raising(&method->contents, arg))
        outcome = PS_OUTCOME_RAISED;
    calls->unwinding = outcome == PS_OUTCOME_RAISED || call.unwinding;
    ps_latency_fire(method->latency, now - call.start_ns, outcome);
}

static void time_call(VALUE tracepoint, void *data)
{
    const struct method *method = data;
    rb_trace_arg_t *arg = rb_tracearg_from_tracepoint(tracepoint);
    bool is_call = rb_tracearg_event_flag(arg) == RUBY_EVENT_CALL;
    uint64_t now = is_call ? 0 : ps_monotonic_ns();
    ps_open_calls *calls = open_calls();
    if (PS_UNLIKELY(!calls)) return;
    /* The target also covers methods that are defined in it. */
    if (method->contents.methods && rb_tracearg_method_id(arg) != method->original_name) return;
    if (!is_call) {
        leave(method, calls, arg, now);
    } else if (PS_LIKELY(!is_retry(calls, method))) {
        ps_open_call *call = ps_open_calls_enter(calls, method->key);
        if (PS_LIKELY(call)) call->start_ns = ps_monotonic_ns();
    }
}

/*
 * Called by Ruby at each :call and :return, on any of its threads, with the VM lock (in another
 * Ractor, with that Ractor's lock).
 */
static void on_event(VALUE tracepoint, void *data)
{
    ps_look look = ps_look_begin(PS_LOOK_LATENCY);
    time_call(tracepoint, data);
    ps_look_end(look);
}

/* ---- On and off ---- */

static void unhook(struct method *method)
{
    VALUE tracepoint = method->tracepoint, place = method->target;
    method->tracepoint = method->iseq = method->target = Qnil;
    if (NIL_P(tracepoint)) return;
    PS_KEEP(method->retired, tracepoint);
    ps_disable_on(tracepoint, place);
}

/*
 * The method that the module itself has under the name now. nil: there is none, or no TracePoint
 * can be put on it.
 */
static VALUE current_method(const struct method *method)
{
    if (!rb_method_boundp(method->module, rb_sym2id(method->name), 0)) return Qnil;
    VALUE found = ps_find_method(method->module, method->name);
    if (rb_funcall(found, id_owner, 0) != method->module || NIL_P(ps_iseq_of(found))) return Qnil;
    return found;
}

/*
 * Is the current method hooked already? One block can be the body of several define_method methods,
 * also of successive ones under one name.
 */
static bool is_hooked(const struct method *method, VALUE found, VALUE iseq)
{
    return iseq == method->iseq &&
           (NIL_P(iseq) || !ps_is_block(iseq) || RTEST(rb_equal(found, method->target)));
}

static VALUE hook_protected(VALUE pointer)
{
    static uint64_t last_key;
    struct method *method = (struct method *)pointer;
    VALUE found = current_method(method), iseq = NIL_P(found) ? Qnil : ps_iseq_of(found);
    if (NIL_P(iseq)) method->latency->reason = "there is no such method now, or it is written in C";
    if (is_hooked(method, found, iseq)) return Qnil;
    unhook(method);
    if (NIL_P(iseq)) return Qnil;
    PS_KEEP(method->original_name, rb_funcall(found, id_original_name, 0));
    method->contents = ps_contents_of(iseq);
    method->key = ++last_key;
    PS_KEEP(method->iseq, iseq);
    /* A define_method body has no :call event of its own; its method has. */
    PS_KEEP(method->target, ps_is_block(iseq) ? found : iseq);
    PS_KEEP(method->tracepoint, rb_tracepoint_new(0, RUBY_EVENT_CALL | RUBY_EVENT_RETURN, on_event, method));
    if (!ps_enable_on(method->tracepoint, method->target, false)) {
        unhook(method);
        method->latency->reason = "Ruby cannot put a TracePoint on it";
    }
    return Qnil;
}

/* Hooks the method that the module has under the name now. */
static void hook(struct method *method)
{
    int failed = 0;
    rb_protect(hook_protected, (VALUE)method, &failed);
    if (!failed) return;
    /* NameError: another thread has undefined the method meanwhile. The next look finds none. */
    if (!RTEST(rb_obj_is_kind_of(rb_errinfo(), rb_eNameError)))
        method->latency->reason = "an error ended the look at the method";
    rb_set_errinfo(Qnil);
}

static void switch_probe(ps_latency *latency, bool on)
{
    const char *refused = on ? ps_jit_refuses_calls() : NULL;
    latency->reason = refused;
    for (struct method *method = methods; method; method = method->next) {
        if (method->latency != latency) continue;
        if (on && !refused && !method->gone) hook(method);
        else unhook(method);
    }
    ps_latency_hooked(latency, on);
}

static void switch_raise_hook(void)
{
    bool on = ps_latency_any_hooked();
    if (on && NIL_P(raise_hook)) {
        PS_KEEP(raise_hook, rb_tracepoint_new(0, PS_RAISE_EVENTS, on_raise_or_rescue, NULL));
        rb_tracepoint_enable(raise_hook);
    } else if (!on && !NIL_P(raise_hook)) {
        rb_tracepoint_disable(raise_hook);
        raise_hook = Qnil;
        if (ps_jit_is_on()) ps_kick_jit();
    }
}

static VALUE switch_slice(VALUE unused)
{
    uint64_t end = ps_monotonic_ns() + SLICE_NS;
    bool done = true;
    for (ps_latency *latency = ps_latency_first(); latency && done; latency = latency->next) {
        bool on = ps_features_installed() && ps_latency_listened(latency);
        if (on == latency->hooked) continue;
        switch_probe(latency, on);
        done = ps_monotonic_ns() < end;
    }
    switch_raise_hook();
    return done ? Qtrue : Qfalse;
}

static bool hook_listened(ps_probe_set wanted)
{
    if (ps_latency_is_switched(ps_features_installed())) return true;
    PS_WRITE(looked_ns, ps_monotonic_ns());
    return RTEST(ps_hold_vm_lock(switch_slice, Qnil));
}

/* Is it time to see whether traced methods were redefined? */
static bool needs_look(void)
{
    return ps_latency_any_hooked() && ps_monotonic_ns() - PS_READ(looked_ns) > LOOK_AGAIN_NS;
}

static VALUE look_at_methods(VALUE unused)
{
    if (ps_jit_refuses_calls()) return Qnil;
    /* Several methods may have one probe. A method that is hooked keeps the reason of another one. */
    for (ps_latency *latency = ps_latency_first(); latency; latency = latency->next)
        if (latency->hooked) latency->reason = NULL;
    for (struct method *method = methods; method; method = method->next)
        if (method->latency->hooked && !method->gone) hook(method);
    return Qnil;
}

static void look_again(void)
{
    if (!needs_look()) return;
    PS_WRITE(looked_ns, ps_monotonic_ns());
    ps_hold_vm_lock(look_at_methods, Qnil);
}

/* ---- What lib/probescope/latency.rb asks for ---- */

/*
 * The probe's entry for this method: an entry of the same module, one that is no longer traced, or
 * one of an earlier class of the same name.
 */
static struct method *find(const ps_latency *latency, VALUE module, VALUE name)
{
    VALUE class_name = rb_mod_name(module);
    for (struct method *method = methods; method; method = method->next) {
        if (method->latency != latency || method->name != name) continue;
        if (method->module == module || method->gone) return method;
        if (!NIL_P(class_name) && RTEST(rb_equal(class_name, rb_mod_name(method->module)))) return method;
    }
    return NULL;
}

static VALUE trace_now(VALUE arguments)
{
    VALUE module = RARRAY_AREF(arguments, 0), name = RARRAY_AREF(arguments, 1),
          probe = RARRAY_AREF(arguments, 2);
    const char *error;
    ps_latency *latency = ps_latency_define(StringValueCStr(probe), &error);
    if (!latency) return rb_utf8_str_new_cstr(error);
    struct method *method = find(latency, module, name);
    if (!method) {
        method = ZALLOC(struct method);
        *method = (struct method){.next = methods,
                                  .latency = latency,
                                  .tracepoint = Qnil,
                                  .iseq = Qnil,
                                  .target = Qnil,
                                  .retired = Qnil};
        methods = method;
        PS_KEEP(method->original_name, name);
        PS_KEEP(method->name, name);
        PS_KEEP(method->module, module);
    }
    if (method->module != module) unhook(method);
    PS_KEEP(method->module, module);
    method->gone = false;
    ps_latency_hooked(latency, false); /* if somebody listens already, the watcher has it hooked */
    return Qnil;
}

/*
 * trace_latency(module, name, probe): nil, or a String that says what is wrong with the probe's
 * name.
 */
static VALUE trace_latency(VALUE self, VALUE module, VALUE name, VALUE probe)
{
    StringValueCStr(probe);
    return ps_while_nobody_switches(trace_now, rb_ary_new_from_args(3, module, name, probe));
}

static VALUE untrace_now(VALUE arguments)
{
    VALUE module = RARRAY_AREF(arguments, 0), name = RARRAY_AREF(arguments, 1), names = rb_ary_new();
    for (struct method *method = methods; method; method = method->next) {
        if (method->gone || method->module != module || method->name != name) continue;
        method->gone = true;
        method->module = Qnil;
        unhook(method);
        rb_ary_push(names, rb_utf8_str_new_cstr(method->latency->name));
        bool left = false;
        for (const struct method *other = methods; other; other = other->next)
            left |= other->latency == method->latency && !other->gone;
        if (!left) ps_latency_close(method->latency);
    }
    return names;
}

/*
 * untrace_latency(module, name): the names of the probes that the method had. A probe that has no
 * other method is closed.
 */
static VALUE untrace_latency(VALUE self, VALUE module, VALUE name)
{
    return ps_while_nobody_switches(untrace_now, rb_assoc_new(module, name));
}

static VALUE text_or_nil(const char *text)
{
    return text ? rb_utf8_str_new_cstr(text) : Qnil;
}

/* [[name, path or nil, listened, the reason why it is not hooked or nil], ...] */
static VALUE latency_probes(VALUE self)
{
    VALUE probes = rb_ary_new();
    const ps_latency *latency = NULL;
    while ((latency = ps_latency_next_shown(latency)) != NULL) {
        VALUE listened = latency->hooked ? Qtrue : Qfalse;
        rb_ary_push(probes,
                    rb_ary_new_from_args(4, text_or_nil(latency->name), text_or_nil(ps_latency_path(latency)),
                                         listened, text_or_nil(latency->reason)));
    }
    return probes;
}

/* method_name(module, name): "Shop#checkout", "Shop.checkout", "#<Shop>.checkout" and the like. */
static VALUE method_name(VALUE self, VALUE module, VALUE name)
{
    char text[PS_NAME_BUFFER];
    size_t size = ps_method_name(text, module, name);
    return rb_utf8_str_new(text, (long)size);
}

void ps_latency_define_methods(VALUE native)
{
    rb_define_singleton_method(native, "trace_latency", trace_latency, 3);
    rb_define_singleton_method(native, "untrace_latency", untrace_latency, 2);
    rb_define_singleton_method(native, "latency_probes", latency_probes, 0);
    rb_define_singleton_method(native, "method_name", method_name, 2);
}

const ps_hooks ps_latency_hooks = {
    .hook = hook_listened,
    .needs_upkeep = needs_look,
    .upkeep = look_again,
};

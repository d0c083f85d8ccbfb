#include "methods.h"

#include <ruby/version.h>

#include <string.h>

#include "base/clock.h"
#include "compat.h"

static VALUE iseq_class, instance_method;
/* UnboundMethods: a subclass may define a `priority` of its own */
static VALUE thread_priority, thread_set_priority;
static VALUE nobodys_method; /* an ISeq without callers, to kick the JIT with */
static ID id_of, id_label, id_bind_call, id_enable, id_target, id_each_child, id_owner, id_super_method,
    id_trace_points, id_disasm, id_is_match, id_first_lineno, id_each_object;
static VALUE event_call, event_return, event_b_return; /* Symbols */
/* Regexp: a `return` in a clause, as ISeq#disasm prints it */
static VALUE throw_return;

PS_KEPT(PS_HELD(iseq_class), PS_HELD(instance_method), PS_HELD(thread_priority), PS_HELD(thread_set_priority),
        PS_HELD(nobodys_method), PS_HELD(throw_return))

void ps_methods_init(void)
{
    id_of = rb_intern("of");
    id_label = rb_intern("label");
    id_bind_call = rb_intern("bind_call");
    id_enable = rb_intern("enable");
    id_target = rb_intern("target");
    id_each_child = rb_intern("each_child");
    id_owner = rb_intern("owner");
    id_super_method = rb_intern("super_method");
    id_trace_points = rb_intern("trace_points");
    id_disasm = rb_intern("disasm");
    id_is_match = rb_intern("match?");
    id_first_lineno = rb_intern("first_lineno");
    id_each_object = rb_intern("each_object");
    PS_KEEP(throw_return, rb_reg_new_str(rb_str_new_cstr("^(\\| )*\\d+ throw +1\\b"), 0));
    event_call = rb_id2sym(rb_intern("call"));
    event_return = rb_id2sym(rb_intern("return"));
    event_b_return = rb_id2sym(rb_intern("b_return"));
    PS_KEEP(iseq_class, rb_path2class("RubyVM::InstructionSequence"));
    ID find = rb_intern("instance_method");
    PS_KEEP(instance_method, rb_funcall(rb_cModule, find, 1, rb_id2sym(find)));
    PS_KEEP(thread_priority, rb_funcall(rb_cThread, find, 1, rb_id2sym(rb_intern("priority"))));
    PS_KEEP(thread_set_priority, rb_funcall(rb_cThread, find, 1, rb_id2sym(rb_intern("priority="))));
    PS_KEEP(nobodys_method,
            rb_funcall(iseq_class, rb_intern("compile"), 1, rb_str_new_cstr("def probescope_nobody; end")));
}

/*
 * TracePoint#enable(target:) and a few more have no C function. They are Ruby methods around a C
 * function, and when a Ruby method returns, the VM checks for interrupts. In a postponed job, or
 * under rb_protect, an exception that arrives at such a check is lost.
 *
 * In a job, interrupts that came before are already taken and are delivered after the job, and
 * signals are masked. So only another thread could send an exception, and that thread needs the VM
 * lock. This thread would release the lock only when its time slice ends. A higher priority makes
 * the slice up to eight times as long, and the work takes 2 ms, so no other thread runs in between.
 * A hook may raise, so there every error that is not ours goes on to the application.
 */
struct slice {
    VALUE (*work)(VALUE);
    VALUE argument, thread, priority;
};

static VALUE begin_slice(VALUE pointer)
{
    struct slice *slice = (struct slice *)pointer;
    rb_funcall(thread_set_priority, id_bind_call, 2, slice->thread, INT2FIX(3)); /* the highest */
    return slice->work(slice->argument);
}

static VALUE end_slice(VALUE pointer)
{
    struct slice *slice = (struct slice *)pointer;
    return rb_funcall(thread_set_priority, id_bind_call, 2, slice->thread, slice->priority);
}

/*
 * rb_ensure, so that the priority comes back also after a SystemStackError: a job can run on top of
 * a deep recursion.
 */
VALUE ps_hold_vm_lock(VALUE (*work)(VALUE), VALUE argument)
{
    VALUE thread = rb_thread_current();
    struct slice slice = {work, argument, thread, rb_funcall(thread_priority, id_bind_call, 1, thread)};
    return rb_ensure(begin_slice, (VALUE)&slice, end_slice, (VALUE)&slice);
}

/* Exported, but in no public header. */
#ifdef HAVE_RB_OBJSPACE_REACHABLE_OBJECTS_FROM
extern void rb_objspace_reachable_objects_from(VALUE object, void (*tell)(VALUE, void *), void *argument);

static void find_entry(VALUE object, void *entry)
{
    if (RB_BUILTIN_TYPE(object) == RUBY_T_IMEMO) *(VALUE *)entry = object;
}
#endif

void ps_write_barrier(VALUE tracepoint, VALUE method)
{
#ifdef HAVE_RB_OBJSPACE_REACHABLE_OBJECTS_FROM
    VALUE entry = 0;
    rb_objspace_reachable_objects_from(method, find_entry, &entry);
    if (entry) RB_OBJ_WRITTEN(entry, Qundef, tracepoint);
#endif
}

struct enabling {
    VALUE tracepoint, place;
};

static VALUE enable_protected(VALUE pointer)
{
    const struct enabling *enabling = (const struct enabling *)pointer;
    VALUE options = rb_hash_new();
    rb_hash_aset(options, rb_id2sym(id_target), enabling->place);
    return rb_funcallv_kw(enabling->tracepoint, id_enable, 1, &options, RB_PASS_KEYWORDS);
}

bool ps_enable_on(VALUE tracepoint, VALUE iseq_or_method, bool may_raise)
{
    int state = 0;
    struct enabling enabling = {tracepoint, iseq_or_method};
    rb_protect(enable_protected, (VALUE)&enabling, &state);
    if (!state) {
        if (RTEST(rb_obj_is_method(iseq_or_method))) ps_write_barrier(tracepoint, iseq_or_method);
        return true;
    }
    /* ArgumentError: there is nothing to hook. */
    if (may_raise && rb_obj_class(rb_errinfo()) != rb_eArgError) rb_jump_tag(state);
    rb_set_errinfo(Qnil);
    return false;
}

static void nothing(VALUE tracepoint, void *unused) {}

/*
 * When the last hook of a define_method body goes, Ruby up to 3.2 takes it for the last hook of the
 * whole VM. From then on the TracePoints of everybody, the application's too, miss calls,
 * collections and allocations. When a hook of the whole VM comes in, Ruby adds up again which hooks
 * there are. The event of the hook below must not be a heap event: see ractors.c.
 * (docs/decisions/205-hooks-of-a-body-are-not-the-vms.md)
 */
void ps_add_up_hooks(void)
{
#if RUBY_API_VERSION_CODE < 30300
    VALUE tracepoint = rb_tracepoint_new(0, RUBY_INTERNAL_EVENT_SWITCH, nothing, NULL);
    rb_tracepoint_enable(tracepoint);
    rb_tracepoint_disable(tracepoint);
#endif
}

void ps_disable_on(VALUE tracepoint, VALUE iseq_or_method)
{
    rb_tracepoint_disable(tracepoint);
    if (RTEST(rb_obj_is_method(iseq_or_method))) ps_add_up_hooks();
}

VALUE ps_hidden(VALUE object)
{
    rb_obj_hide(object);
    return object;
}

static VALUE collect_module(RB_BLOCK_CALL_FUNC_ARGLIST(module, list))
{
    rb_ary_push(list, module);
    return Qnil;
}

void ps_walk_begin(ps_walk *walk)
{
    VALUE kind = rb_cModule;
    PS_KEEP(walk->modules, ps_hidden(rb_ary_new()));
    walk->names = Qnil;
    walk->next_module = 0;
    rb_block_call(rb_const_get(rb_cObject, rb_intern("ObjectSpace")), id_each_object, 1, &kind,
                  collect_module, walk->modules);
}

/* Lists the methods of the current module. */
static void list_names(ps_walk *walk)
{
    VALUE own = Qfalse, module = RARRAY_AREF(walk->modules, walk->next_module);
    PS_KEEP(walk->names, ps_hidden(rb_class_instance_methods(1, &own, module)));
    rb_ary_concat(walk->names, ps_hidden(rb_class_private_instance_methods(1, &own, module)));
    walk->next_name = 0;
}

bool ps_walk_modules(ps_walk *walk, void (*look)(VALUE module, VALUE name), uint64_t end)
{
    while (!ps_walk_is_over(walk)) {
        if (NIL_P(walk->names)) list_names(walk);
        while (walk->next_name < RARRAY_LEN(walk->names)) {
            VALUE name = RARRAY_AREF(walk->names, walk->next_name++);
            look(RARRAY_AREF(walk->modules, walk->next_module), name);
            if (ps_monotonic_ns() > end) return false;
        }
        walk->names = Qnil;
        walk->next_module++;
        if (ps_monotonic_ns() > end) return false;
    }
    return true;
}

void ps_walk_end(ps_walk *walk)
{
    walk->modules = walk->names = Qnil;
}

VALUE ps_find_method(VALUE module, VALUE name)
{
    VALUE outermost = rb_funcall(instance_method, id_bind_call, 2, module, name);
    for (VALUE method = outermost; !NIL_P(method); method = rb_funcall(method, id_super_method, 0))
        if (rb_funcall(method, id_owner, 0) == module) return method;
    return outermost;
}

VALUE ps_iseq_of(VALUE method)
{
    return rb_funcall(iseq_class, id_of, 1, method);
}

static bool label_starts_with(VALUE iseq, const char *start)
{
    VALUE label = rb_funcall(iseq, id_label, 0);
    size_t size = strlen(start);
    return (size_t)RSTRING_LEN(label) >= size && memcmp(RSTRING_PTR(label), start, size) == 0;
}

bool ps_is_block(VALUE iseq)
{
    return label_starts_with(iseq, "block ");
}

bool ps_has_calls(VALUE iseq)
{
    VALUE points = rb_funcall(iseq, id_trace_points, 0);
    for (long i = 0; i < RARRAY_LEN(points); i++)
        if (RARRAY_AREF(RARRAY_AREF(points, i), 1) == event_call) return true;
    return false;
}

/* Is there a `return` in this rescue or ensure clause? In a clause it is a throw with tag 1. */
static bool returns_from_clause(VALUE iseq)
{
    return RTEST(rb_funcall(throw_return, id_is_match, 1, rb_funcall(iseq, id_disasm, 0)));
}

/* trace_points: [[line, event], ...] of the ISeq's instructions, without those of its children. */
void ps_find_end(VALUE iseq, struct ps_contents *contents)
{
    VALUE points = rb_funcall(iseq, id_trace_points, 0);
    int first = 0, last = 0;
    for (long i = 0; i < RARRAY_LEN(points); i++) {
        VALUE point = RARRAY_AREF(points, i), event = RARRAY_AREF(point, 1);
        if (event != event_return && event != event_b_return) continue;
        int line = NUM2INT(RARRAY_AREF(point, 0));
        if (!first || line < first) first = line;
        if (line > last) last = line;
    }
    contents->line = NUM2INT(rb_funcall(iseq, id_first_lineno, 0));
    contents->returns_early = first != last;
    contents->last_line = contents->end_line = last;
    for (long i = 0; i < RARRAY_LEN(points); i++) {
        VALUE point = RARRAY_AREF(points, i), event = RARRAY_AREF(point, 1);
        if (event != event_return && event != event_b_return && NUM2INT(RARRAY_AREF(point, 0)) == last)
            contents->end_line = 0;
    }
}

bool ps_contents_include(struct ps_contents *sum, VALUE child, const struct ps_contents *inside)
{
    bool is_rescue = label_starts_with(child, "rescue "), is_ensure = label_starts_with(child, "ensure ");
    bool is_block = ps_is_block(child);
    sum->blocks |= is_block || inside->blocks;
    if (!is_block && !is_rescue && !is_ensure) {
        sum->methods = true;
        return true;
    }
    sum->methods |= inside->methods;
    sum->rescues |= inside->rescues || is_rescue;
    sum->swallows |= inside->swallows;
    if (is_ensure || (is_rescue && !PS_HAVE_RESCUE_EVENT)) sum->swallows |= returns_from_clause(child);
    return false;
}

static VALUE include_child(RB_BLOCK_CALL_FUNC_ARGLIST(child, contents));

static struct ps_contents contents_of_children(VALUE iseq)
{
    struct ps_contents contents = {0};
    rb_block_call(iseq, id_each_child, 0, NULL, include_child, (VALUE)&contents);
    return contents;
}

static VALUE include_child(RB_BLOCK_CALL_FUNC_ARGLIST(child, contents))
{
    struct ps_contents inside = contents_of_children(child);
    ps_contents_include((struct ps_contents *)contents, child, &inside);
    return Qnil;
}

struct ps_contents ps_contents_of(VALUE iseq)
{
    struct ps_contents contents = contents_of_children(iseq);
    ps_find_end(iseq, &contents);
    return contents;
}

/*
 * Ruby's :return event hides the error, so the answer is inferred. An exception was raised on this
 * stack and, from 3.3 on, has not been rescued since. An unwound frame returns nil. A method that
 * came to its end is on the line of its `end`, and an unwound one is not. Before 3.3 a method with
 * a rescue clause is taken to have rescued, if its last line has code of its own or it returns
 * early.
 */
bool ps_leaves_raising(const struct ps_contents *contents, rb_trace_arg_t *arg)
{
    if (contents->swallows || !NIL_P(rb_tracearg_return_value(arg))) return false;
    if (contents->end_line && NUM2INT(rb_tracearg_lineno(arg)) == contents->end_line) return false;
    if (PS_HAVE_RESCUE_EVENT || !contents->rescues) return true;
    return contents->end_line && !contents->returns_early;
}

/*
 * Up to Ruby 3.1 the :return event of a define_method body comes after its frame has gone. Then the
 * innermost frame is the caller's.
 */
bool ps_runs_method_in(const struct ps_contents *block, ID name)
{
    VALUE frame;
    int unused;
    if (rb_profile_frames(0, 1, &frame, &unused) != 1) return false;
    VALUE line = rb_profile_frame_first_lineno(frame);
    if (!FIXNUM_P(line) || FIX2INT(line) < block->line) return false;
    if (block->last_line && FIX2INT(line) > block->last_line) return false;
    /* A block's label is not that of the method that contains it. */
    VALUE label = rb_profile_frame_label(frame), text = rb_id2str(name);
    return RB_TYPE_P(label, T_STRING) && RSTRING_LEN(label) == RSTRING_LEN(text) &&
           memcmp(RSTRING_PTR(label), RSTRING_PTR(text), (size_t)RSTRING_LEN(text)) == 0;
}

/* Are both frames of one definition? Several objects may each have a method entry for it. */
static bool is_same_definition(VALUE frame, VALUE other)
{
    return frame == other || (rb_profile_frame_path(frame) == rb_profile_frame_path(other) &&
                              rb_profile_frame_first_lineno(frame) == rb_profile_frame_first_lineno(other) &&
                              rb_profile_frame_base_label(frame) == rb_profile_frame_base_label(other));
}

uint32_t ps_count_frames(void)
{
    enum { LOOK_AT = 1024 };
    VALUE frames[LOOK_AT];
    int lines[LOOK_AT], count = rb_profile_frames(0, LOOK_AT, frames, lines);
    uint32_t same = 0;
    for (int i = 0; i < count; i++) same += is_same_definition(frames[i], frames[0]);
    return same;
}

uint32_t ps_real_depth(void)
{
    enum { ENOUGH = 1 << 14 };
    static VALUE frames[ENOUGH];
    static int lines[ENOUGH];
    int count = rb_profile_frames(0, ENOUGH, frames, lines);
    return count < ENOUGH ? (uint32_t)count : UINT32_MAX;
}

/*
 * Puts a targeted TracePoint in and out of a method that nobody calls. Under YJIT that discards the
 * code that was compiled with our hooks in it. Otherwise every call stays about 25 ns slower for
 * good.
 */
void ps_kick_jit(void)
{
    VALUE tracepoint = rb_tracepoint_new(0, RUBY_EVENT_LINE, nothing, NULL);
    if (ps_enable_on(tracepoint, nobodys_method, false)) rb_tracepoint_disable(tracepoint);
}

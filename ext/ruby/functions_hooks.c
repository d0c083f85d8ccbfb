/*
 * Functions and lines: targeted TracePoints, one for each loaded method, and one for each file that
 * is loaded while somebody listens. Each has the events of all the probes that are listened to:
 * several on one method would cost more.
 *
 * They are targeted, because a global :call, :return or :line hook leaves YJIT slower for the rest
 * of the process's life. Switching on:
 *   1. All modules are listed, once.
 *   2. Their methods are looked at, in slices of 2 ms so that no request waits long. A covered
 *      method gets a TracePoint on its ISeq. A define_method body has no :call of its own, so there
 *      the target is the method. Such methods come last: the lines of a body's block belong to the
 *      method around the block, where that has a TracePoint.
 *   3. :script_compiled reports each file that is loaded from now on. A TracePoint on the file's
 *      top-level ISeq covers all that the file defines.
 *   4. When loading pauses, steps 1 and 2 are repeated for the define_method bodies of those files.
 * When other probes are listened to, each TracePoint is replaced by one with other events, in
 * slices. Switching off disables them, in slices too. While nobody listens, the library holds no
 * ISeq, except those of files under YJIT.
 *
 * A TracePoint of one method carries its row, so the hook looks nothing up. A TracePoint of several
 * methods finds the row by method id and class. No class is kept alive for that: a singleton class
 * keeps the application's object.
 */
#include <ruby/ruby.h>
#include <ruby/debug.h>

#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/thread_record.h"
#include "features/coverage.h"
#include "features/functions.h"
#include "features/lines.h"
#include "features/slow_calls.h"
#include "table/flush.h"
#include "table/table.h"
#include "usdt/info.h"
#include "usdt/looking.h"
#include "usdt/probe.h"
#include "compat.h"
#include "doing.h"
#include "hooks.h"
#include "job.h"
#include "methods.h"
#include "names.h"
#include "string_coverage.h"

#define SLICE_NS 2000000u
/* After a slice that takes longer, the application gets as much time before the next one. */
#define LONG_SLICE_NS 10000000u
#define LOAD_PAUSE_NS 200000000u
#define CALL_EVENTS   (RUBY_EVENT_CALL | RUBY_EVENT_RETURN)
/* Besides these, at which another stack may run. */
#define SWITCH_EVENTS (RUBY_EVENT_FIBER_SWITCH | RUBY_EVENT_THREAD_BEGIN | RUBY_EVENT_THREAD_END)
/*
 * Limits of evals that are hooked: those that define methods, and those without methods, whose
 * lines are reported. An application can evaluate texts without end, and what is hooked stays in
 * memory.
 */
enum { EVALS_MAX = 4096, LINE_EVALS = 256 };

struct target {
    uint64_t serial;   /* of this target alone: a later one may get its address */
    ps_row *row;       /* of its one method, once that was called; NULL: it covers several */
    ps_row *line_row;  /* of `lines`, likewise */
    bool several;      /* a whole file, or a method that defines others */
    bool shared;       /* several classes had the method when the walk came to it */
    bool superseded;   /* the target of a method around it covers it, too: it has no TracePoint */
    bool has_lines;    /* false for a define_method body whose block another target covers */
    bool only_own;     /* likewise: that target also reports methods defined in the block */
    bool has_run;      /* a file that has run: no lines outside of its methods, as without YJIT */
    bool lends_blocks; /* a block in it is a define_method body: its lines are of several functions */
    bool is_eval;      /* the text of an eval that defines methods */
    bool retired;      /* its place is free for another target */
    bool wants_out;    /* a function of it was taken out (overhead.h) and called since */
    bool out;          /* its calls are not hooked any more */
    bool is_top;       /* a file, or the text of an eval: its methods can be split off */
    bool foreign;      /* covered only while everything is */
    bool waits;        /* a part of a split target, which still reports its calls */
    uint64_t whole;    /* `serial` of the target that it was a part of; 0: of none */
    ID name;           /* of a define_method body, as in events */
    struct {           /* the last entry, if `row` is NULL */
        ps_address klass, method;
        ps_row *row;
        uint64_t epoch; /* of ps_known_epoch */
    } last;
    /*
     * The rows that its calls were ever counted in. `known_calls` drops entries, so the rows of a
     * function that is taken out are found here.
     */
    struct {
        ps_row *first, **others;
        uint32_t count, capacity; /* of `others` */
        bool unknown;             /* there was no memory for one more */
    } rows;
    uint32_t added; /* the number of the walk before it was added */
    uint32_t seen;  /* the number of the last walk that saw a method of it */
    long next_free; /* of a retired target: the number of the next one, or -1 */
    struct ps_contents contents;
    struct ps_contents *methods; /* of several methods: those that have a return */
    uint32_t method_count;
};

/*
 * Found inside the ISeq that is about to become a target: its methods, and whether a block in it is
 * already a define_method body.
 */
static struct {
    struct ps_contents *list;
    uint32_t count, capacity;
    bool lends_blocks;
} found;

/* An exception may have ended the look before this one. */
static void forget_found(void)
{
    found.count = 0;
    found.lends_blocks = false;
}

static struct {
    bool on, everything;
    rb_event_flag_t events;
    bool restart; /* the coverage changed while on */
    bool closing; /* switching off has begun, and is finished before anything else */
    /* Array of TracePoints, each with a struct target as its data; nil: nothing to hook */
    VALUE tracepoints;
    VALUE places; /* Array of the ISeqs and methods that the TracePoints are on */
    struct target **targets;
    long target_count, target_capacity;
    long next_target, last_target;   /* while their events are changed */
    long next_foreign, last_foreign; /* while foreign targets go or come */
    long free_number;                /* of the first retired target, or -1 */
    uint64_t last_serial;            /* the highest one that a target got */
    uint32_t evals;                  /* targets that are evals with methods */
    long line_evals[LINE_EVALS];     /* numbers of the last evals without methods; -1: none */
    uint32_t next_line_eval;
    uint32_t walks, whole_walk; /* walks that have begun; the last one that came to its end */
    bool walk_now;
    bool outs;   /* some target has wants_out */
    VALUE parts; /* Array of ISeqs: methods of a target that is being split; else nil */
    long split;  /* the number of that target */
    long next_part;
    VALUE covered; /* identity Hash: an ISeq that a TracePoint covers -> the target's number */
    VALUE blocks;  /* identity Hash: ISeq of a block inside a target -> the target's number */
    /*
     * Hash: a define_method body (see body_of) -> its target's number. Many can share one block's
     * ISeq.
     */
    VALUE bodies;
    size_t compactions; /* GC.stat's count when `bodies` was filled */
    VALUE retired;      /* Array of disabled TracePoints of such bodies: see disable_target */
    ps_walk walk;       /* over the methods of all modules */
    VALUE files;        /* Array of the kept ISeqs, while a walk is under way */
    VALUE bodies_seen;  /* Array of [module, name] that the walk looks at last */
    long next_file, next_body;
    bool bodies_only; /* this walk looks for define_method bodies alone */
    VALUE script_hook, raise_hook, switch_hook;
    uint64_t loaded_ns; /* when a file was last loaded; 0: a walk has begun since */
} functions = {.tracepoints = Qnil,
               .places = Qnil,
               .covered = Qnil,
               .blocks = Qnil,
               .bodies = Qnil,
               .retired = Qnil,
               .walk = PS_NO_WALK,
               .files = Qnil,
               .bodies_seen = Qnil,
               .parts = Qnil,
               .script_hook = Qnil,
               .raise_hook = Qnil,
               .switch_hook = Qnil};

/*
 * Under YJIT each enable searches the whole heap: 0.3 ms if there is little in it, 4 ms in a large
 * application, for each of thousands of methods. A file's top-level ISeq covers all its methods at
 * once, but no object of Ruby leads to that ISeq after the file has run. So on a Ruby that has YJIT
 * the ISeqs of covered files are kept: 2.6 KB a file.
 */
static struct {
    VALUE files; /* Hash: path -> ISeq; nil where none are kept */
    VALUE hook;
} kept = {Qnil, Qnil};

PS_KEPT(PS_HELD(functions.tracepoints), PS_HELD(functions.places), PS_HELD(functions.covered),
        PS_HELD(functions.blocks), PS_HELD(functions.bodies), PS_HELD(functions.retired),
        PS_HELD(functions.files), PS_HELD_WALK(functions.walk), PS_HELD(functions.bodies_seen),
        PS_HELD(functions.parts), PS_HELD(functions.script_hook), PS_HELD(functions.raise_hook),
        PS_HELD(functions.switch_hook), PS_HELD(kept.files), PS_HELD(kept.hook))

/* The functions whose lines were reported. Only their names are used; nothing is counted. */
static ps_table lines;

/* Method, class and `serial` of a target -> row of ps_function_table, and of `lines`. */
static ps_known_table known_calls = PS_KNOWN_TABLE, known_lines = PS_KNOWN_TABLE;

static ID id_path, id_each_child, id_compare_by_identity, id_original_name, id_instruction_sequence,
    id_eval_script, id_compact_count /* 0: GC.stat does not know it */;

void ps_functions_init(void)
{
    id_path = rb_intern("path");
    id_original_name = rb_intern("original_name");
    id_each_child = rb_intern("each_child");
    id_compare_by_identity = rb_intern("compare_by_identity");
    id_instruction_sequence = rb_intern("instruction_sequence");
    id_eval_script = rb_intern("eval_script");
    VALUE stat = rb_hash_new();
    rb_gc_stat(stat);
    id_compact_count = rb_intern("compact_count");
    if (NIL_P(rb_hash_lookup(stat, ID2SYM(id_compact_count)))) id_compact_count = 0;
}

static VALUE keep_file(VALUE tracepoint)
{
    if (!NIL_P(rb_funcall(tracepoint, id_eval_script, 0))) return Qnil;
    VALUE iseq = rb_funcall(tracepoint, id_instruction_sequence, 0);
    if (NIL_P(iseq)) return Qnil;
    VALUE path = rb_funcall(iseq, id_path, 0);
    if (!NIL_P(kept.files) && ps_covers_file(path, false)) rb_hash_aset(kept.files, path, iseq);
    return Qnil;
}

/*
 * Called by Ruby like on_script(), also while nobody listens. Keeps files only: the number of evals
 * has no limit.
 */
static void on_file(VALUE tracepoint, void *unused)
{
    /*
     * Without kept files an attach takes longer. That is better than an object of each eval that
     * the application could see.
     */
    if (!ps_script_hide(tracepoint)) rb_tracepoint_disable(kept.hook);
    if (ps_is_main_ractor()) ps_objects_leave_out(keep_file, tracepoint);
}

void ps_functions_start(void)
{
    if (!ps_jit_may_come()) return;
    PS_KEEP(kept.files, ps_hidden(rb_hash_new()));
    PS_KEEP(kept.hook, rb_tracepoint_new(0, RUBY_EVENT_SCRIPT_COMPILED, on_file, NULL));
    rb_tracepoint_enable(kept.hook);
}

void ps_functions_stop(void)
{
    if (!NIL_P(kept.hook)) rb_tracepoint_disable(kept.hook);
    kept.files = kept.hook = Qnil;
}

/* The method of an event; outside methods the frame. */
static ps_address what_runs(VALUE method_id)
{
    VALUE frame;
    int line;
    if (RB_SYMBOL_P(method_id)) return PS_ADDRESS(method_id);
    return rb_profile_frames(0, 1, &frame, &line) == 1 ? PS_ADDRESS(frame) : PS_ADDRESS(Qnil);
}

/* Notes that the target counts calls in this row. Only where the row was not known. */
static void note_row(struct target *target, ps_row *row)
{
    if (!target->rows.first || target->rows.first == row) {
        target->rows.first = row;
        return;
    }
    for (uint32_t i = 0; i < target->rows.count; i++)
        if (target->rows.others[i] == row) return;
    ps_row **others =
        ps_memory_grown(target->rows.others, target->rows.count, &target->rows.capacity, sizeof(*others));
    if (!others) {
        target->rows.unknown = true;
        return;
    }
    target->rows.others = others;
    others[target->rows.count++] = row;
}

static void forget_rows(struct target *target)
{
    ps_memory_give(target->rows.others, target->rows.capacity * sizeof(*target->rows.others));
    memset(&target->rows, 0, sizeof(target->rows));
}

/* The row of a name and a place, which is made if there is none. */
static ps_row *row_at(ps_table *table, const char *name, size_t size, VALUE path, long line)
{
    const ps_site *site = ps_ruby_site(name, size, path, line);
    ps_row *row = ps_table_row(table, (uintptr_t)site, 0, 0);
    if (PS_UNLIKELY(!row->site)) {
        if (!ps_covers_function(path, name, functions.everything)) row->function.excluded = PS_NOT_COVERED;
        PS_WRITE_RELEASE(row->site, site);
    }
    return row;
}

/*
 * The row of a call, or of a line. Its key is name and place in ps_function_table, name and file in
 * `lines`. So a method that is defined anew gets a new row, and a method that many objects have is
 * one row.
 */
static PS_APART ps_row *make_row(ps_table *table, ps_known_table *known_rows, struct target *target,
                                 rb_trace_arg_t *arg)
{
    VALUE method_id = rb_tracearg_method_id(arg), klass = rb_tracearg_defined_class(arg);
    ps_key key = PS_KEY(klass, what_runs(method_id).value, target->serial);
    ps_known *known = ps_known_find(known_rows, key);
    if (PS_LIKELY(known && ps_known_is_current(known, key))) return known->what;
    ps_row *row = known ? known->what : NULL;
    bool ours = ps_ours_begin();
    char name[PS_NAME_BUFFER];
    size_t size = ps_event_name(name, arg);
    VALUE path = rb_tracearg_path(arg);
    long line = table == &lines ? 0 : NUM2LONG(rb_tracearg_lineno(arg));
    if (row && ps_ruby_site_is(row->site, name, size, path, line)) {
        ps_known_renew(known, key);
    } else {
        row = row_at(table, name, size, path, line);
        if (!ps_row_is_overflow(table, row)) {
            ps_known_put(known_rows, key, row);
            if (table == &ps_function_table) note_row(target, row);
        }
    }
    ps_ours_end(ours);
    return row;
}

/*
 * The method id, if the target covers several methods. A target of one method needs none: Ruby
 * reports a method by its first name, whatever name it was called by.
 */
static ps_address which_method(const struct target *target, rb_trace_arg_t *arg)
{
    return target->several ? PS_ADDRESS(rb_tracearg_method_id(arg)) : PS_NO_ADDRESS;
}

/*
 * At an entry only: the line of an entry is the definition's, that of an exit is where the method
 * was left.
 */
static ps_row *make_function_row(struct target *target, ps_address method, rb_trace_arg_t *arg)
{
    ps_address klass = PS_ADDRESS(rb_tracearg_defined_class(arg));
    bool is_last =
        ps_address_equal(target->last.klass, klass) && ps_address_equal(target->last.method, method);
    if (PS_LIKELY(is_last && target->last.epoch == ps_known_epoch)) return target->last.row;
    ps_row *row = make_row(&ps_function_table, &known_calls, target, arg);
    if (PS_UNLIKELY(ps_row_is_overflow(&ps_function_table, row))) return row;
    if (!target->several && !target->shared) target->row = row;
    target->last.klass = klass;
    target->last.method = method;
    target->last.row = row;
    target->last.epoch = ps_known_epoch;
    return row;
}

static bool is_named(const ps_row *row, const char *name, size_t size, VALUE path)
{
    return row->site && ps_ruby_site_is(row->site, name, size, path, (long)row->site->line);
}

/*
 * At an exit, if the row is not known by its address: the row of the innermost open call of a
 * method of this name.
 */
static PS_APART ps_row *look_for_row(const ps_stack *stack, const struct target *target, rb_trace_arg_t *arg)
{
    VALUE method_id = rb_tracearg_method_id(arg), klass = rb_tracearg_defined_class(arg);
    ps_key key = PS_KEY(klass, method_id, target->serial);
    ps_known *known = ps_known_find(&known_calls, key);
    if (PS_LIKELY(known && ps_known_is_current(known, key))) return known->what;
    char name[PS_NAME_BUFFER];
    size_t size = ps_event_name(name, arg);
    VALUE path = rb_tracearg_path(arg);
    if (known && is_named(known->what, name, size, path)) {
        ps_known_renew(known, key);
        return known->what;
    }
    for (uint32_t i = ps_stack_depth(stack); i-- > 0;) {
        ps_row *row = stack->frames[i].row;
        if (!is_named(row, name, size, path)) continue;
        ps_known_put(&known_calls, key, row);
        return row;
    }
    return &ps_function_table.overflow;
}

/*
 * At an exit: the row of the call on top, if that is a call of this method on the same object. The
 * comparison fails if calls were left without an exit, and after a compaction. Then the class is
 * used to find the row.
 */
static inline ps_row *find_row(const ps_stack *stack, const struct target *target, rb_trace_arg_t *arg)
{
    uint32_t depth = ps_stack_depth(stack);
    if (PS_UNLIKELY(!depth)) return look_for_row(stack, target, arg);
    const ps_frame *top = &stack->frames[depth - 1];
    bool is_same = ps_address_equal(top->called.target, PS_ADDRESS(target)) &&
                   ps_address_equal(top->called.receiver, PS_ADDRESS(rb_tracearg_self(arg))) &&
                   ps_address_equal(top->called.method, which_method(target, arg));
    return PS_LIKELY(is_same) ? top->row : look_for_row(stack, target, arg);
}

static ps_row *find_line_row(struct target *target, rb_trace_arg_t *arg)
{
    if (PS_LIKELY(target->line_row != NULL)) return target->line_row;
    ps_row *row = make_row(&lines, &known_lines, target, arg);
    bool one = !target->several && !target->shared && !target->lends_blocks;
    if (one && !ps_row_is_overflow(&lines, row)) target->line_row = row;
    return row;
}

/*
 * The contents of this row's method. Only a target of several methods has to search, and only while
 * an exception is unwinding.
 */
static const struct ps_contents *contents_of(const struct target *target, const ps_row *row)
{
    static const struct ps_contents unknown;
    if (!target->several) return &target->contents;
    for (uint32_t i = 0; i < target->method_count; i++)
        if (row->site && (uint64_t)target->methods[i].line == row->site->line) return &target->methods[i];
    return &unknown;
}

static bool is_raising(const ps_stack *stack, const struct target *target, const ps_row *row,
                       rb_trace_arg_t *arg)
{
    return PS_UNLIKELY(stack->unwinding) && ps_leaves_raising(contents_of(target, row), arg);
}

/*
 * Called by Ruby on the raising or rescuing thread, with the VM lock (in another Ractor, with that
 * Ractor's lock).
 */
static void on_raise_or_rescue(VALUE tracepoint, void *unused)
{
    ps_stack *stack = ps_current_stack();
    if (!stack) return;
    stack->unwinding = rb_tracearg_event_flag(rb_tracearg_from_tracepoint(tracepoint)) == RUBY_EVENT_RAISE;
    if (stack->unwinding) stack->raises++;
}

/*
 * Called by Ruby with the VM lock, on the fiber that a thread has just switched to, and where a
 * thread begins or ends. A thread that an exception ends does not tell before Ruby 3.3.
 */
static void on_switch(VALUE tracepoint, void *unused)
{
    uint64_t now = ps_ticks();
    if (rb_tracearg_event_flag(rb_tracearg_from_tracepoint(tracepoint)) != RUBY_EVENT_FIBER_SWITCH) {
        ps_current_stack_leave();
        return;
    }
    ps_stack *left, *stack = ps_current_stack_switched(&left);
    if (left == stack) return;
    if (left) ps_stack_suspend(left, now);
    if (stack) ps_stack_resume(stack, now);
}

/*
 * `retry` in a method whose body begins with `begin` jumps to the method's first instruction, and
 * Ruby fires :call again. That is possible only after an exception since the entry, and looks like
 * the method calling itself. Then the method's frames on the VM's stack are counted and compared
 * with the method's open calls.
 */
static bool is_retry(const ps_stack *stack, const ps_row *row, const struct target *target)
{
    uint32_t depth = ps_stack_depth(stack);
    if (PS_LIKELY(!depth || stack->frames[depth - 1].row != row)) return false;
    if (!(target->contents.rescues || target->several) || stack->frames[depth - 1].raises == stack->raises)
        return false;
    uint32_t open = 0;
    for (uint32_t i = 0; i < depth; i++) open += stack->frames[i].row == row;
    return ps_count_frames() <= open;
}

static PS_APART void on_line(struct target *target, rb_trace_arg_t *arg)
{
    if (!PS_ENABLED(LINE) || !ps_is_main_ractor()) return;
    if (PS_UNLIKELY(target->has_run) && NIL_P(rb_tracearg_method_id(arg))) return;
    const ps_row *row = find_line_row(target, arg);
    if (row->function.excluded) return;
    ps_functions_fire_line(row->site, NUM2ULL(rb_tracearg_lineno(arg)));
}

/* A function that was taken out is still called: a job takes out its TracePoint. */
static PS_APART void ask_out(struct target *target, const ps_row *row)
{
    if (target->wants_out || PS_READ(row->function.excluded) != PS_TAKEN_OUT) return;
    target->wants_out = true;
    PS_WRITE(functions.outs, true);
}

/*
 * Ruby hooks the methods that are defined in a define_method body together with the body. Is this
 * event one of theirs? Then the target that covers the body's block reports it. Such a method may
 * have the body's name.
 */
static PS_APART bool is_told_by_other(const struct target *target, rb_trace_arg_t *arg)
{
    if (!target->contents.methods) return false;
    VALUE method_id = rb_tracearg_method_id(arg);
    return (RB_SYMBOL_P(method_id) && rb_sym2id(method_id) != target->name) ||
           ps_runs_method_in(&target->contents, target->name);
}

static void on_call_or_return(struct target *target, rb_trace_arg_t *arg, bool is_call)
{
    uint64_t now = is_call ? 0 : ps_ticks();
    if (PS_UNLIKELY(target->waits)) return;
    if (PS_UNLIKELY(target->only_own) && is_told_by_other(target, arg)) return;
    ps_stack *stack = ps_current_stack();
    if (PS_UNLIKELY(!stack)) return; /* for example in another Ractor */
    /* TracePoint#enable is written in Ruby, and jobs call it. */
    if (PS_UNLIKELY(ps_doing_here(ps_own_work))) return;
    ps_row *row = target->row;
    ps_address receiver = PS_NO_ADDRESS, method = PS_NO_ADDRESS;
    if (!row && is_call) {
        receiver = PS_ADDRESS(rb_tracearg_self(arg));
        method = which_method(target, arg);
        row = make_function_row(target, method, arg);
    } else if (!row) {
        row = find_row(stack, target, arg);
    }
    if (PS_UNLIKELY(PS_READ(row->function.excluded))) {
        ask_out(target, row);
        return;
    }
    if (is_call) {
        if (PS_UNLIKELY(is_retry(stack, row, target))) return;
        ps_frame *frame = ps_stack_enter(stack, row, ps_real_depth);
        ps_called called = {PS_ADDRESS(target), receiver, method};
        ps_functions_entered(row, stack, frame, &called, false);
    } else {
        ps_call call;
        int outcome = is_raising(stack, target, row, arg) ? PS_OUTCOME_RAISED : PS_OUTCOME_RETURNED;
        if (!ps_stack_leave(stack, row, now, outcome, &call)) return;
        ps_functions_left(row, stack, &call, outcome);
    }
}

/*
 * Called by Ruby at each :call, :return and :line, on any of its threads, with the VM lock (in
 * another Ractor, with that Ractor's lock).
 */
static void on_event(VALUE tracepoint, void *data)
{
    struct target *target = data;
    rb_trace_arg_t *arg = rb_tracearg_from_tracepoint(tracepoint);
    rb_event_flag_t event = rb_tracearg_event_flag(arg);
    ps_look look = ps_look_begin(event == RUBY_EVENT_LINE ? PS_LOOK_LINE : PS_LOOK_FUNCTION);
    if (event == RUBY_EVENT_LINE) on_line(target, arg);
    else on_call_or_return(target, arg, event == RUBY_EVENT_CALL);
    ps_look_end(look);
}

/* ---- Targets ---- */

/* A method that is not hooked must not look like one that is never called, so the probes say so. */
static void degrade(const char *reason)
{
    ps_info_degrade(ps_functions_feature.probes | ps_lines_feature.probes, reason);
}

static void no_memory(void)
{
    degrade("PROBESCOPE_MEMORY is used up: some functions are not hooked and not counted");
}

/* Puts in the TracePoint of a target, with the events that are wanted now. */
static void enable_target(long number, bool may_raise)
{
    struct target *target = functions.targets[number];
    if (target->retired || (target->foreign && !functions.everything)) return;
    rb_event_flag_t events = functions.events & ~(target->has_lines ? 0u : (rb_event_flag_t)RUBY_EVENT_LINE);
    if (target->out) events &= ~(rb_event_flag_t)CALL_EVENTS;
    if (!events || target->superseded) return;
    VALUE tracepoint = rb_tracepoint_new(0, events, on_event, target);
    /*
     * Stored before it is enabled: if an exception left this function, the TracePoint could still
     * be disabled later.
     */
    rb_ary_store(functions.tracepoints, number, tracepoint);
    /* Refused: there is nothing to hook. There may be with other events. */
    if (!ps_enable_on(tracepoint, RARRAY_AREF(functions.places, number), may_raise))
        rb_ary_store(functions.tracepoints, number, Qnil);
}

/*
 * While somebody else's TracePoint on the same method runs, ours stays in the list of the method's
 * hooks after it was disabled. The method's entry marks that list, but the entry may have no write
 * barrier for our TracePoint (methods.h). So it is kept until hooks are next put in or out.
 */
static void disable_target(long number)
{
    VALUE tracepoint = RARRAY_AREF(functions.tracepoints, number),
          place = RARRAY_AREF(functions.places, number);
    rb_ary_store(functions.tracepoints, number, Qnil);
    if (NIL_P(tracepoint)) return;
    if (RTEST(rb_obj_is_method(place))) rb_ary_push(functions.retired, tracepoint);
    ps_disable_on(tracepoint, place);
}

static void free_target(struct target *target)
{
    forget_rows(target);
    ps_memory_give(target->methods, target->method_count * sizeof(struct ps_contents));
    ps_memory_give(target, sizeof(*target));
}

/* The number that the next target gets. */
static long next_number(void)
{
    return functions.free_number >= 0 ? functions.free_number : functions.target_count;
}

/* Makes room for one more target under that number. */
static bool make_room(void)
{
    if (functions.free_number >= 0) return true;
    if (functions.target_count == functions.target_capacity) {
        long capacity = functions.target_capacity ? functions.target_capacity * 2 : 256;
        struct target **targets = ps_memory_take((size_t)capacity * sizeof(*targets));
        if (!targets) return false;
        for (long i = 0; i < functions.target_count; i++) targets[i] = functions.targets[i];
        ps_memory_give(functions.targets, (size_t)functions.target_capacity * sizeof(*targets));
        functions.targets = targets;
        functions.target_capacity = capacity;
    }
    return true;
}

/* Stores the target under next_number(). */
static void put_target(struct target *target, VALUE place)
{
    long number = next_number();
    if (number == functions.target_count) {
        rb_ary_push(functions.places, place);
        rb_ary_push(functions.tracepoints, Qnil);
        functions.target_count++;
    } else {
        struct target *before = functions.targets[number];
        functions.free_number = before->next_free;
        rb_ary_store(functions.places, number, place);
        free_target(before);
    }
    functions.targets[number] = target;
}

/*
 * Adds an ISeq or method as a target, with the methods that were found in it, and puts in its
 * TracePoint. Returns its number, or -1 without memory.
 */
static long add_target(VALUE place, struct target is, bool may_raise)
{
    uint32_t methods = is.several ? found.count : 0;
    is.lends_blocks = found.lends_blocks;
    struct target *target = make_room() ? ps_memory_take(sizeof(*target)) : NULL;
    if (!target) {
        no_memory();
        return -1;
    }
    *target = is;
    target->serial = ++functions.last_serial;
    target->added = functions.walks;
    if (methods && (target->methods = ps_memory_take(methods * sizeof(struct ps_contents))) != NULL) {
        memcpy(target->methods, found.list, methods * sizeof(struct ps_contents));
        target->method_count = methods;
    }
    long number = next_number();
    put_target(target, place);
    enable_target(number, may_raise);
    return number;
}

/*
 * Notes a method inside the ISeq that becomes a target. Without memory its lines are not noted, and
 * it is less certain how it was left.
 */
static void note_method(VALUE iseq, struct ps_contents contents)
{
    if (found.count == found.capacity) {
        uint32_t capacity = found.capacity ? found.capacity * 2 : 64;
        struct ps_contents *list = ps_memory_take(capacity * sizeof(*list));
        if (!list) return;
        if (found.list) memcpy(list, found.list, found.count * sizeof(*list));
        ps_memory_give(found.list, found.capacity * sizeof(*list));
        found.list = list;
        found.capacity = capacity;
    }
    ps_find_end(iseq, &contents);
    if (contents.end_line || contents.returns_early || contents.rescues) found.list[found.count++] = contents;
}

/* The number of the ISeq's own target; nil if only a target around it covers it. */
static VALUE own_target(VALUE iseq)
{
    VALUE number = rb_hash_lookup(functions.covered, iseq);
    if (NIL_P(number) || FIX2LONG(number) >= functions.target_count) return Qnil;
    return RARRAY_AREF(functions.places, FIX2LONG(number)) == iseq ? number : Qnil;
}

/*
 * The walk may find a method before the method that defines it. The outer target covers the inner
 * method as well, so each call would count twice. So the inner target goes out. If it was for a
 * method of several classes, the outer target tells these apart.
 */
static void supersede(VALUE iseq)
{
    VALUE number = own_target(iseq);
    if (NIL_P(number)) return;
    functions.targets[FIX2LONG(number)]->superseded = true;
    disable_target(FIX2LONG(number));
}

/*
 * The walk may find the block of a define_method body before the block around it, if that is such a
 * body as well. From now on the outer one's target covers the inner block.
 */
static void lend_block(VALUE iseq, VALUE number)
{
    VALUE before = rb_hash_lookup(functions.blocks, iseq);
    if (!NIL_P(before)) {
        long body = FIX2LONG(before);
        if (before == number || body >= functions.target_count) return;
        if (!RTEST(rb_obj_is_method(RARRAY_AREF(functions.places, body)))) return;
        struct target *target = functions.targets[body];
        found.lends_blocks = true;
        if (!target->only_own) {
            target->only_own = true;
            target->several = target->has_lines = false;
            target->row = NULL;
            disable_target(body);
            enable_target(body, false);
            functions.loaded_ns = ps_monotonic_ns(); /* see change_events() */
        }
    }
    rb_hash_aset(functions.blocks, iseq, number);
}

static VALUE note_child(RB_BLOCK_CALL_FUNC_ARGLIST(child, contents));

/*
 * Notes all ISeqs inside this one, which is about to become a target, as covered. Returns what they
 * contain, at any depth.
 */
static struct ps_contents note_children(VALUE iseq)
{
    struct ps_contents contents = {0};
    rb_block_call(iseq, id_each_child, 0, NULL, note_child, (VALUE)&contents);
    return contents;
}

static VALUE note_child(RB_BLOCK_CALL_FUNC_ARGLIST(child, contents))
{
    struct ps_contents *sum = (struct ps_contents *)contents, inside = note_children(child);
    bool is_block = ps_is_block(child);
    /* A block may become a define_method body, which needs a TracePoint of its own. */
    VALUE number = LONG2FIX(next_number());
    if (!is_block) {
        supersede(child);
        rb_hash_aset(functions.covered, child, number);
    } else {
        lend_block(child, number);
    }
    if (ps_contents_include(sum, child, &inside)) note_method(child, inside);
    return Qnil;
}

static bool is_covered(VALUE iseq)
{
    return RTEST(rb_hash_lookup(functions.covered, iseq));
}

static VALUE forget_child(RB_BLOCK_CALL_FUNC_ARGLIST(child, number));

static void forget_children(VALUE iseq, VALUE number)
{
    rb_block_call(iseq, id_each_child, 0, NULL, forget_child, number);
}

static VALUE forget_child(RB_BLOCK_CALL_FUNC_ARGLIST(child, number))
{
    forget_children(child, number);
    rb_hash_delete(functions.covered, child);
    if (rb_hash_lookup(functions.blocks, child) == number) rb_hash_delete(functions.blocks, child);
    return Qnil;
}

/* Takes out a target that is not needed any more, so that its ISeq can be collected. */
static void retire(long number)
{
    struct target *target = functions.targets[number];
    VALUE place = RARRAY_AREF(functions.places, number);
    disable_target(number);
    forget_children(place, LONG2FIX(number));
    rb_hash_delete(functions.covered, place);
    rb_ary_store(functions.places, number, Qnil);
    if (target->is_eval) functions.evals--;
    target->retired = true;
    target->next_free = functions.free_number;
    functions.free_number = number;
}

/* Retires evals of which the last walk saw no method. */
static void retire_evals(void)
{
    for (long i = 0; i < functions.target_count; i++) {
        const struct target *target = functions.targets[i];
        /* Methods of an eval that was split are seen as those of its parts. */
        if (!target->is_eval || target->retired || target->lends_blocks || target->out) continue;
        if (!NIL_P(functions.parts) && i == functions.split) continue;
        if (target->added < functions.whole_walk && target->seen < functions.whole_walk) retire(i);
    }
}

/*
 * A block becomes a define_method body. True if another target reports its lines and the methods
 * that are defined in it. From now on that target looks up which function each line is of.
 */
static bool share_block(VALUE iseq)
{
    VALUE number = rb_hash_lookup(functions.blocks, iseq);
    /* The number may also be that of a target for which there was no memory. */
    if (NIL_P(number) || FIX2LONG(number) == next_number() || FIX2LONG(number) >= functions.target_count) {
        rb_hash_aset(functions.blocks, iseq, LONG2FIX(next_number()));
        return false;
    }
    struct target *target = functions.targets[FIX2LONG(number)];
    target->lends_blocks = true;
    target->line_row = NULL;
    return true;
}

/*
 * Tells the bodies of define_method methods apart. One body can be the method of several classes (a
 * class is dup'ed, an UnboundMethod is given to define_method, module_function). These are
 * different Methods and yet have one list of hooks: with two targeted TracePoints on it each call
 * counts twice, and up to Ruby 3.1 disabling the second one crashes. The hash of a Method is that
 * of its body. The Method's name is added because one block can be the body of several methods.
 */
static VALUE body_of(VALUE method)
{
    VALUE name = rb_funcall(method, id_original_name, 0);
    return LONG2FIX((FIX2LONG(rb_hash(method)) ^ (long)(SYM2ID(name) * 31)) & (FIXNUM_MAX >> 1));
}

/*
 * Method#hash depends on addresses, which a compaction changes. Then the keys in functions.bodies
 * are out of date.
 */
static void follow_compaction(void)
{
    if (!id_compact_count) return;
    size_t compactions = rb_gc_stat(ID2SYM(id_compact_count));
    if (compactions == functions.compactions) return;
    functions.compactions = compactions;
    rb_hash_clear(functions.bodies);
    for (long i = 0; i < functions.target_count; i++) {
        VALUE place = RARRAY_AREF(functions.places, i);
        if (!functions.targets[i]->retired && RTEST(rb_obj_is_method(place)))
            rb_hash_aset(functions.bodies, body_of(place), LONG2FIX(i));
    }
}

/*
 * The walk finds a method again that has its own target: an alias, or the same definition in
 * another class.
 */
static void note_other_class(VALUE iseq, VALUE method, VALUE name)
{
    VALUE number = own_target(iseq);
    if (NIL_P(number)) return;
    if (rb_funcall(method, id_original_name, 0) != name) return;
    struct target *target = functions.targets[FIX2LONG(number)];
    target->shared = true;
    target->row = target->line_row = NULL;
}

static bool is_covered_by_name(VALUE module, VALUE name, VALUE path)
{
    char text[PS_NAME_BUFFER];
    size_t size = ps_method_name(text, module, name);
    text[size < PS_NAME_BUFFER ? size : PS_NAME_BUFFER - 1] = '\0';
    return ps_covers_function(path, text, false);
}

static void look_at_method(VALUE module, VALUE name)
{
    VALUE method = ps_find_method(module, name);
    VALUE iseq = ps_iseq_of(method);
    if (NIL_P(iseq)) return; /* written in C */
    bool is_body = ps_is_block(iseq);
    if (is_body) follow_compaction();
    VALUE shared = is_body ? rb_hash_lookup(functions.bodies, body_of(method)) : Qnil;
    if (!NIL_P(shared)) {
        VALUE tracepoint = RARRAY_AREF(functions.tracepoints, FIX2LONG(shared));
        if (!NIL_P(tracepoint)) ps_write_barrier(tracepoint, method);
    }
    VALUE number = is_body ? rb_hash_lookup(functions.blocks, iseq) : rb_hash_lookup(functions.covered, iseq);
    if (!NIL_P(number) && FIX2LONG(number) < functions.target_count)
        functions.targets[FIX2LONG(number)]->seen = functions.walks;
    if (is_body ? !NIL_P(shared) : !NIL_P(number)) { /* seen before, or an alias */
        if (!is_body) note_other_class(iseq, method, name);
        return;
    }
    if (functions.bodies_only && !is_body) return;
    if (is_body && !ps_walk_is_over(&functions.walk)) {
        rb_ary_push(functions.bodies_seen, ps_hidden(rb_assoc_new(module, name)));
        return;
    }
    VALUE path = rb_funcall(iseq, id_path, 0);
    if (!ps_covers_file(path, functions.everything)) return;
    bool by_name = ps_coverage_by_name();
    bool own = by_name ? is_covered_by_name(module, name, path) : ps_covers_file(path, false);
    if (!own && !functions.everything) return;
    forget_found();
    struct target target = {.only_own = is_body && share_block(iseq)};
    target.has_lines = !target.only_own;
    target.contents = target.only_own ? ps_contents_of(iseq) : note_children(iseq);
    target.several = target.contents.methods && !target.only_own;
    target.foreign = !own && !(by_name && target.several); /* a name inside may be covered */
    if (target.several) note_method(iseq, target.contents);
    ps_find_end(iseq, &target.contents);
    if (is_body) {
        target.name = rb_sym2id(rb_funcall(method, id_original_name, 0));
        rb_hash_aset(functions.bodies, body_of(method), LONG2FIX(next_number()));
    } else {
        rb_hash_aset(functions.covered, iseq, LONG2FIX(next_number()));
    }
    add_target(is_body ? method : iseq, target, false);
}

/* The module and the name. */
static VALUE look_at_pair(VALUE pointer)
{
    const VALUE *pair = (const VALUE *)pointer;
    look_at_method(pair[0], pair[1]);
    return Qnil;
}

/*
 * Drops the exception that ended a look. NameError: the method has vanished between the list and
 * the look, because another thread undefined it. Then nothing is missing.
 */
static void drop_error(void)
{
    if (!RTEST(rb_obj_is_kind_of(rb_errinfo(), rb_eNameError)))
        degrade("an error ended the look at a function: some functions are not hooked and not counted");
    rb_set_errinfo(Qnil);
}

static void try_method(VALUE module, VALUE name)
{
    int failed = 0;
    VALUE pair[] = {module, name};
    rb_protect(look_at_pair, (VALUE)pair, &failed);
    if (failed) drop_error();
}

static bool is_to_be_covered(VALUE iseq)
{
    return !is_covered(iseq) && ps_covers_file(rb_funcall(iseq, id_path, 0), functions.everything);
}

/*
 * Covers a file, or the text of an eval, by its top-level ISeq. Returns the target's number, or -1.
 */
static long add_top(VALUE iseq, struct target is)
{
    forget_found();
    note_children(iseq);
    rb_hash_aset(functions.covered, iseq, LONG2FIX(next_number()));
    is.several = is.has_lines = is.is_top = true;
    is.foreign = functions.everything && !ps_covers_file(rb_funcall(iseq, id_path, 0), false);
    return add_target(iseq, is, !is.has_run);
}

/* False when the file is not to be covered, or is covered already. */
static bool add_file(VALUE iseq, bool has_run)
{
    if (!is_to_be_covered(iseq)) return false;
    add_top(iseq, (struct target){.has_run = has_run});
    return true;
}

/* Takes the place of the eval that was evaluated longest ago. */
static void add_line_eval(VALUE iseq)
{
    long *place = &functions.line_evals[functions.next_line_eval++ % LINE_EVALS];
    if (*place >= 0 && !functions.targets[*place]->lends_blocks) retire(*place);
    *place = add_top(iseq, (struct target){0});
}

/*
 * What a text contains. An equal text is not examined again: programs evaluate the same one again
 * and again, and examining takes as long as evaluating. Besides, on Ruby 3.1 each look at the
 * children of an ISeq leaks 150 bytes (not on 3.3).
 */
static struct ps_contents contents_of_text(VALUE iseq, VALUE text)
{
    enum { KNOWN = 256 };
    static struct {
        st_index_t hash;
        long size;
        struct ps_contents contents;
    } known[KNOWN];
    if (!RB_TYPE_P(text, T_STRING)) return ps_contents_of(iseq);
    st_index_t hash = rb_str_hash(text);
    int i = (int)(hash % KNOWN);
    if (known[i].hash != hash || known[i].size != RSTRING_LEN(text)) {
        known[i].contents = ps_contents_of(iseq);
        known[i].hash = hash;
        known[i].size = RSTRING_LEN(text);
    }
    return known[i].contents;
}

/*
 * Adds the text of an eval. True when the eval may have left define_method bodies, which a walk
 * looks for. A text without methods is covered for its lines alone.
 */
static bool add_eval(VALUE iseq, VALUE text)
{
    static const char reason[] = "so many evals define methods that some are not hooked and not counted";
    if (!is_to_be_covered(iseq)) return false;
    struct ps_contents contents = contents_of_text(iseq, text);
    if (!contents.methods) {
        if (functions.events & RUBY_EVENT_LINE) add_line_eval(iseq);
        return contents.blocks;
    }
    if (functions.evals >= EVALS_MAX) retire_evals();
    functions.walk_now = functions.evals >= EVALS_MAX / 2;
    if (functions.evals >= EVALS_MAX) {
        degrade(reason);
        return true;
    }
    if (add_top(iseq, (struct target){.is_eval = true}) >= 0) functions.evals++;
    return true;
}

static VALUE add_file_protected(VALUE iseq)
{
    add_file(iseq, true);
    return Qnil;
}

static int collect_file(VALUE path, VALUE iseq, VALUE list)
{
    rb_ary_push(list, iseq);
    return ST_CONTINUE;
}

static void begin_walk(bool bodies_only)
{
    PS_KEEP(functions.bodies_seen, ps_hidden(rb_ary_new()));
    functions.next_file = functions.next_body = 0;
    /* If names decide the coverage, few of a file's methods may be covered. */
    bool by_file = !bodies_only && ps_jit_is_on() && !NIL_P(kept.files) &&
                   (functions.everything || !ps_coverage_by_name());
    PS_KEEP(functions.files, ps_hidden(rb_ary_new()));
    if (by_file) rb_hash_foreach(kept.files, collect_file, functions.files);
    functions.bodies_only = bodies_only;
    functions.loaded_ns = 0;
    functions.walks++;
    functions.walk_now = false;
    ps_walk_begin(&functions.walk);
}

/* Continues until the end of the slice. True when the walk is done. */
static bool continue_walk(uint64_t end)
{
    if (!ps_walk_is_under_way(&functions.walk)) return true;
    while (functions.next_file < RARRAY_LEN(functions.files)) {
        int failed = 0;
        rb_protect(add_file_protected, RARRAY_AREF(functions.files, functions.next_file++), &failed);
        if (failed) drop_error();
        if (ps_monotonic_ns() > end) return false;
    }
    if (!ps_walk_modules(&functions.walk, try_method, end)) return false;
    while (functions.next_body < RARRAY_LEN(functions.bodies_seen)) {
        VALUE body = RARRAY_AREF(functions.bodies_seen, functions.next_body++);
        try_method(RARRAY_AREF(body, 0), RARRAY_AREF(body, 1));
        if (ps_monotonic_ns() > end) return false;
    }
    ps_walk_end(&functions.walk);
    functions.files = functions.bodies_seen = Qnil;
    functions.whole_walk = functions.walks;
    if (functions.evals >= EVALS_MAX / 2) retire_evals();
    return true;
}

/*
 * Threads inside add_script(). The VM checks for jobs after each call there, and a job must not
 * change what add_script() works on. A job that comes on the same thread is put off until
 * add_script() ends. Jobs on other threads are kept out by ps_hold_vm_lock().
 */
static ps_doing *adding;
static bool put_off; /* a job was put off */

void ps_functions_after_fork(void)
{
    adding = NULL;
}

bool ps_functions_in_hook(void)
{
    return ps_doing_here(adding);
}

bool ps_functions_put_off(void)
{
    bool here = ps_doing_here(adding);
    if (here) put_off = true;
    return here;
}

struct added {
    ps_doing doing;
    VALUE tracepoint;
    bool ours;
};

static VALUE begin_adding(VALUE pointer)
{
    VALUE tracepoint = ((const struct added *)pointer)->tracepoint;
    VALUE iseq = rb_funcall(tracepoint, id_instruction_sequence, 0);
    VALUE text = rb_funcall(tracepoint, id_eval_script, 0);
    if (NIL_P(iseq)) return Qnil;
    if (NIL_P(text) ? add_file(iseq, false) : add_eval(iseq, text)) functions.loaded_ns = ps_monotonic_ns();
    return Qnil;
}

static VALUE end_adding(VALUE pointer)
{
    const struct added *added = (const struct added *)pointer;
    ps_doing_end(&adding, &added->doing);
    if (put_off) ps_job_ask();
    put_off = false;
    ps_ours_end(added->ours);
    return Qnil;
}

static VALUE add_now(VALUE tracepoint)
{
    if (!functions.on || functions.closing) return Qnil;
    struct added added = {.tracepoint = tracepoint, .ours = ps_ours_begin()};
    ps_doing_begin(&adding, &added.doing);
    return rb_ensure(begin_adding, (VALUE)&added, end_adding, (VALUE)&added);
}

static VALUE add_script(VALUE tracepoint)
{
    return ps_hold_vm_lock(add_now, tracepoint);
}

/* Called by Ruby when a file or the text of an eval was compiled and is about to run. */
static void on_script(VALUE tracepoint, void *unused)
{
    ps_script_hide(tracepoint);
    if (ps_is_main_ractor()) ps_objects_leave_out(add_script, tracepoint);
}

static void exclude(ps_row *row, uint64_t now)
{
    if (row->function.excluded) return;
    PS_WRITE(row->function.out_ns, now);
    PS_WRITE_RELEASE(row->function.excluded, PS_TAKEN_OUT);
}

/*
 * Without memory for the rows of a target, rows of other functions at the same place end with them:
 * a row that seems to go on would be wrong. At their next call their TracePoints are taken out, too.
 */
static void exclude_at(const char *path, uint64_t line, uint64_t now)
{
    for (uint32_t i = 0; i < ps_function_table.rows; i++) {
        ps_row *row = ps_table_at(&ps_function_table, i);
        if (row->site && row->site->path == path && row->site->line == line) exclude(row, now);
    }
}

/* Excludes the rows of a target. line: those of functions that are defined there; 0: all. */
static void exclude_rows(const struct target *target, uint64_t line, uint64_t now)
{
    const ps_row *first = target->rows.first;
    if (!first) return;
    for (uint32_t i = 0; i <= target->rows.count; i++) {
        ps_row *row = i ? target->rows.others[i - 1] : target->rows.first;
        if (!line || row->site->line == line) exclude(row, now);
    }
    if (target->rows.unknown) exclude_at(first->site->path, line ? line : first->site->line, now);
}

/*
 * The same method in other classes, or under other names, has the same TracePoint, so all its rows
 * are excluded. Some rows are of calls before the method was split off.
 */
static void exclude_all(const struct target *target)
{
    uint64_t now = ps_monotonic_ns(), line = (uint64_t)target->contents.line;
    exclude_rows(target, 0, now);
    for (long i = 0; i < functions.target_count && target->whole; i++)
        if (functions.targets[i]->serial == target->whole) exclude_rows(functions.targets[i], line, now);
}

/*
 * Splitting: a target of several methods becomes one for each of them, so that the hooks of one can
 * go. Until all parts have TracePoints, the whole reports their calls; after that it reports lines
 * only. A method that defines others stays one target with those: Ruby hooks what is nested in an
 * ISeq together with the ISeq.
 */
static VALUE collect_part(RB_BLOCK_CALL_FUNC_ARGLIST(child, list))
{
    if (!ps_has_calls(child)) rb_block_call(child, id_each_child, 0, NULL, collect_part, list);
    else if (rb_hash_lookup(functions.covered, child) == LONG2FIX(functions.split)) rb_ary_push(list, child);
    return Qnil;
}

static VALUE begin_split(VALUE unused)
{
    VALUE parts = ps_hidden(rb_ary_new());
    rb_block_call(RARRAY_AREF(functions.places, functions.split), id_each_child, 0, NULL, collect_part,
                  parts);
    PS_KEEP(functions.parts, parts);
    functions.next_part = 0;
    return Qnil;
}

static VALUE add_part(VALUE iseq)
{
    forget_found();
    /* Several classes may have the method, which the whole did not note. */
    struct target part = {.contents = note_children(iseq), .shared = true, .waits = true};
    part.whole = functions.targets[functions.split]->serial;
    part.foreign = functions.targets[functions.split]->foreign;
    part.several = part.contents.methods;
    if (part.several) note_method(iseq, part.contents);
    else ps_find_end(iseq, &part.contents);
    VALUE number = LONG2FIX(next_number());
    if (add_target(iseq, part, false) < 0) return Qfalse;
    rb_hash_aset(functions.covered, iseq, number);
    return Qtrue;
}

/* From now on the parts report their calls. */
static void end_split(void)
{
    struct target *whole = functions.targets[functions.split];
    for (long i = 0; i < functions.target_count; i++)
        if (functions.targets[i]->whole == whole->serial) functions.targets[i]->waits = false;
    whole->out = true;
    disable_target(functions.split);
    enable_target(functions.split, false); /* for its lines */
}

/* Continues until the end of the slice. False when there is more to do. */
static bool continue_split(uint64_t end)
{
    struct target *whole = functions.targets[functions.split];
    while (functions.next_part < RARRAY_LEN(functions.parts)) {
        int failed = 0;
        VALUE added = rb_protect(add_part, RARRAY_AREF(functions.parts, functions.next_part++), &failed);
        if (failed) rb_set_errinfo(Qnil);
        if (failed || !RTEST(added)) {
            whole->is_top = false; /* it stays whole, and no part of it will report */
            break;
        }
        if (ps_monotonic_ns() > end) return false;
    }
    if (whole->is_top) end_split();
    functions.parts = Qnil;
    return true;
}

/* Takes out the TracePoint of a function. False when there is more to do. */
static bool take_out_target(long number, uint64_t end)
{
    struct target *target = functions.targets[number];
    if (target->several) {
        int failed = 0;
        if (!target->is_top) return true;
        functions.split = number;
        rb_protect(begin_split, Qnil, &failed);
        if (!failed) return continue_split(end);
        rb_set_errinfo(Qnil);
        target->is_top = false;
        return true;
    }
    if (target->shared) exclude_all(target);
    target->out = true;
    disable_target(number);
    enable_target(number, false); /* for its lines */
    return true;
}

/* Takes out the TracePoints of functions that overhead.h took out, for one slice. */
static void take_out(uint64_t end)
{
    bool any = false;
    functions.outs = false;
    if (!functions.on || functions.closing) return;
    if (!NIL_P(functions.parts)) functions.outs = !continue_split(end);
    for (long i = 0; i < functions.target_count && !functions.outs; i++) {
        const struct target *target = functions.targets[i];
        if (!target->wants_out || target->out || target->retired) continue;
        if (target->several && !target->is_top) continue;
        any = true;
        functions.outs = !take_out_target(i, end) || ps_monotonic_ns() > end;
    }
    /* ps_jit_is_on() would run Ruby code. */
    if (any && ps_jit_may_come()) ps_kick_jit();
}

/*
 * Is a walk due or under way? One is due when loading has paused after files were loaded: it looks
 * for their define_method bodies.
 */
static bool needs_walk(void)
{
    uint64_t loaded = PS_READ(functions.loaded_ns);
    if (PS_READ(functions.on) && PS_READ(functions.outs)) return true;
    return PS_READ(functions.on) && (ps_walk_is_under_way(&functions.walk) || PS_READ(functions.walk_now) ||
                                     (loaded && ps_monotonic_ns() - loaded > LOAD_PAUSE_NS));
}

static VALUE walk_slice(VALUE unused)
{
    uint64_t end = ps_monotonic_ns() + SLICE_NS;
    if (adding) return Qnil;
    if (functions.outs) {
        take_out(end);
        return Qnil;
    }
    if (!ps_walk_is_under_way(&functions.walk)) begin_walk(true);
    continue_walk(end);
    return Qnil;
}

static void walk(void)
{
    if (needs_walk()) ps_hold_vm_lock(walk_slice, Qnil);
}

/* ---- On and off ---- */

/* The hooks that shadow stacks need besides calls and returns. */
static void switch_beside_calls(bool on)
{
    VALUE hooks[] = {functions.raise_hook, functions.switch_hook};
    if (on) ps_current_stack_begin();
    for (int i = 0; i < 2; i++) {
        if (on) rb_tracepoint_enable(hooks[i]);
        else rb_tracepoint_disable(hooks[i]);
    }
}

static void switch_on(bool everything, rb_event_flag_t events)
{
    functions.everything = everything;
    functions.events = events;
    functions.next_target = functions.last_target = functions.next_foreign = functions.last_foreign = 0;
    functions.free_number = -1;
    functions.evals = functions.next_line_eval = functions.walks = functions.whole_walk = 0;
    functions.outs = false;
    for (int i = 0; i < LINE_EVALS; i++) functions.line_evals[i] = -1;
    PS_KEEP(functions.tracepoints, ps_hidden(rb_ary_new()));
    PS_KEEP(functions.places, ps_hidden(rb_ary_new()));
    PS_KEEP(functions.blocks, ps_hidden(rb_funcall(rb_hash_new(), id_compare_by_identity, 0)));
    PS_KEEP(functions.covered, ps_hidden(rb_funcall(rb_hash_new(), id_compare_by_identity, 0)));
    PS_KEEP(functions.bodies, ps_hidden(rb_hash_new()));
    PS_KEEP(functions.retired, ps_hidden(rb_ary_new()));
    if (NIL_P(functions.script_hook))
        PS_KEEP(functions.script_hook, rb_tracepoint_new(0, RUBY_EVENT_SCRIPT_COMPILED, on_script, NULL));
    if (NIL_P(functions.raise_hook))
        PS_KEEP(functions.raise_hook, rb_tracepoint_new(0, PS_RAISE_EVENTS, on_raise_or_rescue, NULL));
    if (NIL_P(functions.switch_hook))
        PS_KEEP(functions.switch_hook, rb_tracepoint_new(0, SWITCH_EVENTS, on_switch, NULL));
    ps_stack_epoch++;
    functions.on = true;
    rb_tracepoint_enable(functions.script_hook);
    switch_beside_calls((events & CALL_EVENTS) != 0);
    begin_walk(false);
}

static void forget(void)
{
    ps_known_clear(&known_calls);
    for (long i = 0; i < functions.target_count; i++) {
        functions.targets[i]->row = functions.targets[i]->last.row = NULL;
        functions.targets[i]->last.klass = PS_NO_ADDRESS;
        forget_rows(functions.targets[i]);
    }
}

/*
 * Somebody listens to calls again; lines were hooked all the time. Targets hook their calls again.
 * A target that was split does not: its parts report its calls.
 */
static void take_in(void)
{
    for (long i = 0; i < functions.target_count; i++) {
        struct target *target = functions.targets[i];
        target->wants_out = false;
        if (!target->is_top) target->out = false;
    }
}

/* Begins to give all present targets other events. */
static void change_events(rb_event_flag_t events)
{
    if (!(functions.events & CALL_EVENTS)) take_in();
    functions.events = events;
    functions.next_target = 0;
    functions.last_target = functions.target_count;
    PS_KEEP(functions.retired, ps_hidden(rb_ary_new()));
    /*
     * Methods that share a body need a walk: their entries have no write barrier for its new
     * TracePoint.
     */
    functions.loaded_ns = ps_monotonic_ns();
    switch_beside_calls((events & CALL_EVENTS) != 0);
}

/*
 * Continues for one slice. No Ruby code runs between the end of one TracePoint and the beginning of
 * the next, so nothing is missed.
 */
static bool continue_change(uint64_t end)
{
    while (functions.next_target < functions.last_target) {
        disable_target(functions.next_target);
        enable_target(functions.next_target++, false);
        if (ps_monotonic_ns() > end) return false;
    }
    return true;
}

static void cover_rows(ps_table *table)
{
    for (uint32_t i = 0; i < table->rows; i++) {
        ps_row *row = ps_table_at(table, i);
        if (!row->site || row->function.excluded == PS_TAKEN_OUT) continue;
        bool covered = ps_coverage_function(row->site->path, row->site->name, functions.everything);
        PS_WRITE(row->function.excluded, covered ? 0 : PS_NOT_COVERED);
    }
}

/*
 * A tracer begins or ceases to listen to all functions while another tracer counts, which goes on
 * undisturbed.
 */
static void change_coverage(bool everything)
{
    functions.everything = everything;
    functions.next_foreign = 0;
    functions.last_foreign = functions.target_count;
    PS_KEEP(functions.retired, ps_hidden(rb_ary_new()));
    cover_rows(&ps_function_table);
    cover_rows(&lines);
    functions.loaded_ns = ps_monotonic_ns(); /* see change_events() */
    if (everything) begin_walk(false);
}

/*
 * Continues for one slice. If the hooks of a foreign function go during its call, the return of its
 * caller drops that open call.
 */
static bool continue_coverage(uint64_t end)
{
    while (functions.next_foreign < functions.last_foreign) {
        long number = functions.next_foreign++;
        if (!functions.targets[number]->foreign) continue;
        if (!functions.everything) disable_target(number);
        else if (NIL_P(RARRAY_AREF(functions.tracepoints, number))) enable_target(number, false);
        if (ps_monotonic_ns() > end) return false;
    }
    return true;
}

/* Disables for one slice. True when all TracePoints are out. */
static bool switch_off(uint64_t end)
{
    functions.closing = true;
    rb_tracepoint_disable(functions.script_hook);
    switch_beside_calls(false);
    ps_walk_end(&functions.walk);
    functions.files = functions.bodies_seen = functions.parts = Qnil;
    functions.loaded_ns = 0;
    while (functions.target_count) {
        disable_target(functions.target_count - 1);
        free_target(functions.targets[--functions.target_count]);
        if (ps_monotonic_ns() > end) return false;
    }
    forget();
    ps_table_clear(&lines);
    ps_known_clear(&known_lines);
    ps_memory_give(functions.targets, (size_t)functions.target_capacity * sizeof(*functions.targets));
    functions.targets = NULL;
    functions.target_capacity = 0;
    functions.tracepoints = functions.places = functions.covered = functions.blocks = functions.bodies = Qnil;
    if (ps_jit_is_on()) ps_kick_jit();
    functions.on = functions.closing = false;
    return true;
}

void ps_functions_restart(void)
{
    functions.restart = true;
    ps_watcher_recheck();
}

static VALUE switch_slice(VALUE listened_to)
{
    uint64_t end = ps_monotonic_ns() + SLICE_NS;
    ps_probe_set wanted = NUM2ULL(listened_to);
    rb_event_flag_t events = 0;
    if (adding) return Qfalse;
    if (wanted & ps_functions_feature.probes) events |= CALL_EVENTS;
    if (wanted & ps_lines_feature.probes) events |= RUBY_EVENT_LINE;
    bool on = events && !ps_jit_refuses_calls();
    bool everything = (wanted & PS_BIT(FUNCTIONS__ALL)) != 0;
    if (!on) return !functions.on || switch_off(end) ? Qtrue : Qfalse;
    if (functions.on && (functions.closing || functions.restart) && !switch_off(end)) return Qfalse;
    if (functions.restart && !ps_features_clear(&ps_functions_feature)) return Qfalse;
    functions.restart = false;
    if (!functions.on) switch_on(everything, events);
    if (functions.everything != everything) change_coverage(everything);
    if (functions.events != events) change_events(events);
    return continue_change(end) && continue_coverage(end) && continue_walk(end) ? Qtrue : Qfalse;
}

/*
 * A slice puts in at least one hook. Under GC.stress each allocation runs a collection, so one hook
 * takes as long as some collections. A program of 8 s had not ended after 130 s, because hooks came
 * in all the time.
 */
static bool hook(ps_probe_set wanted)
{
    static uint64_t rests_until;
    ps_current_stack_follow_threads((wanted & PS_BIT(FUNCTION__HERE)) != 0);
    if (!functions.on && !(wanted & (ps_functions_feature.probes | ps_lines_feature.probes))) return true;
    if (wanted && ps_monotonic_ns() < rests_until) return false;
    uint64_t began = ps_clock_read(CLOCK_THREAD_CPUTIME_ID);
    bool done = RTEST(ps_hold_vm_lock(switch_slice, ULL2NUM(wanted)));
    uint64_t took = ps_clock_read(CLOCK_THREAD_CPUTIME_ID) - began;
    if (took > LONG_SLICE_NS) rests_until = ps_monotonic_ns() + took;
    return done;
}

const ps_hooks ps_functions_hooks = {
    .feature = &ps_functions_feature,
    .hook = hook,
    .refused = ps_jit_refuses_calls,
    .forget = forget,
    .needs_upkeep = needs_walk,
    .upkeep = walk,
};

/* The hooks of functions report lines, too. */
const ps_hooks ps_lines_hooks = {.feature = &ps_lines_feature, .refused = ps_jit_refuses_calls};

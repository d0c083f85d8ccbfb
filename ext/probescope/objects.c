/*
 * Allocations: a NEWOBJ hook, inside which nothing may be allocated and no class asked for its name. So a row is keyed by
 * the class's address, the path String's and the line, and gets its names a moment later, in a job.
 */
#include <ruby/ruby.h>
#include <ruby/debug.h>
#include <ruby/version.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "allocations.h"
#include "atomic.h"
#include "compat.h"
#include "doing.h"
#include "hooks.h"
#include "info.h"
#include "looking.h"
#include "names.h"
#include "rows.h"
#include "stats.h"

static struct {
    VALUE hook;
    bool on;
    bool clearing; /* the hook is out, but the flush was reading the rows: clear them at the next try */
    size_t slot;   /* bytes of the smallest slot */
} objects = {.hook = Qnil};

/* Threads in ps_objects_leave_out(). */
static ps_doing *leaving_out;

struct left_out {
    ps_doing doing;
    VALUE (*work)(VALUE);
    VALUE argument;
};

static VALUE begin_leaving_out(VALUE pointer)
{
    const struct left_out *left_out = (const struct left_out *)pointer;
    return left_out->work(left_out->argument);
}

static VALUE end_leaving_out(VALUE pointer)
{
    ps_doing_end(&leaving_out, &((const struct left_out *)pointer)->doing);
    return Qnil;
}

VALUE ps_objects_leave_out(VALUE (*work)(VALUE), VALUE argument)
{
    struct left_out left_out = {.work = work, .argument = argument};
    ps_doing_begin(&leaving_out, &left_out.doing);
    return rb_ensure(begin_leaving_out, (VALUE)&left_out, end_leaving_out, (VALUE)&left_out);
}

/* The other threads are gone, wherever they were. */
static void after_fork_in_child(void)
{
    leaving_out = NULL;
}

void ps_objects_mark(void)
{
    rb_gc_mark(objects.hook);
    for (uint32_t i = 0; i < ps_objects.rows; i++) {
        const ps_row *row = ps_table_at(&ps_objects, i);
        if (row->key[0]) rb_gc_mark((VALUE)row->key[0]);
        if (row->key[1]) rb_gc_mark((VALUE)row->key[1]);
    }
}

/* Names a row; only where allocation is allowed. */
static void find_names(ps_row *row)
{
    static const char internal[] = "(internal)";
    char name[PS_NAME_BUFFER];
    size_t size;
    if (row->key[0]) {
        size = ps_class_name(name, rb_class_real((VALUE)row->key[0]));
    } else {
        size = sizeof(internal) - 1;
        memcpy(name, internal, size);
    }
    VALUE path = row->key[1] ? (VALUE)row->key[1] : Qnil;
    PS_WRITE_RELEASE(row->site, ps_ruby_site(name, size, path, (long)row->key[2]));
}

bool ps_objects_need_names(void)
{
    return PS_READ(objects.on) && PS_READ(ps_objects.resolved) < PS_READ_ACQUIRE(ps_objects.rows);
}

void ps_objects_find_names(void)
{
    if (!objects.on) return;
    for (uint32_t number = ps_objects.resolved; number < ps_objects.rows; number++) {
        find_names(ps_table_at(&ps_objects, number));
        PS_WRITE(ps_objects.resolved, number + 1);
    }
}

/*
 * Slots have several sizes from 3.2 on. Ruby exports the function that tells an object's, in no public header; it reads the
 * head of the heap page and nothing of the object. Where it is not to be had, objects count as the smallest slot.
 */
#ifdef HAVE_RB_GC_OBJ_SLOT_SIZE
extern size_t rb_gc_obj_slot_size(VALUE object);
#endif

static size_t slot_size(VALUE object)
{
#ifdef HAVE_RB_GC_OBJ_SLOT_SIZE
    return rb_gc_obj_slot_size(object);
#else
    return objects.slot;
#endif
}

static void count_object(VALUE tracepoint, void *unused)
{
    if (PS_UNLIKELY(!ps_contexts_on_main_ractor() || ps_doing_here(leaving_out))) return;
    rb_trace_arg_t *arg = rb_tracearg_from_tracepoint(tracepoint);
    VALUE object = rb_tracearg_object(arg), path = rb_tracearg_path(arg);
    VALUE klass = RBASIC(object)->klass;
    enum ruby_value_type type = RB_BUILTIN_TYPE(object);
    if (type == RUBY_T_IMEMO || type == RUBY_T_NODE || type == RUBY_T_ICLASS) klass = 0;
    long line = NIL_P(path) ? 0 : FIX2LONG(rb_tracearg_lineno(arg));
    size_t size = slot_size(object);
    uint32_t rows = ps_objects.rows;
    ps_row *row = ps_table_row(&ps_objects, (uintptr_t)klass, NIL_P(path) ? 0 : (uintptr_t)path, (uintptr_t)line);
    ps_allocations_add(row, size, ps_requests_counted());
    /* Names are found by the time this thread waits for something. Nobody would find them afterwards. */
    if (PS_UNLIKELY(rows != ps_objects.rows)) ps_job_ask_for_upkeep();
}

/* Called by Ruby on the allocating thread, with the VM lock, before the object has contents. */
static void on_newobj(VALUE tracepoint, void *unused)
{
    ps_look look = ps_look_begin(PS_LOOK_OBJECT);
    count_object(tracepoint, unused);
    ps_look_end(look);
}

void ps_objects_init(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
    objects.hook = rb_tracepoint_new(0, RUBY_INTERNAL_EVENT_NEWOBJ, on_newobj, NULL);
    VALUE constants = rb_const_get(rb_mGC, rb_intern("INTERNAL_CONSTANTS"));
    const char *names[] = {"BASE_SLOT_SIZE", "RVALUE_SIZE"}; /* 3.3 and later; before */
    for (int i = 0; i < 2 && !objects.slot; i++) {
        VALUE size = rb_hash_lookup(constants, rb_id2sym(rb_intern(names[i])));
        if (FIXNUM_P(size)) objects.slot = NUM2SIZET(size);
    }
    if (!objects.slot) objects.slot = 40;
}

static void refuse(const char *reason)
{
    ps_info_state(PS_PROBE_OBJECT__ALLOC, PS_STATE_REFUSED, reason);
    ps_info_state(PS_PROBE_OBJECT__STATS, PS_STATE_REFUSED, reason);
}

void ps_objects_forbid_newobj(void)
{
    if (objects.on) rb_tracepoint_disable(objects.hook);
    refuse(ps_newobj_reason());
}

static bool is_refused(void)
{
    /* Allocation hooks crash these by themselves. */
    const char *crashing[] = {"3.2.0", "3.2.1", "3.2.2"};
    for (size_t i = 0; i < sizeof(crashing) / sizeof(crashing[0]); i++) {
        if (strcmp(ruby_version, crashing[i]) != 0) continue;
        refuse("allocation hooks crash Ruby 3.2.0 to 3.2.2; upgrade to 3.2.3");
        return true;
    }
    if (!ps_newobj_allowed()) refuse(ps_newobj_reason());
    return !ps_newobj_allowed();
}

bool ps_objects_switch(uint32_t wanted)
{
    bool on = (wanted & PS_OBJECT_PROBES) && !is_refused();
    if (on == objects.on && !objects.clearing) return true;
    if (on) {
        rb_tracepoint_enable(objects.hook);
    } else {
        rb_tracepoint_disable(objects.hook);
        objects.clearing = true;
        if (!ps_stats_try_lock()) return false;
        ps_table_clear(&ps_objects);
        ps_stats_unlock();
    }
    objects.clearing = false;
    objects.on = on;
    return true;
}

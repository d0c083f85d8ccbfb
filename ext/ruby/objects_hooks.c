/*
 * Allocations: a NEWOBJ hook, inside which nothing may be allocated. The name of a class and its
 * superclass are read there by functions that allocate nothing, so a row has its name at once.
 * Neither class nor path is kept alive: known.h finds the row by their addresses.
 * (docs/decisions/185-names-in-the-allocation.md)
 */
#include <ruby/ruby.h>
#include <ruby/debug.h>
#include <ruby/version.h>

#include <stdlib.h>
#include <string.h>

#include "features/objects.h"
#include "base/atomic.h"
#include "table/flush.h"
#include "table/table.h"
#include "usdt/info.h"
#include "usdt/looking.h"
#include "compat.h"
#include "doing.h"
#include "hooks.h"
#include "names.h"

static struct {
    VALUE hook;
    bool on;
    size_t slot;          /* bytes of the smallest slot */
    uint64_t left_out;    /* objects that the library allocated; written with the VM lock */
    ps_known_table known; /* class, path, line -> row of ps_object_table */
} objects = {.hook = Qnil, .known = PS_KNOWN_TABLE};

PS_KEPT(PS_HELD(objects.hook))

ps_doing *ps_own_work;

VALUE ps_objects_leave_out(VALUE (*work)(VALUE), VALUE argument)
{
    return ps_doing_while(&ps_own_work, work, argument);
}

/* How many objects were left out so far. */
static VALUE objects_left_out(VALUE self)
{
    return ULL2NUM(objects.left_out);
}

/* klass: 0 for an object that is internal to the VM. Allocates nothing. */
static size_t find_name(char *to, VALUE klass)
{
    static const char internal[] = "(internal)";
    VALUE real = klass ? rb_class_real(klass) : 0;
    if (real) return ps_class_name(to, real);
    memcpy(to, internal, sizeof(internal));
    return sizeof(internal) - 1;
}

/* Has the class got a name since? Then its row, which is named after the superclass, is wrong. */
static bool has_other_name(const ps_row *row, VALUE klass)
{
    return strncmp(row->site->name, "(anonymous ", 11) == 0 && !NIL_P(rb_mod_name(rb_class_real(klass)));
}

static ps_row *find_row(VALUE klass, VALUE path, long line)
{
    ps_key key = PS_KEY(klass, path, line);
    ps_known *known = ps_known_find(&objects.known, key);
    ps_row *row = known ? known->what : NULL;
    if (PS_LIKELY(row && ps_known_is_current(known, key) && !has_other_name(row, klass))) return row;
    char name[PS_NAME_BUFFER];
    size_t size = find_name(name, klass);
    if (row && ps_ruby_site_is(row->site, name, size, path, line)) {
        ps_known_renew(known, key);
        return row;
    }
    const ps_site *site = ps_ruby_site(name, size, path, line);
    row = ps_table_row_at(&ps_object_table, site);
    if (!ps_row_is_overflow(&ps_object_table, row)) ps_known_put(&objects.known, key, row);
    return row;
}

/*
 * From 3.2 on slots have several sizes. Ruby exports the function that returns an object's slot
 * size, in no public header. The function reads the head of the heap page and nothing of the
 * object. Without it each object counts as the smallest slot.
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
    if (PS_UNLIKELY(!ps_is_main_ractor())) return;
    if (PS_UNLIKELY(ps_doing_here(ps_own_work))) {
        objects.left_out++;
        return;
    }
    rb_trace_arg_t *arg = rb_tracearg_from_tracepoint(tracepoint);
    VALUE object = rb_tracearg_object(arg), path = rb_tracearg_path(arg);
    VALUE klass = RBASIC(object)->klass;
    enum ruby_value_type type = RB_BUILTIN_TYPE(object);
    if (type == RUBY_T_IMEMO || type == RUBY_T_NODE || type == RUBY_T_ICLASS) klass = 0;
    long line = NIL_P(path) ? 0 : FIX2LONG(rb_tracearg_lineno(arg));
    size_t size = slot_size(object);
    ps_objects_add(find_row(klass, path, line), size, ps_requests_counted());
}

/*
 * Called by Ruby on the allocating thread, with the VM lock, before the object has contents. The
 * object's class is complete.
 */
static void on_newobj(VALUE tracepoint, void *unused)
{
    ps_look look = ps_look_begin(PS_LOOK_OBJECT);
    count_object(tracepoint, unused);
    ps_look_end(look);
}

void ps_objects_init(VALUE native)
{
    rb_define_singleton_method(native, "objects_left_out", objects_left_out, 0);
    PS_KEEP(objects.hook, rb_tracepoint_new(0, RUBY_INTERNAL_EVENT_NEWOBJ, on_newobj, NULL));
    VALUE constants = rb_const_get(rb_mGC, rb_intern("INTERNAL_CONSTANTS"));
    const char *names[] = {"BASE_SLOT_SIZE", "RVALUE_SIZE"}; /* from 3.3 on; before */
    for (int i = 0; i < 2 && !objects.slot; i++) {
        VALUE size = rb_hash_lookup(constants, rb_id2sym(rb_intern(names[i])));
        if (FIXNUM_P(size)) objects.slot = NUM2SIZET(size);
    }
    if (!objects.slot) objects.slot = 40;
}

static void refuse(const char *reason)
{
    ps_info_states(ps_objects_feature.probes, PS_STATE_REFUSED, reason);
}

void ps_objects_forbid_newobj(void)
{
    if (objects.on) rb_tracepoint_disable(objects.hook);
    refuse(ps_newobj_reason());
}

static bool is_refused(void)
{
    /* Allocation hooks alone crash these versions. */
    const char *crashing[] = {"3.2.0", "3.2.1", "3.2.2"};
    for (size_t i = 0; i < sizeof(crashing) / sizeof(crashing[0]); i++) {
        if (strcmp(ruby_version, crashing[i]) != 0) continue;
        refuse("allocation hooks crash Ruby 3.2.0 to 3.2.2; upgrade to 3.2.3");
        return true;
    }
    if (!ps_newobj_allowed()) refuse(ps_newobj_reason());
    return !ps_newobj_allowed();
}

static void forget(void)
{
    ps_known_clear(&objects.known);
}

static bool hook(ps_probe_set wanted)
{
    bool on = (wanted & ps_objects_feature.probes) && !is_refused();
    if (on == objects.on) return true;
    if (on) rb_tracepoint_enable(objects.hook);
    else rb_tracepoint_disable(objects.hook);
    objects.on = on;
    return true;
}

const ps_hooks ps_objects_hooks = {
    .feature = &ps_objects_feature,
    .hook = hook,
    .forget = forget,
};

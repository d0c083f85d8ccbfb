/*
 * Allocations. There are two ways to see them:
 *
 *   tracer     PyRefTracer, from 3.13 on, when no other tool has its only place: each object with
 *              its class, also an object from a free list. Its size is that of the block that the
 *              allocator gave a moment ago, or the class's.
 *   allocator  the OBJ domain, wrapped as tracemalloc does it: blocks by their size. What a free
 *              list gives again (floats, tuples, lists, dicts in a steady state) is not seen, nor
 *              is a class. The states of the probes say so.
 *
 * A row is keyed by the class's name (or the size) and the line. The hook makes a name when a class
 * is met at an instruction for the first time. Neither class nor code is kept alive (places.c).
 *
 * Rules inside the hooks: any thread may run them, with the GIL; Python may allocate nothing.
 */
#include "hooks.h"

#include <stdio.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "features/objects.h"
#include "table/flush.h"
#include "usdt/info.h"

/* From one check for our hooks to the next. */
enum { CHECK_NS = 1000000000 };

static struct {
    bool on;
    bool tracer;          /* the way in use */
    ps_known_table known; /* class or size, and instruction -> row */
    PyInterpreterState *main;
    uint64_t checked_ns;
} objects;

/* Up to 512 bytes in steps of 16, as in Python's own allocator; then powers of two. */
static size_t size_class(size_t size)
{
    size_t bound = 512;
    if (size <= bound) return size ? (size + 15) & ~(size_t)15 : 16;
    while (bound < size && bound <= SIZE_MAX / 4) bound *= 2;
    return bound;
}

static const ps_site *name_it(PyTypeObject *type, size_t bound, PyCodeObject *code, int at)
{
    int line = code ? PyCode_Addr2Line(code, at) : 0;
    /* Instructions that the compiler put before the first line have no line. */
    if (code && line <= 0) line = code->co_firstlineno;
    if (type) return ps_type_site(type, code, line);
    char size[40];
    snprintf(size, sizeof(size), "(<= %zu bytes)", bound);
    return ps_text_site(size, code, line);
}

/* type NULL: the row of a size. */
static ps_row *find_row(PyTypeObject *type, size_t size, PyCodeObject *code, int at)
{
    /*
     * The instruction needs 32 bits. A size that does not fit into the other 32 is never allocated.
     */
    size_t bound = type ? 0 : size_class(size);
    int64_t number = (int64_t)((uint64_t)bound << 32 | (uint32_t)at);
    ps_row *row = ps_known_of(&objects.known, type, code, number);
    if (PS_LIKELY(row != NULL)) return row;
    const ps_site *site = name_it(type, bound, code, at);
    row = ps_table_row_at(&ps_object_table, site);
    if (!ps_row_is_overflow(&ps_object_table, row)) ps_know(&objects.known, type, code, number, row);
    return row;
}

static void count(PyTypeObject *type, size_t size)
{
    PyThreadState *thread = ps_thread_state();
    /* Threads of other interpreters may run at the same time. */
    if (PS_UNLIKELY(!thread || thread->interp != objects.main)) return;
    struct ps_walked_frame *frame = ps_walk_from(thread);
    PyCodeObject *code = NULL;
    while (frame && !(code = ps_walked_code(frame))) frame = ps_walk_on(frame);
    int at = code ? ps_walked_instruction(frame) : 0;
    ps_objects_add(find_row(type, size, code, at), size, ps_requests_counted());
}

/* ---- The allocator ---- */

static struct {
    PyMemAllocatorEx below; /* the allocator that ours wraps */
    bool in;                /* as far as we know: others may wrap ours, or put back what was there before */
    bool counts;            /* else it notes sizes for the tracer, or does nothing */
    bool reached;           /* set at each allocation */
    char *block;            /* the last block, and its size */
    size_t size;
} allocator;

static void note(void *block, size_t size)
{
    allocator.reached = true;
    if (!block || !objects.on) return;
    allocator.block = block;
    allocator.size = size;
    if (!allocator.counts) return;
    ps_look look = ps_look_begin(PS_LOOK_OBJECT);
    count(NULL, size);
    ps_look_end(look);
}

static void *on_malloc(void *unused, size_t size)
{
    void *block = allocator.below.malloc(allocator.below.ctx, size);
    note(block, size);
    return block;
}

static void *on_calloc(void *unused, size_t elements, size_t size)
{
    void *block = allocator.below.calloc(allocator.below.ctx, elements, size);
    note(block, elements * size); /* `below` has checked the product */
    return block;
}

/* A block that grows is not new. */
static void *on_realloc(void *unused, void *block, size_t size)
{
    void *moved = allocator.below.realloc(allocator.below.ctx, block, size);
    if (!block) note(moved, size);
    return moved;
}

static void on_free(void *unused, void *block)
{
    allocator.below.free(allocator.below.ctx, block);
}

static PyMemAllocatorEx top(void)
{
    PyMemAllocatorEx current;
    PyMem_GetAllocator(PYMEM_DOMAIN_OBJ, &current);
    return current;
}

/* Is our allocator called, perhaps by another tool's that wraps it? */
static bool is_reached(void)
{
    allocator.reached = false;
    PyObject_Free(PyObject_Malloc(1));
    return allocator.reached;
}

static void hook_allocator(void)
{
    if (allocator.in && is_reached()) return;
    allocator.below = top();
    PyMemAllocatorEx ours = {NULL, on_malloc, on_calloc, on_realloc, on_free};
    PyMem_SetAllocator(PYMEM_DOMAIN_OBJ, &ours);
    allocator.in = true;
}

/*
 * True also for subinterpreters that share the GIL. The main interpreter is the first that is made,
 * and new ones are put in front of it.
 */
static bool has_subinterpreters(void)
{
    return PyInterpreterState_Head() != PyInterpreterState_Main();
}

/*
 * If another tool wraps ours, ours stays and does nothing: the tool would put it back when it
 * leaves. It also stays while subinterpreters may allocate.
 */
static void unhook_allocator(void)
{
    if (allocator.in && top().malloc == on_malloc && !has_subinterpreters()) {
        PyMem_SetAllocator(PYMEM_DOMAIN_OBJ, &allocator.below);
        allocator.in = false;
    }
    allocator.block = NULL;
}

/* ---- The tracer ---- */

#if PS_HAVE_REF_TRACER

/*
 * The size when no block is known: what the class says, plus the items of a tuple, the only reused
 * objects that have items.
 */
static size_t size_of_class(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    size_t size = (size_t)type->tp_basicsize + (PyType_IS_GC(type) ? 2 * sizeof(void *) : 0);
    if (PyTuple_Check(object)) size += (size_t)Py_SIZE(object) * sizeof(void *);
    return size;
}

/* Called by Python for each object that is made or freed, with the GIL. */
static int on_reference(PyObject *object, PyRefTracerEvent event, void *unused)
{
    if (event != PyRefTracer_CREATE) return 0;
    ps_look look = ps_look_begin(PS_LOOK_OBJECT);
    /* Before the object come the collector's fields and pointers to a dict and weak references. */
    size_t before = (size_t)((char *)object - allocator.block);
    bool fresh = allocator.block && before <= 8 * sizeof(void *);
    size_t size = fresh ? allocator.size : size_of_class(object);
    allocator.block = NULL;
    count(Py_TYPE(object), size);
    ps_look_end(look);
    return 0;
}

/* False when another tool has the only place. */
static bool hook_tracer(void)
{
    PyRefTracer current = PyRefTracer_GetTracer(NULL);
    if (current) return current == on_reference;
    if (PyRefTracer_SetTracer(on_reference, NULL) == 0) return true;
    PyErr_Clear();
    return false;
}

static void unhook_tracer(void)
{
    if (PyRefTracer_GetTracer(NULL) == on_reference && PyRefTracer_SetTracer(NULL, NULL) != 0) PyErr_Clear();
}

static bool has_tracer(void)
{
    return PyRefTracer_GetTracer(NULL) == on_reference;
}

#define WHY_NO_TRACER "another tool has Python's reference tracer"
#else
static bool hook_tracer(void)
{
    return false;
}

static void unhook_tracer(void) {}

static bool has_tracer(void)
{
    return false;
}

#define WHY_NO_TRACER "CPython reports classes from 3.13 on"
#endif

/* ---- On and off ---- */

static void hook(void)
{
    static const char by_size[] =
        WHY_NO_TRACER ": counts blocks by size; what is reused (float, tuple, list, dict) is missed";
    _Static_assert(sizeof(by_size) <= sizeof(probescope_info.probes[0].reason), "it would be cut");
    objects.tracer = hook_tracer();
    hook_allocator();
    allocator.counts = !objects.tracer;
    if (!objects.tracer) ps_info_states(ps_objects_feature.probes, PS_STATE_DEGRADED, by_size);
}

/*
 * Another tool may have come, or gone and put back what it had found. Then the hooks are put in
 * again.
 */
static bool needs_upkeep(void)
{
    if (!PS_READ(objects.on)) return false;
    return ps_monotonic_ns() - PS_READ(objects.checked_ns) >= CHECK_NS;
}

static void upkeep(void)
{
    if (!objects.on) return;
    if ((objects.tracer && !has_tracer()) || !is_reached()) hook();
    PS_WRITE(objects.checked_ns, ps_monotonic_ns());
}

static void forget(void)
{
    ps_known_clear(&objects.known);
}

static const char *refused(void)
{
    return PS_HAVE_GIL ? NULL
                       : "this Python runs without a GIL: its allocator cannot be changed while it runs";
}

static bool switch_hooks(ps_probe_set wanted)
{
    bool on = (wanted & ps_objects_feature.probes) != 0;
    if (on == objects.on) return true;
    if (on && has_subinterpreters()) {
        ps_info_states(
            ps_objects_feature.probes, PS_STATE_REFUSED,
            "there are subinterpreters: they share the allocator, which cannot be changed while they run");
    } else if (on) {
        objects.main = PyInterpreterState_Main();
        hook();
        PS_WRITE(objects.on, true);
    } else {
        PS_WRITE(objects.on, false);
        unhook_tracer();
        unhook_allocator();
    }
    return true;
}

const ps_hooks ps_objects_hooks = {
    .feature = &ps_objects_feature,
    .hook = switch_hooks,
    .refused = refused,
    .forget = forget,
    .needs_upkeep = needs_upkeep,
    .upkeep = upkeep,
};

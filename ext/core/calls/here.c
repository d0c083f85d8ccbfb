#include "calls/here.h"

#include <string.h>

#include "base/atomic.h"
#include "base/fork.h"
#include "base/memory.h"
#include "base/thread_id.h"
#include "usdt/info.h"
#include "usdt/probe.h"
#include "usdt/probe_groups.h"

enum { PER_CHUNK = 128, CHUNKS = PS_HERE_RECORDS / PER_CHUNK };

_Static_assert(offsetof(ps_here, layout) == 8 && offsetof(ps_here, epoch) == 16 &&
                   offsetof(ps_here, native_where) == 24 && offsetof(ps_here, native) == 32 &&
                   offsetof(ps_here, flags) == 40 && offsetof(ps_here, names) == 48 &&
                   offsetof(ps_here, requests) == 56,
               "probescope.yml tells these places");
_Static_assert(sizeof(ps_frame) < 256 && sizeof(ps_stack) < 256 && offsetof(ps_row, site) < 256,
               "a place has 8 bits in the layout");

uint64_t ps_here_untold;

static struct {
    ps_here *chunk[CHUNKS];
    uint32_t made;  /* records that threads have or had */
    uint32_t given; /* those of them that no thread has now */
    uint32_t next;  /* where the search for one of these begins */
} pool;

static uint32_t current_round = 1;
static uint64_t layout = PS_HERE_LAYOUT; /* of every record, as these */
static uint64_t flags;
static uint64_t requests;
static struct {
    uint64_t address, bytes;
} vm_lock;
static struct {
    uint64_t code, lines, object;
} offsets;

static __thread uint32_t told; /* current_round when the thread last told where its record is */

/* ---- The pool ---- */

static ps_here *record(uint32_t number)
{
    return &pool.chunk[number / PER_CHUNK][number % PER_CHUNK];
}

/* Called by the C library when a thread ends that has a record. No lock is held. */
static void give_back(void *of_thread)
{
    ps_here *here = of_thread;
    told = 0;
    ps_record_clear(here, true);
    PS_WRITE_RELEASE(here->used, 0);
    PS_FETCH_ADD(pool.given, 1);
}

/* A record that a thread gave back. */
static ps_here *take_given(void)
{
    for (uint32_t tries = 0; PS_READ(pool.given) && tries < pool.made; tries++) {
        ps_here *here = record(pool.next++ % pool.made);
        uint32_t nobody = 0;
        if (PS_READ(here->used) || !PS_REPLACE(here->used, nobody, 1)) continue;
        PS_FETCH_ADD(pool.given, -1);
        return here;
    }
    return NULL;
}

/* The first of 128 records, on a cache line. They are never freed. */
static ps_here *new_chunk(void)
{
    char *memory = ps_memory_take((PER_CHUNK + 1) * sizeof(ps_here));
    return memory ? (ps_here *)(memory + -(uintptr_t)memory % sizeof(ps_here)) : NULL;
}

static ps_here *take_new(void)
{
    uint32_t chunk = pool.made / PER_CHUNK;
    if (chunk == CHUNKS || !(pool.chunk[chunk] || (pool.chunk[chunk] = new_chunk()))) return NULL;
    ps_here *here = record(pool.made++);
    here->layout = layout;
    here->epoch = &ps_stack_epoch;
    here->names = PS_HERE_NAMES;
    here->used = 1;
    return here;
}

static ps_here *take(void)
{
    ps_here *here = take_given();
    if (!here) here = take_new();
    if (here) here->flags = flags;
    if (here) PS_WRITE(here->requests, requests);
    if (here && !ps_record_keep(here)) {
        give_back(here);
        here = NULL;
    }
    if (here) return here;
    PS_ADD(ps_here_untold, 1);
    ps_info_degrade(PS_BIT(FUNCTION__HERE), "some threads have no record: PROBESCOPE_MEMORY is used up, or "
                                            "there are more than 32,768 threads");
    return NULL;
}

/* The child's only thread keeps its record. */
static void after_fork_in_child(void)
{
    const ps_here *mine = ps_record();
    for (uint32_t i = 0; i < pool.made; i++) {
        ps_here *here = record(i);
        if (here == mine) continue;
        ps_record_clear(here, true);
        here->used = 0;
    }
    pool.given = pool.made - (mine != NULL);
    ps_here_tell_again();
}
PS_FORK_STEP(PS_FORK_HERE, .in_child = after_fork_in_child)

/* ---- What a thread tells ---- */

static PS_APART void tell(const ps_here *here)
{
    struct ps_more_function__here more = {
        .record = (uintptr_t)here,
        .layout = here->layout,
        .epoch = (uintptr_t)here->epoch,
        .thread_id = ps_thread_id(),
        .gil = vm_lock.address,
        .gil_bytes = vm_lock.bytes,
        .vm_code = offsets.code,
        .vm_lines = offsets.lines,
        .vm_object = offsets.object,
    };
    ps_fire_function__here(&more);
}

static void set(ps_stack *stack, const uint64_t *where)
{
    uint32_t round = PS_READ(current_round);
    ps_here *here = ps_record();
    if (!here) {
        if (!stack || told == round) return;
        told = round;
        here = take();
        if (!here) return;
        told = 0;
    }
    if (flags & PS_HERE_UNKNOWN) stack = NULL;
    if (where) ps_record_of(here, where);
    if (stack) {
        /* A fiber may have run on another thread, whose record still names it. */
        if (stack->here && stack->here != here) ps_record_forget(stack->here, stack);
        stack->here = here;
    }
    PS_SIGNAL_FENCE();
    ps_record_set(here, stack);
    if (told == round || !PS_ENABLED(FUNCTION__HERE)) return;
    told = round;
    if (flags & PS_HERE_UNKNOWN)
        ps_info_degrade(PS_BIT(FUNCTION__HERE),
                        "it leads to no function: threads of the VM share native threads, "
                        "and this VM does not tell which one runs");
    tell(here);
}

void ps_here_set(ps_stack *stack)
{
    set(stack, NULL);
}

void ps_here_set_shared(ps_stack *stack, const uint64_t *where)
{
    set(stack, where);
}

static void clear(bool ours_too)
{
    for (uint32_t i = 0; i < pool.made; i++) ps_record_clear(record(i), ours_too);
    PS_FETCH_ADD(ps_stack_looks, 1);
}

void ps_here_clear(void)
{
    clear(false);
}

/* ---- What records name while the library works ---- */

static struct {
    ps_frame frame;
    ps_row row;
    ps_site site;
    char name[sizeof(PS_HERE_OURS)];
    char nothing[8];
} ours;

/* Written each time: a program reads only pages that are in memory. */
static void prepare_ours(void)
{
    memcpy(ours.name, PS_HERE_OURS, sizeof(PS_HERE_OURS));
    ours.nothing[0] = '\0';
    ours.site = (ps_site){.name = ours.name, .file = ours.nothing, .path = ours.nothing};
    ours.row.site = &ours.site;
    ours.frame.row = &ours.row;
    ps_stack_ours.frames = &ours.frame;
    ps_stack_ours.depth = ps_stack_ours.capacity = 1;
}

/* ---- On and off ---- */

void ps_here_listen(bool on)
{
    if (on == ps_here_on) return;
    if (on && !ps_record_prepare(&ps_stack_ours, give_back)) {
        ps_info_state(PS_PROBE_FUNCTION__HERE, PS_STATE_REFUSED,
                      "the process has no pthread key left, by which the end of a thread is known");
        return;
    }
    if (on) prepare_ours();
    /* Nothing sets what records name while no tracer listens, so they name nothing meanwhile. */
    PS_WRITE(ps_here_on, on);
    clear(true);
    ps_here_tell_again();
}

/* ---- Requests ---- */

bool ps_here_requests;

void ps_here_listen_to_requests(bool on)
{
    static uint32_t round; /* never 0 while it is told */
    on = on && ps_here_on;
    if (on == ps_here_requests) return;
    if (on && !++round) round = 1;
    requests = on ? PS_HERE_REQUESTS | round : 0;
    for (uint32_t i = 0; i < pool.made; i++) PS_WRITE(record(i)->requests, requests);
    PS_WRITE(ps_here_requests, on);
    PS_FETCH_ADD(ps_stack_looks, 1);
}

/* In an order in which a program of this thread reads a whole answer, or none. */
void ps_here_request(ps_stack *stack, const ps_site *request, const uint64_t *version)
{
    PS_WRITE(stack->request_round, 0);
    PS_SIGNAL_FENCE();
    PS_WRITE(stack->request, request);
    PS_WRITE(stack->request_where, version ? version : &stack->request_version);
    PS_WRITE(stack->request_version, version ? *version : 1);
    PS_SIGNAL_FENCE();
    PS_WRITE(stack->request_round, (uint32_t)requests);
}

void ps_here_tell_again(void)
{
    PS_FETCH_ADD(current_round, 1);
    PS_FETCH_ADD(ps_stack_looks, 1);
}

void ps_here_share_threads(bool known)
{
    if (known) layout |= PS_HERE_CHECKED;
    else flags |= PS_HERE_UNKNOWN;
}

void ps_here_lock_is(const void *address, size_t bytes)
{
    vm_lock.address = (uintptr_t)address;
    vm_lock.bytes = bytes;
}

void ps_here_lines_are(uint64_t code, uint64_t lines, uint64_t object)
{
    offsets.code = code;
    offsets.lines = lines;
    offsets.object = object;
}

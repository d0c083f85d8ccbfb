#include "features/samples.h"

#include <pthread.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fork.h"
#include "base/hash.h"
#include "base/memory.h"
#include "features/call_paths.h"
#include "features/requests.h"
#include "features/thread_clocks.h"
#include "table/flush.h"
#include "usdt/info.h"
#include "usdt/probe.h"
#include "usdt/probe_groups.h"

static ps_table by_route;
ps_table ps_sample_table = {.routes = &by_route};

/*
 * When a request waited longer than this while the CPU clock stood still, the process was not on
 * the CPU: it was asleep or preempted. A sample of a preempted process would show where the kernel
 * takes the CPU away, which is mostly at the end of a system call. On a busy machine a method that
 * reads the clock showed 16-31 % instead of 1.
 */
#define LATE_NS 100000u

struct stack {
    uint64_t id;
    uint32_t count;
    struct {
        const ps_site *site;
        uint32_t line;
    } frame[PS_SAMPLE_FRAMES_MAX];
};

/*
 * The VM adds stacks, and the watcher fires them. The watcher takes the whole set away first, so
 * that the VM does not wait while the stacks are fired.
 */
struct stack_set {
    uint32_t count;
    struct stack *stack[PS_STACKS_MAX];
};
static struct stack_set seen;
static pthread_mutex_t seen_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    uint64_t asked_ns, asked_cpu_ns; /* the tick that waits for its sample; 0: none does */
    uint64_t tick_ns, tick_cpu_ns;   /* the last tick; 0 before the first */
    uint64_t unseen_ns;              /* CPU time without a sample; less than PS_SAMPLE_NS */
    uint64_t weighed_cpu_ns;         /* CPU time up to which samples have been weighed */
} sampling;

/* Takes the whole set. The caller frees the stacks. */
static struct stack_set take_stacks(void)
{
    pthread_mutex_lock(&seen_lock);
    struct stack_set taken = seen;
    seen.count = 0;
    pthread_mutex_unlock(&seen_lock);
    return taken;
}

static void forget_stacks(void)
{
    struct stack_set stale = take_stacks();
    for (uint32_t i = 0; i < stale.count; i++) ps_memory_give(stale.stack[i], sizeof(*stale.stack[i]));
}

void ps_samples_end(void)
{
    forget_stacks();
    ps_thread_clocks_forget();
}

void ps_samples_begin(void)
{
    /* Drops what an earlier listener, or the parent of this process, left. */
    ps_samples_end();
    PS_WRITE(sampling.weighed_cpu_ns, ps_process_cpu_ns());
    PS_WRITE(sampling.asked_ns, 0);
    sampling.tick_ns = sampling.unseen_ns = 0;
}

/*
 * Counts missing samples: by the CPU time that the process used while a request waited, or while
 * the watcher had no CPU and did not tick. Time in which the process slept, or other processes had
 * the CPU, is no loss.
 */
static void count_missed(uint64_t now, uint64_t cpu, bool waiting)
{
    uint64_t elapsed = now - sampling.tick_ns, used = cpu - sampling.tick_cpu_ns;
    if (used > elapsed) used = elapsed; /* on several CPUs */
    if (!sampling.tick_ns) used = 0;
    if (waiting) sampling.unseen_ns += used;
    else if (used > 2 * PS_SAMPLE_NS) sampling.unseen_ns += used - PS_SAMPLE_NS;
    sampling.tick_ns = now;
    sampling.tick_cpu_ns = cpu;
    PS_ADD(ps_samples_missed, sampling.unseen_ns / PS_SAMPLE_NS);
    sampling.unseen_ns %= PS_SAMPLE_NS;
}

void ps_samples_degrade(ps_probe_set probes, const char *reason)
{
    probes &= ps_samples_feature.probes;
    if (!reason) probes &= ps_info_probes_in(PS_STATE_DEGRADED);
    ps_info_states(probes, reason ? PS_STATE_DEGRADED : PS_STATE_ON, reason);
}

bool ps_samples_tick(void)
{
    uint64_t now = ps_monotonic_ns(), cpu = ps_process_cpu_ns();
    bool waiting = PS_READ(sampling.asked_ns) != 0;
    count_missed(now, cpu, waiting);
    if (waiting) return true;
    if (!ps_thread_clocks_tick()) return false;
    PS_WRITE(sampling.asked_cpu_ns, cpu);
    PS_WRITE_RELEASE(sampling.asked_ns, now);
    return true;
}

uint64_t ps_samples_weigh(void)
{
    uint64_t asked = PS_READ_ACQUIRE(sampling.asked_ns);
    if (!asked) return 0;
    uint64_t waited = ps_monotonic_ns() - asked, cpu = ps_process_cpu_ns();
    bool slept = waited > LATE_NS && cpu - PS_READ(sampling.asked_cpu_ns) < waited / 2;
    PS_WRITE_RELEASE(sampling.asked_ns, 0);
    /*
     * CPU time that the process used before it slept is added to the next sample that counts. On
     * average that is fair.
     */
    if (slept) return 0;
    uint64_t weight = cpu - PS_READ(sampling.weighed_cpu_ns);
    PS_WRITE(sampling.weighed_cpu_ns, cpu);
    return weight ? weight : 1;
}

static uint64_t stack_hash(const ps_sample_frame *frames, uint32_t count)
{
    uint64_t hash = 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < count; i++) {
        hash ^= (uint64_t)(uintptr_t)frames[i].row->site ^ frames[i].line;
        hash *= 0xbf58476d1ce4e5b9u;
        hash ^= hash >> 31;
    }
    return hash;
}

/*
 * Never waits. While the watcher takes the set away, the stack is left out. Its next sample stores
 * it again.
 */
static void keep_stack(uint64_t id, const ps_sample_frame *frames, uint32_t count)
{
    if (pthread_mutex_trylock(&seen_lock) != 0) return;
    uint32_t i = 0;
    while (i < seen.count && seen.stack[i]->id != id) i++;
    if (i == seen.count && i < PS_STACKS_MAX) {
        struct stack *stack = ps_memory_take(sizeof(*stack));
        if (stack) {
            stack->id = id;
            stack->count = count;
            for (uint32_t f = 0; f < count; f++) {
                stack->frame[f].site = frames[f].row->site;
                stack->frame[f].line = frames[f].line;
            }
            seen.stack[seen.count++] = stack;
        }
    }
    pthread_mutex_unlock(&seen_lock);
}

/*
 * A function's self time in one builtin has a row of its own, which is fired as one more row of
 * that function. The sum of a function's rows is its whole self time. When there is no memory for
 * such a row, the function's own row counts.
 */
static ps_row *row_in(ps_row *function, const ps_row *builtin)
{
    if (!builtin || ps_row_is_overflow(&ps_sample_table, function) ||
        ps_row_is_overflow(&ps_sample_table, builtin))
        return function;
    ps_row *row = ps_table_try_row(&ps_sample_table, (uintptr_t)function, (uintptr_t)builtin, 0);
    if (!row) return function;
    if (!row->site) {
        row->at[PS_SAMPLE_BUILTIN] = builtin->site;
        PS_WRITE_RELEASE(row->site, function->site);
    }
    return row;
}

ps_row *ps_samples_row_of_collections(void)
{
    static const char name[] = "(garbage collection)";
    return ps_table_row_at(&ps_sample_table, ps_site_intern(name, sizeof(name) - 1, "", 0, 0));
}

static ps_path *path_of(const ps_sample_frame *frames, uint32_t count, bool is_cut)
{
    static const char deeper[] = "(deeper than 256 frames)";
    _Static_assert(PS_SAMPLE_FRAMES_MAX == 256, "the text says so");
    ps_path *path = NULL;
    if (is_cut) path = ps_path_child(NULL, ps_site_intern(deeper, sizeof(deeper) - 1, "", 0, 0), 0, true);
    for (uint32_t i = count; i-- > 0;) {
        const ps_site *site = frames[i].row->site;
        path = ps_path_child(path, site, frames[i].line, *site->name == '(' && !*site->path);
    }
    return path;
}

void ps_samples_add(const ps_sample_frame *frames, uint32_t count, uint32_t leaf, const ps_row *builtin,
                    uint64_t weight, uint64_t thread_id, ps_counted *request, bool is_cut)
{
    if (!count) return;
    PS_ADD(ps_samples_taken, 1);
    ps_row *self = frames[leaf].row;
    uint64_t *counted = ps_routes_row(&ps_sample_table, row_in(self, builtin), request)->count;
    PS_ADD(counted[PS_SAMPLE_SELF], weight);
    PS_ADD(counted[PS_SAMPLE_SELF_SAMPLES], 1);
    for (uint32_t i = 0; i < count; i++) {
        ps_row *row = frames[i].row;
        if (row->sample.seen == ps_samples_taken) continue;
        row->sample.seen = ps_samples_taken;
        counted = ps_routes_row(&ps_sample_table, row, request)->count;
        PS_ADD(counted[PS_SAMPLE_TOTAL], weight);
        PS_ADD(counted[PS_SAMPLE_TOTAL_SAMPLES], 1);
    }
    if (PS_ENABLED(STACK__CPU) && ps_paths_are_on())
        ps_paths_add(PS_PATH_CPU, path_of(frames, count, is_cut), thread_id, ps_request_label(request), 1,
                     weight, 1);
    if (!PS_ENABLED(SAMPLE) && !PS_ENABLED(SAMPLE__FRAME)) return;
    uint64_t id = stack_hash(frames, count);
    if (PS_ENABLED(SAMPLE__FRAME)) keep_stack(id, frames, count);
    if (PS_ENABLED(SAMPLE)) {
        struct ps_more_sample more = {.path = self->site->path, .thread_id = thread_id};
        ps_fire_sample(self->site->name, self->site->file, frames[leaf].line, weight, id, &more);
    }
}

/* Fires sample__frame for each stack of the last second, and forgets the stacks. */
static uint64_t fire_stacks(void)
{
    struct stack_set mine = take_stacks();
    uint64_t fired = 0;
    for (uint32_t i = 0; i < mine.count; i++) {
        struct stack *stack = mine.stack[i];
        for (uint32_t f = 0; f < stack->count; f++) {
            const ps_site *site = stack->frame[f].site;
            struct ps_more_sample__frame more = {.path = site->path};
            ps_fire_sample__frame(site->name, site->file, stack->frame[f].line, stack->id, f, &more);
            fired++;
        }
        ps_memory_give(stack, sizeof(*stack));
    }
    return fired;
}

/* The weights of samples are CPU time in ns, not ticks. */
static bool fire_row(ps_row *row, const ps_row_subject *of)
{
    const ps_site *site = of->site, *const *at = of->places->at;
    uint64_t total_samples = ps_row_take(row, PS_SAMPLE_TOTAL_SAMPLES),
             self_samples = ps_row_take(row, PS_SAMPLE_SELF_SAMPLES);
    if (!total_samples && !self_samples) return false;
    const char *builtin = ps_site_or_none(&at[PS_SAMPLE_BUILTIN])->name;
    struct ps_more_sample__stats more = {
        .path = site->path,
        .self_samples = self_samples,
        .total_samples = total_samples,
        .request = of->request->name,
        .request_number = of->request->line,
        .builtin = builtin,
        .builtin_number = *builtin ? ps_number_of_text(builtin, strlen(builtin)) : 0,
    };
    uint64_t self = ps_row_take(row, PS_SAMPLE_SELF);
    ps_fire_sample__stats(site->name, site->file, site->line, self, ps_row_take(row, PS_SAMPLE_TOTAL), &more);
    return true;
}

void ps_samples_after_fork(void)
{
    pthread_mutex_init(&seen_lock, NULL);
    ps_thread_clocks_after_fork();
    ps_samples_begin();
}
PS_FORK_STEP(PS_FORK_SAMPLES, .in_child = ps_samples_after_fork)

const ps_feature ps_samples_feature = {
    .probes = PS_BIT(SAMPLE) | PS_BIT(SAMPLE__STATS) | PS_BIT(SAMPLE__FRAME) | PS_BIT(STACK__CPU),
    .table = &ps_sample_table,
    .row_probe = PS_PROBE_SAMPLE__STATS,
    .events = PS_SAMPLE_TOTAL_SAMPLES,
    .maximum = -1,
    .fire_row = fire_row,
    .event_probe = PS_PROBE_SAMPLE__FRAME,
    .fire_events = fire_stacks,
    .forget = forget_stacks,
};

#include "features/slow_calls.h"

#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread_id.h"
#include "base/thread_record.h"
#include "features/requests.h"
#include "usdt/probe.h"
#include "usdt/probe_groups.h"

enum { MS = 1000000 };

uint64_t ps_slow_threshold = UINT64_MAX;

void ps_slow_listen(ps_probe_set wanted)
{
    uint64_t least = UINT64_MAX;
    if (wanted & PS_BIT(FUNCTION__SLOW100MS)) least = ps_ns_to_ticks(100 * MS);
    if (wanted & PS_BIT(FUNCTION__SLOW10MS)) least = ps_ns_to_ticks(10 * MS);
    if (wanted & PS_BIT(FUNCTION__SLOW1MS)) least = ps_ns_to_ticks(1 * MS);
    ps_slow_threshold = least;
}

/*
 * Differs from process to process. A forked child has copies of its parent's open calls. With its
 * own seed it gives them other ids.
 */
static uint64_t seed(void)
{
    static uint64_t value;
    static pid_t of;
    bool ours = ps_ours_begin();
    pid_t pid = getpid();
    if (of != pid) {
        if (getrandom(&value, sizeof(value), GRND_NONBLOCK) != sizeof(value))
            value ^= ps_monotonic_ns() ^ (uint64_t)pid << 32 ^ ps_clock_counter();
        of = pid;
    }
    ps_ours_end(ours);
    return value;
}

/*
 * The id that belongs to the number of a frame or finished call. SplitMix64 (Steele, Lea, Flood
 * 2014) gives different numbers different ids.
 */
static uint64_t span_id(uint64_t *number)
{
    static uint64_t last;
    if (!*number) *number = ++last;
    uint64_t id = seed() + *number * 0x9e3779b97f4a7c15u;
    id = (id ^ (id >> 30)) * 0xbf58476d1ce4e5b9u;
    id = (id ^ (id >> 27)) * 0x94d049bb133111ebu;
    id ^= id >> 31;
    return id ? id : 1; /* 0 is no id */
}

/* The three probes differ in name only. */
#define FIRE(threshold, probe, ms)                                                                           \
    if (PS_ENABLED(threshold) && elapsed >= (uint64_t)(ms)*MS) {                                             \
        struct ps_more_##probe more = {                                                                      \
            .path = site->path,                                                                              \
            .thread_id = thread_id,                                                                          \
            .outcome = (uint64_t)outcome,                                                                    \
            .traceparent = traceparent,                                                                      \
            .span_id = id,                                                                                   \
            .parent_id = parent_id,                                                                          \
            .request_id = request_id,                                                                        \
        };                                                                                                   \
        ps_fire_##probe(site->name, site->file, site->line, elapsed, self, &more);                           \
    }

void ps_slow_fire(const ps_row *row, ps_stack *stack, const ps_call *call, int outcome)
{
    ps_span span;
    char traceparent[PS_TRACEPARENT_BUFFER];
    ps_span_current(&span, PS_SLOW_PROBES);
    ps_span_text(traceparent, &span);
    const ps_site *site = ps_row_is_overflow(&ps_function_table, row) ? &ps_site_overflow : row->site;
    uint64_t number = call->number, elapsed = ps_ticks_to_ns(call->elapsed);
    uint64_t waited = call->waited < call->self ? call->waited : call->self;
    uint64_t self = ps_ticks_to_ns(call->self - waited);
    uint64_t id = span_id(&number), thread_id = ps_thread_id(), request_id = ps_request_id();
    uint64_t parent_id = call->depth ? span_id(&stack->frames[call->depth - 1].number) : 0;
    FIRE(FUNCTION__SLOW1MS, function__slow1ms, 1)
    FIRE(FUNCTION__SLOW10MS, function__slow10ms, 10)
    FIRE(FUNCTION__SLOW100MS, function__slow100ms, 100)
}

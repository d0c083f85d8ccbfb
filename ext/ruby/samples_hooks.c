/*
 * Samples. A thread's stack is read at the tick, on that thread (ticks.c). A job with the VM lock
 * then finds the rows of its frames here. Frames are ISeqs or method entries. What is known about a
 * frame is kept by the frame's address until the next collection.
 *
 * Where stacks cannot be read at the tick, the watcher triggers a job. Ruby runs the job at its
 * next check for interrupts, on the thread that holds the VM lock, and the sample is the stack at
 * that check. Time in C is charged to the code that makes the next check.
 *
 * A block counts as its method: a hot `each do ... end` shows as the method that contains it. The
 * self time of a builtin, a function written in C or in Ruby's own <internal:...> files, counts as
 * its caller's. Its total time remains its own.
 */
#include <ruby/ruby.h>
#include <ruby/debug.h>

#include <string.h>

#include "base/atomic.h"
#include "base/thread_id.h"
#include "features/samples.h"
#include "table/flush.h"
#include "table/table.h"
#include "compat.h"
#include "hooks.h"
#include "names.h"
#include "ticks.h"

static struct {
    bool on;
    ps_known_table known; /* frame -> row of ps_sample_table */
} sampling = {.known = PS_KNOWN_TABLE};

static bool is_builtin(const ps_site *site)
{
    return strncmp(site->path, "<cfunc>", 7) == 0 || strncmp(site->path, "<internal:", 10) == 0;
}

/*
 * The key is name, path and the method's line. Outside methods each block has a frame of its own,
 * so there the line is not in the key. The first frame seen gives the line, and callers are looked
 * at before callees.
 */
static ps_row *row_of_site(const ps_site *site, bool is_method)
{
    uintptr_t line = is_method ? (uintptr_t)site->line : 0;
    ps_row *row = ps_table_row(&ps_sample_table, (uintptr_t)site->name, (uintptr_t)site->path, line);
    if (row->site) return row;
    row->sample.builtin = is_builtin(site);
    PS_WRITE_RELEASE(row->site, site);
    return row;
}

static ps_row *find_row(VALUE frame)
{
    ps_key key = PS_KEY(0, frame, 0);
    ps_known *known = ps_known_find(&sampling.known, key);
    if (PS_LIKELY(known && ps_known_is_current(known, key))) return known->what;
    ps_row *row = known ? known->what : NULL;
    char name[PS_NAME_BUFFER];
    size_t size = ps_frame_name(name, frame);
    VALUE path = rb_profile_frame_path(frame), first = rb_profile_frame_first_lineno(frame);
    long line = FIXNUM_P(first) ? FIX2LONG(first) : 0;
    if (row && ps_ruby_site_is(row->site, name, size, path, line)) {
        ps_known_renew(known, key);
        return row;
    }
    row = row_of_site(ps_ruby_site(name, size, path, line), ps_frame_is_method(frame));
    if (!ps_row_is_overflow(&ps_sample_table, row)) ps_known_put(&sampling.known, key, row);
    return row;
}

/*
 * JIT code may not have written its position yet. Then rb_profile_frames() has no line for the
 * innermost frame. By the next check the position is written: if the stack is still the same, that
 * line counts.
 */
static int line_of_now(const ps_tick *tick)
{
    ps_tick now;
    if (tick->thread_id != ps_thread_id()) return 0;
    ps_tick_read(&now);
    bool same =
        now.count == tick->count && memcmp(now.frames, tick->frames, sizeof(*now.frames) * tick->count) == 0;
    return same ? rb_sourceline() : 0;
}

/*
 * at_tick: the stack was read at the tick. In a stack that is read at a check, the innermost frame
 * may be a builtin that only makes that check.
 */
static void add(ps_tick *tick, ps_counted *request, bool at_tick)
{
    ps_sample_frame sample[PS_SAMPLE_FRAMES_MAX];
    uint32_t first = tick->in_gc, count = tick->count, leaf = first;
    if (!count) return;
    bool wants_lines = ps_samples_want_lines(), is_cut = tick->is_cut;
    if (count > PS_SAMPLE_FRAMES_MAX - first) {
        count = PS_SAMPLE_FRAMES_MAX - first;
        is_cut = true;
    }
    for (uint32_t i = count; i-- > 0;) {
        ps_row *row = find_row(tick->frames[i]);
        int line = tick->lines[i];
        if (i == 0 && line <= 0 && wants_lines && !row->sample.builtin) line = line_of_now(tick);
        sample[first + i] = (ps_sample_frame){row, line > 0 ? (uint32_t)line : 0};
        if (!row->sample.builtin) leaf = first + i;
    }
    if (tick->in_gc) {
        sample[0] = (ps_sample_frame){ps_samples_row_of_collections(), 0};
        leaf = 0;
    }
    const ps_row *builtin = at_tick && leaf > 0 && sample[0].row->sample.builtin ? sample[0].row : NULL;
    ps_samples_add(sample, first + count, leaf, builtin, tick->weight, tick->thread_id, request, is_cut);
}

static void take_now(void)
{
    ps_tick now = {.weight = ps_samples_weigh(), .thread_id = ps_thread_id()};
    if (!now.weight) return;
    ps_tick_read(&now);
    add(&now, ps_requests_counted(), false);
}

void ps_sampling_take(void)
{
    if (!sampling.on || !ps_is_main_ractor()) return;
    ps_tick tick;
    while (ps_ticks_next(&tick)) add(&tick, ps_requests_counted_in(tick.request), true);
    if (!ps_ticks_are_on()) take_now();
}

bool ps_sampling_tick(uint64_t now, uint64_t due)
{
    static bool were_read;
    bool are_read = ps_ticks_are_on();
    if (were_read && !are_read) ps_samples_begin(); /* CPU time until now has been weighed */
    were_read = are_read;
    return ps_ticks_look(now) || (!are_read && ps_samples_tick());
}

/* Reads stacks at the tick where possible. False: it is not known yet whether that is possible. */
static bool choose_way(ps_probe_set wanted)
{
    bool later;
    const char *reason = ps_ticks_begin(&later);
    ps_ticks_by_request(!reason && wanted & PS_BIT(STATS__BY_REQUEST));
    if (!later) ps_samples_degrade(wanted, reason);
    return !later;
}

static bool hook(ps_probe_set wanted)
{
    bool on = (wanted & ps_samples_feature.probes) != 0;
    bool chosen = true;
    if (on) chosen = choose_way(wanted);
    else ps_ticks_end();
    if (!on && sampling.on) ps_ticks_forget();
    sampling.on = on;
    return chosen;
}

static void forget(void)
{
    ps_known_clear(&sampling.known);
}

const ps_hooks ps_samples_hooks = {
    .feature = &ps_samples_feature,
    .hook = hook,
    .forget = forget,
};

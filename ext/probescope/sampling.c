/*
 * Samples without signals: the watcher triggers a job, and Ruby runs it on the thread that holds the VM lock, which is the
 * one on the CPU. rb_profile_frames() reads the stack; frames are ISeqs or method entries, and what is known about each is
 * kept by its address until the next collection. None of them is marked: the entry of a singleton method holds its class, and
 * that the application's object.
 *
 * A block counts as its method: a hot `each do ... end` is to name the method it stands in. So does a function written in
 * C, or in Ruby's own <internal:...> files, as to self time: Ruby looks for jobs at certain places only, and the builtin in
 * which a sample lands is the one with the next such place, not the one that took the time (a CRC-32 in Ruby showed as 38 %
 * Integer#^). Builtins keep their total.
 */
#include <ruby/ruby.h>
#include <ruby/debug.h>

#include <string.h>

#include "atomic.h"
#include "compat.h"
#include "hooks.h"
#include "known.h"
#include "names.h"
#include "rows.h"
#include "samples.h"
#include "stats.h"

static struct {
    bool on;
    bool clearing;        /* the flush was reading the rows: clear them at the next try */
    ps_known_table known; /* frame -> row of ps_sampled */
} sampling;

static bool is_builtin(const ps_site *site)
{
    return strncmp(site->path, "<cfunc>", 7) == 0 || strncmp(site->path, "<internal:", 10) == 0;
}

/*
 * Keyed by name and path, and the line of the method. Outside methods there is a frame for each block: the first one seen gives the
 * line, and callers are looked at before callees.
 */
static ps_row *row_of_site(const ps_site *site, bool is_method)
{
    uintptr_t line = is_method ? (uintptr_t)site->line : 0;
    ps_row *row = ps_table_row(&ps_sampled, (uintptr_t)site->name, (uintptr_t)site->path, line);
    if (row->site) return row;
    row->builtin = is_builtin(site);
    PS_WRITE_RELEASE(row->site, site);
    return row;
}

static ps_row *find_row(VALUE frame)
{
    ps_known *known = ps_known_find(&sampling.known, PS_ADDRESS(frame), PS_NO_ADDRESS, PS_NO_ADDRESS);
    if (PS_LIKELY(known && ps_known_is_current(known))) return known->row;
    char name[PS_NAME_BUFFER];
    size_t size = ps_frame_name(name, frame);
    VALUE path = rb_profile_frame_path(frame), first = rb_profile_frame_first_lineno(frame);
    long line = FIXNUM_P(first) ? FIX2LONG(first) : 0;
    if (known && ps_ruby_site_is(known->row->site, name, size, path, line)) {
        ps_known_renew(known);
        return known->row;
    }
    ps_row *row = row_of_site(ps_ruby_site(name, size, path, line), ps_frame_is_method(frame));
    if (!ps_row_is_overflow(&ps_sampled, row))
        ps_known_put(&sampling.known, PS_ADDRESS(frame), PS_NO_ADDRESS, PS_NO_ADDRESS, row);
    return row;
}

void ps_sampling_take(void)
{
    if (!sampling.on || !ps_contexts_on_main_ractor()) return;
    uint64_t weight = ps_samples_weigh();
    if (!weight) return;
    VALUE frames[PS_SAMPLE_FRAMES_MAX];
    int lines[PS_SAMPLE_FRAMES_MAX];
    ps_sample_frame sample[PS_SAMPLE_FRAMES_MAX];
    int count = rb_profile_frames(0, PS_SAMPLE_FRAMES_MAX, frames, lines);
    int leaf = 0;
    for (int i = count - 1; i >= 0; i--) {
        sample[i] = (ps_sample_frame){find_row(frames[i]), lines[i] > 0 ? (uint32_t)lines[i] : 0};
        if (!sample[i].row->builtin) leaf = i;
    }
    ps_samples_add(sample, count > 0 ? (uint32_t)count : 0, (uint32_t)leaf, weight, ps_thread_id(),
                   ps_requests_counted());
}

bool ps_sampling_switch(uint32_t wanted)
{
    bool on = (wanted & PS_SAMPLE_PROBES) != 0;
    if (on == sampling.on && !sampling.clearing) return true;
    if (!on) {
        sampling.clearing = true;
        if (!ps_stats_try_lock()) return false;
        ps_table_clear(&ps_sampled);
        ps_stats_unlock();
        ps_known_clear(&sampling.known);
    }
    sampling.clearing = false;
    sampling.on = on;
    return true;
}

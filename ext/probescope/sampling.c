/*
 * Samples without signals: the watcher triggers a job, and Ruby runs it on the thread that holds the VM lock, which is the
 * one on the CPU. rb_profile_frames() reads the stack; frames are ISeqs or method entries, and what is known about each is
 * kept by its address while somebody listens, which is why they are marked.
 *
 * A block counts as its method: a hot `each do ... end` is to name the method it stands in. So does a function written in
 * C, or in Ruby's own <internal:...> files, as to self time: Ruby looks for jobs at certain places only, and the builtin in
 * which a sample lands is the one with the next such place, not the one that took the time (a CRC-32 in Ruby showed as 38 %
 * Integer#^). Builtins keep their total.
 */
#include <ruby/ruby.h>
#include <ruby/debug.h>
#include <ruby/st.h>

#include <string.h>

#include "atomic.h"
#include "compat.h"
#include "hooks.h"
#include "names.h"
#include "rows.h"
#include "samples.h"
#include "stats.h"

enum { KNOWN_MAX = 1 << 16 };

static struct {
    bool on;
    bool clearing;   /* the flush was reading the rows: clear them at the next try */
    st_table *known; /* frame -> ps_row */
} sampling;

static int mark_frame(st_data_t frame, st_data_t row, st_data_t unused)
{
    rb_gc_mark((VALUE)frame);
    return ST_CONTINUE;
}

void ps_sampling_mark(void)
{
    if (sampling.known) st_foreach(sampling.known, mark_frame, 0);
}

static ps_row *find_row(VALUE frame)
{
    st_data_t known;
    if (sampling.known && st_lookup(sampling.known, (st_data_t)frame, &known)) return (ps_row *)known;
    char name[PS_NAME_BUFFER];
    size_t size = ps_frame_name(name, frame);
    VALUE path = rb_profile_frame_path(frame), line = rb_profile_frame_first_lineno(frame);
    const ps_site *site = ps_ruby_site(name, size, path, FIXNUM_P(line) ? FIX2LONG(line) : 0);
    /* Keyed by name and path alone: the first frame seen gives the line, and callers are looked at before callees. */
    ps_row *row = ps_table_row(&ps_sampled, (uintptr_t)site->name, (uintptr_t)site->path, 0);
    if (!row->site) PS_WRITE_RELEASE(row->site, site);
    if (sampling.known->num_entries < KNOWN_MAX) st_insert(sampling.known, (st_data_t)frame, (st_data_t)row);
    return row;
}

static bool is_builtin(const ps_row *row)
{
    return strncmp(row->site->path, "<cfunc>", 7) == 0 || strncmp(row->site->path, "<internal:", 10) == 0;
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
        if (!is_builtin(sample[i].row)) leaf = i;
    }
    ps_samples_add(sample, count > 0 ? (uint32_t)count : 0, (uint32_t)leaf, weight, ps_thread_id(),
                   ps_requests_counted());
}

bool ps_sampling_switch(uint32_t wanted)
{
    bool on = (wanted & PS_SAMPLE_PROBES) != 0;
    if (on == sampling.on && !sampling.clearing) return true;
    if (on) {
        if (!sampling.known) sampling.known = st_init_numtable();
    } else {
        sampling.clearing = true;
        if (!ps_stats_try_lock()) return false;
        ps_table_clear(&ps_sampled);
        ps_stats_unlock();
        if (sampling.known) st_free_table(sampling.known);
        sampling.known = NULL;
    }
    sampling.clearing = false;
    sampling.on = on;
    return true;
}

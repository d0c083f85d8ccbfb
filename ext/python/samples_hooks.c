/*
 * Samples without signals. At the tick the watcher reads the stacks of the threads that run
 * (stacks.c). Here the stacks get rows, with the GIL, in a call that the main thread makes between
 * two instructions. A main thread that waits in C (for a lock, a child, a connection) makes no such
 * call. So after LATE_NS the worker takes the GIL for it instead, until the main thread has come
 * back.
 *
 * Where stacks cannot be read at the tick, the same call reads the stacks of all threads that were
 * on the CPU. They stand still, because the call holds the GIL.
 *
 * No code object that was met is kept alive (places.c).
 */
#include "hooks.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/seccomp.h"
#include "base/stopwatch.h"
#include "features/coverage.h"
#include "features/samples.h"
#include "features/thread_clocks.h"
#include "table/flush.h"
#include "usdt/info.h"
#include "usdt/probe.h"
#include "copied_contextvar.h"
#include "eval_breaker.h"
#include "stacks.h"
#include "thread_states.h"

#define LATE_NS 18000000u

static struct {
    bool on;
    bool reads;        /* stacks are read at the tick (stacks.c) */
    bool told;         /* probescope_info says which way is used */
    uint64_t asked_ns; /* when the main thread was asked for a call that is still to come; 0: it was not */
    uint64_t worker;   /* the worker's thread state, whose clock is not read */
} sampling;

/* Code object -> row of ps_sample_table. */
static ps_known_table known_codes;

/*
 * Keyed by name and place: code that is made again and again, such as that of a namedtuple's
 * methods, has one row.
 */
static ps_row *row_of_site(const ps_site *site)
{
    ps_row *row = ps_table_row(&ps_sample_table, (uintptr_t)site, 0, 0);
    if (ps_row_is_overflow(&ps_sample_table, row) || row->site) return row;
    row->sample.left_out = ps_coverage_is_ours(site->path);
    PS_WRITE_RELEASE(row->site, site);
    return row;
}

static ps_row *find_row(struct ps_walked_frame *frame, PyCodeObject *code)
{
    ps_row *row = ps_known_of(&known_codes, NULL, code, 0);
    if (PS_LIKELY(row != NULL)) return row;
    row = row_of_site(ps_code_site(code, ps_walked_globals(frame)));
    if (!ps_row_is_overflow(&ps_sample_table, row)) ps_know(&known_codes, NULL, code, 0, row);
    return row;
}

static void forget(void)
{
    ps_known_clear(&known_codes);
}

static bool reads(void)
{
    return PS_READ(sampling.reads) && (!PS_ENABLED(STATS__BY_REQUEST) || ps_copied_contextvar_works());
}

static ps_row *row_of_copy(ps_copied_code *code)
{
    ps_row *row = ps_row_of(&ps_sample_table, code->row);
    if (row) return row;
    const ps_site *site =
        ps_site_intern(code->name, code->name_size, code->path, code->path_size, (uint64_t)code->first_line);
    row = row_of_site(site);
    if (!ps_row_is_overflow(&ps_sample_table, row)) code->row = ps_row_keep(&ps_sample_table, row);
    return row;
}

static void take_read(void)
{
    static ps_sample_frame frames[PS_SAMPLE_FRAMES_MAX]; /* the GIL is held */
    const ps_read_stack *stack;
    while ((stack = ps_stacks_next()) != NULL) {
        uint32_t count = 0;
        if (stack->collects) frames[count++] = (ps_sample_frame){ps_samples_row_of_collections(), 0};
        bool is_cut = stack->is_cut;
        for (uint32_t i = 0; i < stack->count; i++) {
            ps_row *row = row_of_copy(stack->frame[i].code);
            if (row->sample.left_out) continue;
            if (count == PS_SAMPLE_FRAMES_MAX) is_cut = true;
            else frames[count++] = (ps_sample_frame){row, stack->frame[i].line};
        }
        ps_samples_add(frames, count, 0, NULL, stack->weight, stack->thread_id,
                       ps_requests_counted_numbered(stack->request), is_cut);
    }
}

static void sample(PyThreadState *thread, uint64_t weight, uint64_t thread_id)
{
    static ps_sample_frame frames[PS_SAMPLE_FRAMES_MAX]; /* the GIL is held */
    bool wants_lines = ps_samples_want_lines(), is_cut = false;
    uint32_t count = 0;
    for (struct ps_walked_frame *at = ps_walk_from(thread); at && !is_cut; at = ps_walk_on(at)) {
        PyCodeObject *code = ps_walked_code(at);
        ps_row *row = code ? find_row(at, code) : NULL;
        if (!row || row->sample.left_out) continue;
        is_cut = count == PS_SAMPLE_FRAMES_MAX;
        if (is_cut) continue;
        int line = wants_lines ? ps_walked_line(at) : 0;
        frames[count++] = (ps_sample_frame){row, line > 0 ? (uint32_t)line : 0};
    }
    ps_samples_add(frames, count, 0, NULL, weight, thread_id, ps_requests_counted_of(thread), is_cut);
}

static void walk(PyInterpreterState *interpreter)
{
    PyThreadState *first = ps_first_thread(interpreter), *thread;
    for (thread = first; thread; thread = PyThreadState_Next(thread))
        if (thread->id != sampling.worker) ps_thread_clocks_see(thread->id, (pthread_t)thread->thread_id);
    for (thread = first; thread; thread = PyThreadState_Next(thread)) {
        uint64_t thread_id, weight = ps_thread_clocks_take(thread->id, &thread_id);
        if (weight) sample(thread, weight, thread_id);
    }
}

void ps_sampling_take(void)
{
    PyInterpreterState *main = PyInterpreterState_Main();
    if (!sampling.on || ps_thread_state()->interp != main) return;
    if (sampling.reads) take_read();
    if (reads()) return;
    if (!ps_thread_clocks_begin_walk()) return;
    if (ps_samples_weigh()) {
        /*
         * The look-up of a request makes calls that may fail, and this may run in the middle of a
         * call of the application's.
         */
        ps_error error = ps_error_save();
        walk(main);
        ps_error_restore(error);
    }
    ps_thread_clocks_end_walk();
}

/* Called by the interpreter on the main thread, with the GIL. */
static int take_on_main(void *unused)
{
    PS_WRITE(sampling.asked_ns, 0);
    ps_stopwatch began = ps_stopwatch_start();
    ps_sampling_take();
    ps_looking_add(ps_stopwatch_stop(began));
    return 0;
}

static void tell_how(bool are_read)
{
    static const char late[] =
        "charged at the next check: code that runs after a call of C or a wait gets their samples";
    static const char filtered[] =
        "charged at the next check: a seccomp filter may end a process that reads memory "
        "(PROBESCOPE_SECCOMP=errno: it does not)";
    _Static_assert(sizeof(filtered) <= sizeof(probescope_info.probes[0].reason), "it would be cut");
    const char *reason = are_read ? NULL : ps_seccomp_may_end_us() ? filtered : late;
    ps_samples_degrade(ps_probes_listened(), reason);
    PS_WRITE(sampling.told, true);
}

/* Each way counts from its own last sample, so what passed in the other way is forgotten. */
bool ps_sampling_tick(uint64_t now, uint64_t due)
{
    static bool were_read;
    if (!PS_HAVE_GIL) return false; /* refused: no sample is taken in any way */
    bool are_read = reads();
    if (are_read != were_read || !PS_READ(sampling.told)) tell_how(are_read);
    if (are_read && !were_read) ps_stacks_forget_clocks();
    if (!are_read && were_read) ps_thread_clocks_forget();
    were_read = are_read;
    return are_read ? ps_stacks_tick(now, due) : ps_samples_tick();
}

bool ps_sampling_ask(void)
{
    if (!PS_READ(sampling.on)) return true;
    uint64_t now = ps_monotonic_ns(), asked = PS_READ(sampling.asked_ns);
    if (asked) return now - asked < LATE_NS;
    if (ps_os_fork_under_way()) return false;
    PS_WRITE(sampling.asked_ns, now);
    if (ps_pending_add(take_on_main, NULL)) return true;
    PS_WRITE(sampling.asked_ns, 0);
    return false;
}

void ps_sampling_after_fork(void)
{
    sampling.asked_ns = 0;
}

const char *ps_sampling_refused(void)
{
    return PS_HAVE_GIL ? NULL
                       : "this Python runs without a GIL: to read stacks at the tick was not tried there";
}

static bool hook(ps_probe_set wanted)
{
    bool on = (wanted & ps_samples_feature.probes) != 0;
    if (!on) {
        PS_WRITE(sampling.on, false);
        if (sampling.reads && !ps_stacks_end()) return false;
        PS_WRITE(sampling.reads, false);
    } else if (!sampling.on) {
        ps_pending_check();
        sampling.worker = ps_thread_state()->id;
        PS_WRITE(sampling.told, false);
        PS_WRITE(sampling.reads, ps_stacks_begin(PyInterpreterState_Main(), sampling.worker));
        PS_WRITE(sampling.on, true);
    }
    return true;
}

const ps_hooks ps_samples_hooks = {
    .feature = &ps_samples_feature,
    .hook = hook,
    .refused = ps_sampling_refused,
    .forget = forget,
};

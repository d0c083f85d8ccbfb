#include "agent/overhead.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "features/functions.h"
#include "table/feature.h"
#include "table/flush.h"
#include "usdt/info.h"

#define MILLION 1000000u

static struct {
    char text[16]; /* the limit as the environment has it */
    /* The current window. */
    bool begun;
    uint64_t began_ns, began_cpu_ns;
    ps_looks_before looks;
    /*
     * The last window was above the limit. `judged` of each row has its events at the end of that
     * window.
     */
    bool over;
    uint32_t cleared;   /* `cleared` of ps_function_table when its rows were last marked */
    uint32_t functions; /* number of rows marked since then */
} overhead;

/* ---- The limit ---- */

/*
 * Returns millionths, or 0 when the text is not a percentage above 0 and up to 100. strtod() is not
 * used, because it depends on the application's locale.
 */
static uint32_t percentage(const char *text)
{
    uint64_t value = 0, unit = 10000; /* millionths that a 1 in this digit stands for */
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && value <= 100 * unit; at++)
        value = value * 10 + (uint64_t)(*at - '0') * unit;
    if (at == text) return 0;
    if (*at == '.')
        for (at++; *at >= '0' && *at <= '9'; at++) value += (uint64_t)(*at - '0') * (unit /= 10);
    if (*at == '%') at++;
    return !*at && value <= MILLION ? (uint32_t)value : 0;
}

void ps_overhead_start(void)
{
    const char *text = getenv("PROBESCOPE_MAX_OVERHEAD");
    uint32_t limit = text ? percentage(text) : 0;
    if (text && !limit) {
        char note[120];
        snprintf(note, sizeof(note),
                 "PROBESCOPE_MAX_OVERHEAD=%.20s is no percentage such as 5%%: there is no limit", text);
        ps_info_note(note);
    }
    if (limit) snprintf(overhead.text, sizeof(overhead.text), "%.14s%s", text, strchr(text, '%') ? "" : "%");
    PS_WRITE(ps_overhead_limit, limit);
}

/* ---- What is taken out ---- */

/* Is it the first of the features that are taken out together? */
static bool leads(const ps_feature *feature)
{
    return feature->kinds && !feature->taken_out_with;
}

static bool is_with(const ps_feature *feature, const ps_feature *first)
{
    return feature == first || feature->taken_out_with == first;
}

/* The probes of a feature and of those that are taken out with it. */
static ps_probe_set probes_with(const ps_feature *first)
{
    ps_probe_set probes = 0;
    for (const ps_feature *const *each = ps_features; *each; each++)
        if (is_with(*each, first)) probes |= (*each)->probes;
    return probes;
}

/* The time that their hooks took. 0 when no tracer listens to them. */
static uint64_t time_with(const ps_feature *first, const ps_looked *looked, ps_probe_set wanted)
{
    uint64_t ns = 0;
    uint32_t kinds = 0;
    if (!(probes_with(first) & wanted)) return 0;
    for (const ps_feature *const *each = ps_features; *each; each++)
        if (is_with(*each, first)) kinds |= (*each)->kinds;
    for (int kind = 0; kind < PS_LOOK_KINDS; kind++)
        if ((kinds >> kind) & 1) ns += looked->ns[kind];
    return ns;
}

/* True when ns is more than `limit` millionths of the CPU time. */
static bool is_above(uint64_t ns, uint64_t cpu_ns, uint64_t limit)
{
    return ns > (uint64_t)((unsigned __int128)cpu_ns * limit / MILLION);
}

/*
 * Returns how many ns have to go, so that the rest is `share` millionths of the remaining CPU time.
 */
static uint64_t excess(uint64_t ns, uint64_t cpu_ns, uint64_t share)
{
    uint64_t allowed = (uint64_t)((unsigned __int128)cpu_ns * share / MILLION);
    return ns > allowed ? (uint64_t)((unsigned __int128)(ns - allowed) * MILLION / (MILLION - share)) : 0;
}

static uint64_t events_of(const ps_row *row)
{
    return PS_READ(row->count[PS_FUNCTION_CALLS]) + PS_READ(row->count[PS_FUNCTION_RESUMED]);
}

static void remember_rows(void)
{
    uint32_t rows = PS_READ_ACQUIRE(ps_function_table.rows);
    for (uint32_t i = 0; i < rows; i++) {
        ps_row *row = ps_table_at(&ps_function_table, i);
        row->function.judged = events_of(row);
    }
}

struct called {
    ps_row *row;
    uint64_t events;
};

/*
 * Finds the functions that are in and have the most events, and sorts them, most events first.
 * Returns their number. *all: the events of all functions that are in.
 */
static int find_most_called(struct called *most, int room, uint64_t *all)
{
    int count = 0;
    uint32_t rows = PS_READ_ACQUIRE(ps_function_table.rows);
    *all = 0;
    for (uint32_t i = 0; i < rows; i++) {
        ps_row *row = ps_table_at(&ps_function_table, i);
        uint64_t now = events_of(row), events = now - row->function.judged;
        row->function.judged = now;
        if (!events || PS_READ(row->function.excluded) || !PS_READ_ACQUIRE(row->site)) continue;
        *all += events;
        if (count == room && events <= most[count - 1].events) continue;
        int at = count < room ? count++ : count - 1;
        for (; at > 0 && most[at - 1].events < events; at--) most[at] = most[at - 1];
        most[at] = (struct called){row, events};
    }
    return count;
}

static void say_functions(ps_probe_set wanted)
{
    char reason[120];
    snprintf(reason, sizeof(reason), "%u function%s not counted any more: PROBESCOPE_MAX_OVERHEAD=%s",
             overhead.functions, overhead.functions == 1 ? " is" : "s are", overhead.text);
    ps_info_states(ps_functions_feature.probes & wanted, PS_STATE_DEGRADED, reason);
}

/*
 * Takes out functions that together took `need` ns. Returns false, and does nothing, when all
 * functions together took less.
 */
static bool take_functions(const ps_looked *looked, uint64_t need, ps_probe_set wanted, uint64_t now)
{
    static struct called most[PS_OVERHEAD_AT_ONCE];
    uint64_t all, runs = looked->runs[PS_LOOK_FUNCTION];
    int count = find_most_called(most, PS_OVERHEAD_AT_ONCE, &all);
    if (!runs || !count) return false;
    /* Each call has an entry and an exit. */
    double event_ns = 2.0 * (double)looked->ns[PS_LOOK_FUNCTION] / (double)runs;
    if ((double)all * event_ns < (double)need) return false;
    double left = (double)need;
    if (overhead.cleared != ps_function_table.cleared) overhead.functions = 0;
    overhead.cleared = ps_function_table.cleared;
    PS_WRITE(ps_overhead_functions, true);
    for (int i = 0; i < count && left > 0; i++) {
        PS_WRITE(most[i].row->function.out_ns, now);
        PS_WRITE_RELEASE(most[i].row->function.excluded, PS_TAKEN_OUT);
        overhead.functions++;
        left -= (double)most[i].events * event_ns;
    }
    say_functions(wanted);
    return true;
}

/* Returns the probes of the hooks that took most, without those of one feature or of none. */
static ps_probe_set dearest(const ps_looked *looked, ps_probe_set wanted, const ps_feature *without)
{
    ps_probe_set probes = 0;
    uint64_t most = 0;
    for (const ps_feature *const *each = ps_features; *each; each++) {
        uint64_t ns = leads(*each) && *each != without ? time_with(*each, looked, wanted) : 0;
        if (ns <= most) continue;
        most = ns;
        probes = probes_with(*each);
    }
    return probes;
}

ps_probe_set ps_overhead_judge(const ps_overhead_window *window, ps_probe_set wanted, uint64_t now)
{
    uint64_t hooks = 0, functions = time_with(&ps_functions_feature, &window->looked, wanted);
    for (const ps_feature *const *each = ps_features; *each; each++)
        if (leads(*each)) hooks += time_with(*each, &window->looked, wanted);
    bool before = overhead.over;
    overhead.over = is_above(hooks, window->cpu_ns, ps_overhead_limit / 10 * 9);
    if (!overhead.over) return 0;
    if (!before) {
        remember_rows();
        return 0;
    }
    overhead.over = false;
    uint64_t left = window->cpu_ns > functions ? window->cpu_ns - functions : 0;
    if (is_above(hooks - functions, left, ps_overhead_limit))
        return dearest(&window->looked, wanted, &ps_functions_feature);
    uint64_t need = excess(hooks, window->cpu_ns, ps_overhead_limit / 4 * 3);
    if (functions && take_functions(&window->looked, need, wanted, now)) return 0;
    return dearest(&window->looked, wanted, NULL);
}

/* ---- For the watcher ---- */

void ps_overhead_begin(void)
{
    overhead.begun = overhead.over = false;
}

ps_probe_set ps_overhead_look(ps_probe_set wanted, uint64_t now)
{
    if (overhead.begun && now - overhead.began_ns < PS_OVERHEAD_WINDOW_NS) return 0;
    uint64_t cpu_ns = ps_process_cpu_ns();
    if (overhead.begun && cpu_ns - overhead.began_cpu_ns < PS_OVERHEAD_LEAST_CPU_NS) return 0;
    /* Another thread is clearing rows, and holds the lock for a moment. */
    if (!ps_flush_try_lock()) return 0;
    ps_probe_set probes = 0;
    ps_overhead_window window = {cpu_ns - overhead.began_cpu_ns, ps_looking_since(&overhead.looks)};
    if (overhead.begun) probes = ps_overhead_judge(&window, wanted, now);
    ps_flush_unlock();
    overhead.begun = true;
    overhead.began_ns = now;
    overhead.began_cpu_ns = cpu_ns;
    return probes;
}

void ps_overhead_take_out(ps_probe_set probes, uint64_t now)
{
    char reason[120];
    snprintf(reason, sizeof(reason), "taken out for taking too much CPU time: PROBESCOPE_MAX_OVERHEAD=%s",
             overhead.text);
    ps_info_taken_out(probes, now, reason);
    PS_WRITE(ps_overhead_out, ps_overhead_out | probes);
}

ps_probe_set ps_overhead_listened(ps_probe_set raised)
{
    if (PS_LIKELY(!ps_overhead_out)) return 0;
    for (const ps_feature *const *each = ps_features; *each; each++) {
        ps_probe_set probes = leads(*each) ? probes_with(*each) : 0;
        if (!(probes & ps_overhead_out) || probes & raised) continue;
        PS_WRITE(ps_overhead_out, ps_overhead_out & ~probes);
        ps_info_taken_out(probes, 0, NULL);
    }
    return ps_overhead_out & raised;
}

bool ps_overhead_after_fork(void)
{
    bool functions = false;
    ps_info_taken_out(ps_overhead_out, 0, NULL);
    ps_overhead_out = 0;
    for (uint32_t i = 0; ps_overhead_functions && i < ps_function_table.rows; i++) {
        ps_row *row = ps_table_at(&ps_function_table, i);
        if (row->function.excluded != PS_TAKEN_OUT) continue;
        row->function.out_ns = row->function.excluded = 0;
        functions = true;
    }
    ps_overhead_begin();
    return functions;
}

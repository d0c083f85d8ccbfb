/*
 * PROBESCOPE_MAX_OVERHEAD=5%: hooks are taken out while they take more than that share of the
 * process's CPU time. By default there is no limit.
 *
 * The watcher judges windows of PS_OVERHEAD_WINDOW_NS and at least PS_OVERHEAD_LEAST_CPU_NS of CPU
 * time. It compares the time of all hooks (looking.h) with the process's CPU time in the window. A
 * tenth of the limit is reserved for the threads of the library, whose cost cannot be reduced. When
 * hooks take more than the other nine tenths in two windows in a row, hooks are taken out, until
 * their computed share in the second window is three quarters of the limit:
 *
 *   1. Functions, the most called first, at most PS_OVERHEAD_AT_ONCE at a time. This is done
 *      when it is enough: when the other hooks alone are below the limit, and the counted
 *      functions account for the time.
 *   2. Otherwise one group of probes: the most expensive one in the window.
 *
 * Then new windows begin. The first window begins when stats__done has told a tracer that its
 * interval begins, or PS_OVERHEAD_GRACE_NS after the attach. Hooks that were taken out stay out
 * until no tracer listens to any probe of their group. So the next tracer starts with all hooks. A
 * forked child starts with all hooks, too.
 *
 * A function that was taken out has `excluded` and `out_ns` in its row. Its figures end there. Its
 * calls are treated as if they were not covered: their time counts as the caller's own time.
 */
#ifndef PS_OVERHEAD_H
#define PS_OVERHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "usdt/looking.h"
#include "usdt/taken_out.h"

enum { PS_OVERHEAD_WINDOW_NS = 200000000, PS_OVERHEAD_LEAST_CPU_NS = 10000000, PS_OVERHEAD_AT_ONCE = 256 };
#define PS_OVERHEAD_GRACE_NS 5000000000u

/*
 * Reads the environment. When the value is not a percentage, probescope_info.note reports it, and
 * there is no limit.
 */
void ps_overhead_start(void);

/* What hooks took in a window. */
typedef struct ps_overhead_window {
    uint64_t cpu_ns; /* of the process */
    ps_looked looked;
} ps_overhead_window;

/*
 * Judges a window, with ps_flush_lock. wanted: the probes whose hooks are in. Marks rows of
 * functions to take them out. Returns the group of probes to pass to ps_overhead_take_out(), or 0.
 */
ps_probe_set ps_overhead_judge(const ps_overhead_window *window, ps_probe_set wanted, uint64_t now);

/*
 * For the watcher, while there is a limit.
 * - look: called when all hooks are as wanted. Returns what ps_overhead_judge() returns.
 * - begin: called when they are not. A new window begins.
 * - listened: called with the probes that have a listener. Returns those of them that are out.
 */
ps_probe_set ps_overhead_look(ps_probe_set wanted, uint64_t now);
void ps_overhead_begin(void);
void ps_overhead_take_out(ps_probe_set probes, uint64_t now);
ps_probe_set ps_overhead_listened(ps_probe_set raised);

/*
 * For a forked child: all hooks may be put in again. Returns true when functions had been taken
 * out.
 */
bool ps_overhead_after_fork(void);

#endif

/*
 * PROBESCOPE_MAX_OVERHEAD=5%: hooks are taken out while they take more than that share of the
 * process's CPU time. No limit by default.
 *
 * The watcher judges windows of PS_OVERHEAD_WINDOW_NS and at least PS_OVERHEAD_LEAST_CPU_NS of CPU
 * time: the time of all hooks (looking.h) as a share of the process's CPU time in the window. A
 * tenth of the limit is left to the threads of the library, which nothing makes cheaper. Two
 * windows in a row above the rest of it, and hooks go until the share is three quarters of the
 * limit, as is computed from the second window:
 *
 *   1. Functions, the most called first, PS_OVERHEAD_AT_ONCE at a time, when that is enough: when
 *      the other hooks alone are below the limit, and when the functions that were counted are what
 *      takes the time.
 *   2. Otherwise one group of probes, the dearest in the window.
 *
 * Then new windows begin. The first one begins when stats__done has told a tracer that its interval
 * begins, or PS_OVERHEAD_GRACE_NS after the attach. What is out stays out until nobody listens to
 * any probe of its group: the next tracer has all hooks. A forked child begins with all of them.
 *
 * A function that is out has `excluded` and `out_ns` in its row. Its figures end there, its calls
 * are as if they were not covered: what they take is their caller's own time.
 */
#ifndef PS_OVERHEAD_H
#define PS_OVERHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "looking.h"

enum { PS_OVERHEAD_WINDOW_NS = 200000000, PS_OVERHEAD_LEAST_CPU_NS = 10000000, PS_OVERHEAD_AT_ONCE = 256 };
#define PS_OVERHEAD_GRACE_NS 5000000000u

/* The limit in millionths of the CPU time; 0: there is none. */
extern uint32_t ps_overhead_limit;
/* The probes whose hooks are out, as bits. The watcher's to write. */
extern uint32_t ps_overhead_out;
/* Functions were taken out, since the process started. */
extern bool ps_overhead_functions;

/*
 * Reads the environment. A value that is no percentage is said in probescope_info.note, and there
 * is no limit then.
 */
void ps_overhead_start(void);

/* What hooks took in a window. */
typedef struct ps_overhead_window {
    uint64_t cpu_ns; /* of the process */
    ps_looked looked;
} ps_overhead_window;

/*
 * Judges a window, with ps_stats_lock. wanted: the probes whose hooks are in. Marks rows of
 * functions; what it returns is the group of probes that ps_overhead_take_out() is to be called
 * with, or 0.
 */
uint32_t ps_overhead_judge(const ps_overhead_window *window, uint32_t wanted, uint64_t now);

/*
 * For the watcher, while there is a limit. look: when all hooks are as wanted; returns as judge
 * does. begin: they are not, so a new window begins. listened: raised are the probes that somebody
 * listens to; returns what is out of them.
 */
uint32_t ps_overhead_look(uint32_t wanted, uint64_t now);
void ps_overhead_begin(void);
void ps_overhead_take_out(uint32_t probes, uint64_t now);
uint32_t ps_overhead_listened(uint32_t raised);

/* In a forked child: everything is in again. True when functions were out. */
bool ps_overhead_after_fork(void);

#endif

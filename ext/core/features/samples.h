/*
 * Samples of the stack that is on the CPU. A sample adds the CPU time since the previous one to its
 * leaf (self) and, once each, to all functions on the stack (total). For sample__frame, distinct
 * stacks are kept for the second in which they were seen.
 */
#ifndef PS_SAMPLES_H
#define PS_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

#include "table/feature.h"
#include "table/routes.h"
#include "usdt/probe.h"

enum { PS_SAMPLE_FRAMES_MAX = 256, PS_STACKS_MAX = 256 };
/* The approximate time between two ticks. */
enum { PS_SAMPLE_NS = 10101010 };

extern const ps_feature ps_samples_feature;
extern ps_table ps_sample_table;

/* Its counters. Weights are CPU time in ns, not ticks. */
enum { PS_SAMPLE_TOTAL_SAMPLES, PS_SAMPLE_SELF_SAMPLES, PS_SAMPLE_SELF, PS_SAMPLE_TOTAL };
/*
 * Index into `at` of a row that holds a function's self time in one builtin. The site there names
 * the builtin.
 */
enum { PS_SAMPLE_BUILTIN };

typedef struct ps_sample_frame {
    ps_row *row;   /* of ps_sample_table, with its site */
    uint32_t line; /* the line that runs or calls; 0 where unknown */
} ps_sample_frame;

/* True when a tracer listens to a probe that shows the lines of frames. */
static inline bool ps_samples_want_lines(void)
{
    return PS_ENABLED(SAMPLE) || PS_ENABLED(SAMPLE__FRAME) || PS_ENABLED(STACK__CPU);
}

/* The row of a collection, which lies on top of the stack that it interrupted. VM lock. */
ps_row *ps_samples_row_of_collections(void);

/*
 * Sets the states of these probes, as far as they are those of samples. reason: why stacks cannot
 * be read at the tick. NULL: they can, so no probe is degraded any more.
 */
void ps_samples_degrade(ps_probe_set probes, const char *reason);

/*
 * Called by the watcher at each tick. Returns true when the VM is to be asked for a sample. It is
 * not asked when all threads whose CPU clocks are known slept since the last tick.
 */
bool ps_samples_tick(void);
/* Called by the watcher when the first listener comes, and when the last one has left. */
void ps_samples_begin(void);
void ps_samples_end(void);
/*
 * Called by the VM when it handles the request. Returns the CPU time in ns that this sample stands
 * for. 0: the process slept from the tick until now, so the stack is that of a sleeper and does not
 * count.
 */
uint64_t ps_samples_weigh(void);
/*
 * Adds a sample. frames[0] is innermost; self time goes to frames[leaf]. builtin: the row of the
 * VM's function that frames[leaf] had called; NULL when there was none or it is unknown. request:
 * as for ps_routes_row(). is_cut: the stack has more frames, outside of these. Called with the VM
 * lock.
 */
void ps_samples_add(const ps_sample_frame *frames, uint32_t count, uint32_t leaf, const ps_row *builtin,
                    uint64_t weight, uint64_t thread_id, ps_counted *request, bool is_cut);
void ps_samples_after_fork(void);

#endif

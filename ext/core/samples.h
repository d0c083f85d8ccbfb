/*
 * Samples of the stack that is on the CPU: each adds the CPU time since the previous one to its
 * leaf (self) and, once, to every function on it (total). Distinct stacks are kept for the second
 * in which they were seen, for sample__frame.
 */
#ifndef PS_SAMPLES_H
#define PS_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

#include "by_request.h"
#include "rows.h"

enum { PS_SAMPLE_FRAMES_MAX = 256, PS_STACKS_MAX = 256 };

typedef struct ps_sample_frame {
    ps_row *row;   /* of ps_sampled, with its site */
    uint32_t line; /* that runs or calls; 0 where unknown */
} ps_sample_frame;

/*
 * Called by the watcher at each tick: is the VM to be asked for a sample? Not when all the threads
 * that it looks at slept.
 */
bool ps_samples_tick(void);
/* Called by the watcher when somebody begins to listen, and when nobody does any more. */
void ps_samples_begin(void);
void ps_samples_end(void);
/*
 * Called by the VM, when it comes to the request: the CPU time in ns that this sample stands for,
 * or 0 when it stands for nothing, because the process slept from the tick until now and the stack
 * is that of the sleeper.
 */
uint64_t ps_samples_weigh(void);
/*
 * Adds a sample; frames[0] is innermost, frames[leaf] the one that self time is charged to.
 * builtin: the row of the VM's own function that ran above it; NULL: none did, or it is not known
 * which. request: as ps_by_request(). VM lock held.
 */
void ps_samples_add(const ps_sample_frame *frames, uint32_t count, uint32_t leaf, const ps_row *builtin,
                    uint64_t weight, uint64_t thread_id, ps_counted *request);
/*
 * Fires sample__frame for each stack of the last second and forgets them. The watcher's. Returns
 * the rows fired.
 */
uint64_t ps_samples_fire_stacks(void);
/* Forgets them, and fires nothing: their names are about to go. */
void ps_samples_forget_stacks(void);
void ps_samples_after_fork(void);

#endif

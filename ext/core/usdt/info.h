/*
 * What the process reports about itself, for a command that reads /proc/PID/mem: no socket, no
 * file, no signal. The command finds the symbol in .dynsym of the mapped file, so the symbol stays
 * exported under -fvisibility=hidden and strip. A sequence lock guards the struct: the number is
 * odd while the struct is written. The fields are those of providers/info.yml, and are only ever
 * appended. The command uses the sizes and offsets at the start of the struct.
 */
#ifndef PS_INFO_H
#define PS_INFO_H

#include <stdint.h>

#include "usdt/info.gen.h"
#include "usdt/probe.h"

extern struct ps_info probescope_info __attribute__((visibility("default")));

/* Called once, before the watcher runs. Strings that are too long are cut. */
void ps_info_start(const char *runtime, const char *runtime_version, const char *library_version);
void ps_info_flag(uint32_t flag, int on);
void ps_info_note(const char *note);
/* Sets the state of one probe. reason may be NULL. Any thread. */
void ps_info_state(enum ps_probe probe, enum ps_state state, const char *reason);
/* The same for each probe of a set (probe_groups.h). */
void ps_info_states(ps_probe_set probes, enum ps_state state, const char *reason);
/* The set of the probes that have this state. */
ps_probe_set ps_info_probes_in(enum ps_state state);
/*
 * Sets the state to off, because no tracer listens any more. The reason stays: it tells why the
 * probe was refused or degraded while a tracer listened.
 */
void ps_info_off(enum ps_probe probe);
/*
 * Records that the hooks of these probes were taken out at `ns`, and that the probes are refused.
 * ns 0 ends that: the probes are off until the VM reports otherwise.
 */
void ps_info_taken_out(ps_probe_set probes, uint64_t ns, const char *reason);
enum ps_state ps_info_state_of(enum ps_probe probe);
/*
 * Sets the state of these probes, a bit for each, to degraded. One that is degraded, refused or
 * unsupported already keeps its state and its reason.
 */
void ps_info_degrade(ps_probe_set probes, const char *reason);
extern const char *const ps_state_names[];
/* The watcher records with these what it saw and counted. */
void ps_info_refresh(void);
void ps_info_hooks(uint64_t asked_ns, uint64_t hooks_in_ns);
/* Adds the figures of one interval. */
void ps_info_interval(uint64_t until_ns, uint64_t cpu_ns, uint64_t looking_ns);
/*
 * Adds what one tick found: the CPU time of the threads since the tick before, how many of them the
 * tick met on a CPU, and the time that this stands for.
 */
void ps_info_ticked(uint64_t ran_ns, uint64_t met_ns, uint32_t met);
void ps_info_after_fork(void);

#endif

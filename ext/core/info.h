/*
 * What the process says about itself, for a host that reads /proc/PID/mem: no socket, no file, no
 * signal. The host finds the symbol in .dynsym of the mapped file, so it stays exported under
 * -fvisibility=hidden and strip. Sequence-locked: odd while it is written. Its fields are those of
 * providers/info.yml, and are only ever appended; the host goes by the sizes and offsets in the
 * head.
 */
#ifndef PS_INFO_H
#define PS_INFO_H

#include <stdint.h>

#include "info.gen.h"
#include "probe.h"

extern struct ps_info probescope_info __attribute__((visibility("default")));

/* Called once, before the watcher runs. The strings are cut where they are too long. */
void ps_info_start(const char *runtime, const char *runtime_version, const char *library_version);
void ps_info_flag(uint32_t flag, int on);
void ps_info_note(const char *note);
/* The state of one probe; reason may be NULL. Any thread. */
void ps_info_state(enum ps_probe probe, enum ps_state state, const char *reason);
/* Nobody listens any more. The reason stays: why it was refused or degraded when somebody did. */
void ps_info_off(enum ps_probe probe);
/*
 * Its hooks were taken out at that moment, and it is refused; 0: that is over, and it is off until
 * the VM says otherwise.
 */
void ps_info_taken_out(enum ps_probe probe, uint64_t ns, const char *reason);
enum ps_state ps_info_state_of(enum ps_probe probe);
extern const char *const ps_state_names[];
/* The watcher's own: what it saw and counted. */
void ps_info_refresh(void);
void ps_info_hooks(uint64_t asked_ns, uint64_t hooks_in_ns);
/* Adds an interval. */
void ps_info_interval(uint64_t until_ns, uint64_t cpu_ns, uint64_t looking_ns);
void ps_info_after_fork(void);

#endif

/*
 * What the process says about itself, for a host that reads /proc/PID/mem: no socket, no file, no signal. The host finds
 * the symbol in .dynsym of the mapped file, so it stays exported under -fvisibility=hidden and strip. Sequence-locked:
 * odd while it is written. Fields are only ever appended; the host goes by the sizes and offsets in the head.
 */
#ifndef PS_INFO_H
#define PS_INFO_H

#include <stdint.h>

#include "probe.h"

enum ps_state { PS_STATE_OFF, PS_STATE_ON, PS_STATE_DEGRADED, PS_STATE_REFUSED, PS_STATE_UNSUPPORTED };
/* PS_INFO_REQUESTS: there is something that tells of requests or jobs. */
enum { PS_INFO_INSTALLED = 1, PS_INFO_WATCHING = 2, PS_INFO_JIT = 4, PS_INFO_CYCLE_CLOCK = 8, PS_INFO_REQUESTS = 16 };

struct ps_info_probe {
    char name[24];
    uint32_t state;     /* enum ps_state */
    uint32_t enabled;   /* the semaphore, as last seen */
    uint64_t semaphore; /* its address in this process */
    char reason[120];
    uint64_t out_ns; /* CLOCK_MONOTONIC: when its hooks were taken out for PROBESCOPE_MAX_OVERHEAD; 0: they were not */
};

struct ps_info {
    char magic[8]; /* "PSCOPE1" */
    uint32_t size, abi, sequence, probe_count, probe_size, probes_offset;
    char runtime[16], runtime_version[32], library_version[16];
    int32_t pid;
    uint32_t flags;
    uint64_t memory_limit, memory_used, rows_dropped, flushes, switches, watcher_ticks;
    char note[128];
    /* CLOCK_MONOTONIC: when the watcher saw semaphores change last, and when every hook for that was in (0: not yet). */
    uint64_t asked_ns, hooks_in_ns;
    /* CPU ns that looking took in the intervals that were flushed, and CPU ns of the process in them. */
    uint64_t looking_ns, looked_cpu_ns;
    uint64_t overhead_limit; /* PROBESCOPE_MAX_OVERHEAD in millionths; 0: none */
    uint64_t cut;            /* CLOCK_MONOTONIC: where the last interval that was flushed ended; 0: none did yet */
    struct ps_info_probe probes[PS_PROBE_COUNT];
};

extern struct ps_info probescope_info __attribute__((visibility("default")));

/* Called once, before the watcher runs. The strings are cut where they are too long. */
void ps_info_start(const char *runtime, const char *runtime_version, const char *library_version);
void ps_info_flag(uint32_t flag, int on);
void ps_info_note(const char *note);
/* The state of one probe; reason may be NULL. Any thread. */
void ps_info_state(enum ps_probe probe, enum ps_state state, const char *reason);
/* Nobody listens any more. The reason stays: why it was refused or degraded when somebody did. */
void ps_info_off(enum ps_probe probe);
/* Its hooks were taken out at that moment, and it is refused; 0: that is over, and it is off until the VM says otherwise. */
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

/* Generated from providers/info.yml by `rake generate`. Do not edit. */
#ifndef PS_INFO_GEN_H
#define PS_INFO_GEN_H

#include <stddef.h>
#include <stdint.h>

#include "usdt/probes.gen.h"

#define PS_INFO_MAGIC "PSCOPE1"

enum ps_state {
    PS_STATE_OFF, /* no tracer listens */
    PS_STATE_ON, /* a tracer listens */
    PS_STATE_DEGRADED, /* does not always fire, or costs more; the reason says which */
    PS_STATE_REFUSED, /* does not fire; the reason says why */
    PS_STATE_UNSUPPORTED, /* this runtime or this version has no such probe */
};
#define PS_STATE_NAMES "off", "on", "degraded", "refused", "unsupported"

enum ps_flag {
    PS_INFO_INSTALLED = 1, /* hooks are installed when a tracer listens */
    PS_INFO_WATCHER = 2, /* the watcher looks for tracers */
    PS_INFO_JIT = 4, /* no library sets it yet */
    PS_INFO_CYCLE_CLOCK = 8, /* times are read from the CPU's own counter */
    PS_INFO_REQUESTS = 16, /* requests or jobs are reported */
};

struct ps_info_probe {
    char name[24]; /* name of the probe */
    uint32_t state; /* enum ps_state */
    uint32_t enabled; /* value of the semaphore, as last seen */
    uint64_t semaphore; /* address of the semaphore in this process */
    /* why it is degraded, refused or unsupported, or was so when a tracer last listened */
    char reason[120];
    /* CLOCK_MONOTONIC when its hooks were removed for PROBESCOPE_MAX_OVERHEAD; 0: not removed */
    uint64_t out_ns;
};

struct ps_info {
    char magic[8]; /* PSCOPE1 */
    uint32_t size; /* bytes of the struct */
    uint32_t abi; /* version of the probes */
    uint32_t sequence; /* odd while the struct is written */
    uint32_t probe_count; /* number of rows */
    uint32_t probe_size; /* bytes of a row; 0: no function of the library has run */
    uint32_t probes_offset; /* offset of the first row */
    char runtime[16]; /* ruby or python */
    char version[32]; /* version of the runtime */
    char library[16]; /* probescope's version */
    int32_t pid; /* as the process sees it */
    uint32_t flags; /* enum ps_flag */
    uint64_t memory_limit; /* bytes for names and rows */
    uint64_t memory_used; /* bytes of memory_limit that are used */
    uint64_t rows_dropped; /* events without a row of their own */
    uint64_t flushes; /* flushes of statistics */
    uint64_t switches; /* how often hooks were installed or removed */
    uint64_t watcher_ticks; /* how often the watcher looked for tracers */
    char note[128]; /* what else the process reports */
    uint64_t asked_ns; /* CLOCK_MONOTONIC when the watcher last saw semaphores change */
    /* CLOCK_MONOTONIC when every hook for that change was installed; 0: not yet */
    uint64_t hooks_in_ns;
    uint64_t looking_ns; /* CPU ns that looking took in the flushed intervals */
    uint64_t looked_cpu_ns; /* CPU ns of the process in these intervals */
    uint64_t overhead_limit; /* PROBESCOPE_MAX_OVERHEAD in millionths; 0: none */
    /* CLOCK_MONOTONIC at the end of the last flushed interval, as in stats__done; 0: none yet */
    uint64_t cut;
    /* CPU ns, at the library's ticks, of the threads whose stacks are read there; 0: none are */
    uint64_t ticked_ran_ns;
    /*
     * the same by the ticks: for each thread that a tick met on a CPU, the ns since the tick before
     */
    uint64_t ticked_met_ns;
    uint64_t ticked_met; /* how often a tick met a thread on a CPU */
    struct ps_info_probe probes[PS_PROBE_COUNT];
};

/* Commands of other versions read at these offsets. */
_Static_assert(offsetof(struct ps_info_probe, name) == 0, "providers/info.yml");
_Static_assert(offsetof(struct ps_info_probe, state) == 24, "providers/info.yml");
_Static_assert(offsetof(struct ps_info_probe, enabled) == 28, "providers/info.yml");
_Static_assert(offsetof(struct ps_info_probe, semaphore) == 32, "providers/info.yml");
_Static_assert(offsetof(struct ps_info_probe, reason) == 40, "providers/info.yml");
_Static_assert(offsetof(struct ps_info_probe, out_ns) == 160, "providers/info.yml");
_Static_assert(sizeof(struct ps_info_probe) == 168, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, magic) == 0, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, size) == 8, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, abi) == 12, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, sequence) == 16, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, probe_count) == 20, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, probe_size) == 24, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, probes_offset) == 28, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, runtime) == 32, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, version) == 48, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, library) == 80, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, pid) == 96, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, flags) == 100, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, memory_limit) == 104, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, memory_used) == 112, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, rows_dropped) == 120, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, flushes) == 128, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, switches) == 136, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, watcher_ticks) == 144, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, note) == 152, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, asked_ns) == 280, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, hooks_in_ns) == 288, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, looking_ns) == 296, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, looked_cpu_ns) == 304, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, overhead_limit) == 312, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, cut) == 320, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, ticked_ran_ns) == 328, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, ticked_met_ns) == 336, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, ticked_met) == 344, "providers/info.yml");
_Static_assert(offsetof(struct ps_info, probes) == 352, "providers/info.yml");

#endif

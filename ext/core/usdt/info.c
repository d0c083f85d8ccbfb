#include "usdt/info.h"

#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fork.h"
#include "base/memory.h"
#include "usdt/taken_out.h"

struct ps_info probescope_info = {.magic = PS_INFO_MAGIC};
const char *const ps_state_names[] = {PS_STATE_NAMES};

/*
 * Writers are rare and may be on two threads (watcher, VM). The thread that makes the number odd
 * writes.
 */
static void begin(void)
{
    for (int tries = 0;; tries++) {
        uint32_t sequence = PS_READ(probescope_info.sequence) & ~1u;
        if (__atomic_compare_exchange_n(&probescope_info.sequence, &sequence, sequence + 1, 0,
                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            break;
        /* Sleep: the writer may be waiting for this thread's CPU, or have a lower priority. */
        if (tries > 100) nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

static void end(void)
{
    PS_WRITE_RELEASE(probescope_info.sequence, PS_READ(probescope_info.sequence) + 1);
}

#define COPY(to, from) snprintf((to), sizeof(to), "%s", (from))

void ps_info_start(const char *runtime, const char *runtime_version, const char *library_version)
{
    struct ps_info *info = &probescope_info;
    begin();
    info->size = sizeof(*info);
    info->abi = PS_ABI;
    info->probe_count = PS_PROBE_COUNT;
    info->probe_size = sizeof(info->probes[0]);
    info->probes_offset = offsetof(struct ps_info, probes);
    COPY(info->runtime, runtime);
    COPY(info->version, runtime_version);
    COPY(info->library, library_version);
    info->pid = getpid();
    for (int i = 0; i < PS_PROBE_COUNT; i++) {
        COPY(info->probes[i].name, ps_probe_names[i]);
        info->probes[i].semaphore = (uint64_t)(uintptr_t)&ps_semaphores[i];
    }
    info->memory_limit = ps_memory_limit();
    end();
}

void ps_info_flag(uint32_t flag, int on)
{
    begin();
    if (on) probescope_info.flags |= flag;
    else probescope_info.flags &= ~flag;
    end();
}

void ps_info_note(const char *note)
{
    begin();
    COPY(probescope_info.note, note);
    end();
}

void ps_info_state(enum ps_probe probe, enum ps_state state, const char *reason)
{
    begin();
    probescope_info.probes[probe].state = state;
    COPY(probescope_info.probes[probe].reason, reason ? reason : "");
    end();
}

void ps_info_states(ps_probe_set probes, enum ps_state state, const char *reason)
{
    for (int i = 0; i < PS_PROBE_COUNT; i++)
        if ((probes >> i) & 1) ps_info_state((enum ps_probe)i, state, reason);
}

ps_probe_set ps_info_probes_in(enum ps_state state)
{
    ps_probe_set probes = 0;
    for (int i = 0; i < PS_PROBE_COUNT; i++)
        probes |= (ps_probe_set)(ps_info_state_of((enum ps_probe)i) == state) << i;
    return probes;
}

void ps_info_off(enum ps_probe probe)
{
    begin();
    probescope_info.probes[probe].state = PS_STATE_OFF;
    end();
}

void ps_info_taken_out(ps_probe_set probes, uint64_t ns, const char *reason)
{
    /* In one change, so that a command never reads the state without the time. */
    begin();
    for (int i = 0; i < PS_PROBE_COUNT; i++) {
        if (!((probes >> i) & 1)) continue;
        probescope_info.probes[i].state = ns ? PS_STATE_REFUSED : PS_STATE_OFF;
        if (ns) COPY(probescope_info.probes[i].reason, reason ? reason : "");
        probescope_info.probes[i].out_ns = ns;
    }
    end();
}

enum ps_state ps_info_state_of(enum ps_probe probe)
{
    return (enum ps_state)PS_READ(probescope_info.probes[probe].state);
}

void ps_info_degrade(ps_probe_set probes, const char *reason)
{
    for (int i = 0; i < PS_PROBE_COUNT; i++)
        if ((probes >> i) & 1 && ps_info_state_of((enum ps_probe)i) < PS_STATE_DEGRADED)
            ps_info_state((enum ps_probe)i, PS_STATE_DEGRADED, reason);
}

void ps_info_refresh(void)
{
    begin();
    probescope_info.memory_limit = ps_memory_limit(); /* the limit may be set after the start */
    probescope_info.memory_used = ps_memory_used();
    probescope_info.overhead_limit = ps_overhead_limit;
    for (int i = 0; i < PS_PROBE_COUNT; i++) probescope_info.probes[i].enabled = ps_semaphores[i];
    end();
}

void ps_info_hooks(uint64_t asked_ns, uint64_t hooks_in_ns)
{
    begin();
    probescope_info.asked_ns = asked_ns;
    probescope_info.hooks_in_ns = hooks_in_ns;
    end();
}

void ps_info_interval(uint64_t until_ns, uint64_t cpu_ns, uint64_t looking_ns)
{
    begin();
    probescope_info.cut = until_ns;
    probescope_info.looking_ns += looking_ns;
    probescope_info.looked_cpu_ns += cpu_ns;
    end();
}

void ps_info_ticked(uint64_t ran_ns, uint64_t met_ns, uint32_t met)
{
    begin();
    probescope_info.ticked_ran_ns += ran_ns;
    probescope_info.ticked_met_ns += met_ns;
    probescope_info.ticked_met += met;
    end();
}

void ps_info_after_fork(void)
{
    /* A thread of the parent may have been writing. That thread does not exist in the child. */
    PS_WRITE(probescope_info.sequence, PS_READ(probescope_info.sequence) & ~1u);
    begin();
    probescope_info.pid = getpid();
    end();
}
PS_FORK_STEP(PS_FORK_INFO, .in_child = ps_info_after_fork)

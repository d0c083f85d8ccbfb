#include "agent/switching.h"

#include "agent/overhead.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "features/samples.h"
#include "table/flush.h"
#include "table/interned_strings.h"
#include "table/routes.h"
#include "usdt/info.h"
#include "usdt/probe.h"

static struct {
    const ps_part *table;
    size_t count;
    const ps_vm *vm; /* NULL before the first installation */
    bool installed;
    bool any; /* a tracer listens */
} parts;

static bool serves(const ps_part *part, int probe)
{
    return (part->probes >> probe) & 1;
}

static void state_probes(uint32_t wanted)
{
    const char *refused[PS_PROBE_COUNT] = {NULL};
    for (const ps_part *part = parts.table; part < parts.table + parts.count; part++) {
        const char *reason = part->refused ? part->refused() : NULL;
        for (int i = 0; reason && i < PS_PROBE_COUNT; i++)
            if (serves(part, i)) refused[i] = reason;
    }
    for (int i = 0; i < PS_PROBE_COUNT; i++) {
        enum ps_state state = ps_info_state_of((enum ps_probe)i);
        bool on = (wanted >> i) & 1;
        if ((PS_READ(ps_overhead_out) >> i) & 1) continue;
        /* A hook that refuses or degrades a probe sets the state itself while the probe is on. */
        if (state == PS_STATE_UNSUPPORTED || (state >= PS_STATE_DEGRADED && on)) continue;
        if (on || refused[i])
            ps_info_state((enum ps_probe)i, refused[i] ? PS_STATE_REFUSED : PS_STATE_ON, refused[i]);
        else ps_info_off((enum ps_probe)i);
    }
}

void ps_parts_init(const ps_part *table, size_t count)
{
    parts.table = table;
    parts.count = count;
    /* The core fires these, or they change what other probes do. */
    uint32_t served =
        PS_BIT(FUNCTIONS__ALL) | PS_BIT(STATS__BY_REQUEST) | PS_BIT(STATS__DONE) | PS_BIT(STATUS);
    for (size_t i = 0; i < count; i++) served |= table[i].probes;
    for (int i = 0; i < PS_PROBE_COUNT; i++)
        if (!((served >> i) & 1))
            ps_info_state((enum ps_probe)i, PS_STATE_UNSUPPORTED,
                          "this version of probescope does not fire it yet");
}

/*
 * Called when the last listener has left and every part has cleared its rows. Returns false while a
 * flush holds the lock: try again later.
 */
static bool forget_names(void)
{
    bool (*try_lock)(void) =
        parts.vm && parts.vm->try_lock_tables ? parts.vm->try_lock_tables : ps_stats_try_lock;
    if (!try_lock()) return false;
    ps_samples_forget_stacks();
    ps_by_request_clear();
    ps_sites_clear();
    ps_stats_unlock();
    return true;
}

/* Does one slice for each part. Returns true when every hook is as `wanted` requires. */
static bool hook_all(uint32_t wanted)
{
    bool done = true;
    for (size_t i = 0; i < parts.count; i++)
        if (parts.table[i].hook) done &= parts.table[i].hook(wanted);
    return done && (wanted || PS_READ(ps_overhead_out) || forget_names());
}

void ps_parts_switch(void)
{
    uint32_t wanted = ps_watcher_switching();
    if (!parts.installed) wanted = 0;
    /* Ticks of two clocks cannot be compared. So the clock is chosen while no hook is in. */
    if (wanted && !parts.any) ps_info_flag(PS_INFO_CYCLE_CLOCK, ps_clock_choose());
    parts.any = wanted != 0;
    if (!hook_all(wanted)) {
        ps_watcher_progress();
        return;
    }
    state_probes(wanted);
    ps_watcher_applied(wanted);
}

int ps_parts_install(const ps_vm *vm)
{
    /*
     * The watcher starts last. It may request a job from the VM at once. state_probes() calls
     * refused(), which may run that job, and would then overwrite the states that the job has set.
     */
    ps_overhead_start();
    state_probes(0);
    parts.installed = true;
    parts.vm = vm;
    int error = ps_watcher_start(vm);
    if (error) {
        parts.installed = false;
        return error;
    }
    ps_info_flag(PS_INFO_INSTALLED, 1);
    return 0;
}

bool ps_parts_installed(void)
{
    return parts.installed;
}

void ps_parts_uninstall(void)
{
    parts.installed = false;
    ps_info_flag(PS_INFO_INSTALLED, 0);
}

bool ps_parts_unhook(void)
{
    if (!hook_all(0)) return false;
    state_probes(0);
    ps_watcher_applied(0);
    return true;
}

bool ps_parts_need_upkeep(void)
{
    for (size_t i = 0; i < parts.count; i++)
        if (parts.table[i].needs_upkeep && parts.table[i].needs_upkeep()) return true;
    return false;
}

void ps_parts_do_upkeep(void)
{
    for (size_t i = 0; i < parts.count; i++)
        if (parts.table[i].needs_upkeep && parts.table[i].needs_upkeep()) parts.table[i].do_upkeep();
}

#include "agent/switching.h"

#include "agent/overhead.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "table/feature.h"
#include "table/flush.h"
#include "table/interned_strings.h"
#include "table/routes.h"
#include "usdt/info.h"
#include "usdt/probe.h"

static struct {
    const ps_hooks *table;
    size_t count;
    const ps_vm *vm; /* NULL before the first installation */
    bool installed;
    bool any; /* a tracer listens */
} features;

static bool serves(const ps_hooks *hooks, int probe)
{
    return (hooks->probes >> probe) & 1;
}

static void state_probes(uint32_t wanted)
{
    const char *refused[PS_PROBE_COUNT] = {NULL};
    for (const ps_hooks *hooks = features.table; hooks < features.table + features.count; hooks++) {
        const char *reason = hooks->refused ? hooks->refused() : NULL;
        for (int i = 0; reason && i < PS_PROBE_COUNT; i++)
            if (serves(hooks, i)) refused[i] = reason;
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

void ps_features_init(const ps_hooks *table, size_t count)
{
    features.table = table;
    features.count = count;
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
 * Called when the last listener has left and every feature has cleared its rows. Returns false
 * while a flush holds the lock: try again later.
 */
static bool forget_names(void)
{
    bool (*try_lock)(void) =
        features.vm && features.vm->try_lock_tables ? features.vm->try_lock_tables : ps_flush_try_lock;
    if (!try_lock()) return false;
    for (const ps_feature *const *each = ps_features; *each; each++)
        if ((*each)->forget) (*each)->forget();
    ps_routes_clear();
    ps_sites_clear();
    ps_flush_unlock();
    return true;
}

/* Does one slice for each feature. Returns true when every hook is as `wanted` requires. */
static bool hook_all(uint32_t wanted)
{
    bool done = true;
    for (size_t i = 0; i < features.count; i++)
        if (features.table[i].hook) done &= features.table[i].hook(wanted);
    return done && (wanted || PS_READ(ps_overhead_out) || forget_names());
}

void ps_features_switch(void)
{
    uint32_t wanted = ps_watcher_switching();
    if (!features.installed) wanted = 0;
    /* Ticks of two clocks cannot be compared. So the clock is chosen while no hook is in. */
    if (wanted && !features.any) ps_info_flag(PS_INFO_CYCLE_CLOCK, ps_clock_choose());
    features.any = wanted != 0;
    if (!hook_all(wanted)) {
        ps_watcher_progress();
        return;
    }
    state_probes(wanted);
    ps_watcher_applied(wanted);
}

int ps_features_install(const ps_vm *vm)
{
    /*
     * The watcher starts last. It may request a job from the VM at once. state_probes() calls
     * refused(), which may run that job, and would then overwrite the states that the job has set.
     */
    ps_overhead_start();
    state_probes(0);
    features.installed = true;
    features.vm = vm;
    int error = ps_watcher_start(vm);
    if (error) {
        features.installed = false;
        return error;
    }
    ps_info_flag(PS_INFO_INSTALLED, 1);
    return 0;
}

bool ps_features_installed(void)
{
    return features.installed;
}

void ps_features_uninstall(void)
{
    features.installed = false;
    ps_info_flag(PS_INFO_INSTALLED, 0);
}

bool ps_features_unhook(void)
{
    if (!hook_all(0)) return false;
    state_probes(0);
    ps_watcher_applied(0);
    return true;
}

bool ps_features_need_upkeep(void)
{
    for (size_t i = 0; i < features.count; i++)
        if (features.table[i].needs_upkeep && features.table[i].needs_upkeep()) return true;
    return false;
}

void ps_features_do_upkeep(void)
{
    for (size_t i = 0; i < features.count; i++)
        if (features.table[i].needs_upkeep && features.table[i].needs_upkeep()) features.table[i].do_upkeep();
}

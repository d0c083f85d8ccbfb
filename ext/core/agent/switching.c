#include "agent/switching.h"

#include <stddef.h>

#include "agent/overhead.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "table/flush.h"
#include "table/interned_strings.h"
#include "table/routes.h"
#include "usdt/info.h"
#include "usdt/probe.h"

/* Of each of the VM's hooks. */
struct state {
    ps_probe_set in; /* the probes of its feature that it was asked for */
    /*
     * Nobody listens to these probes any more: when the hooks are out, the rows are cleared, or what
     * the feature keeps instead. A tracer that comes back finds empty tables, as if it were the
     * first one.
     */
    bool clearing;
};

static struct {
    struct state of[PS_HOOKS_MAX];
    bool installed;
    bool any; /* a tracer listens */
} features;

/* ---- States of the probes ---- */

static ps_probe_set probes_of(const ps_hooks *hooks)
{
    return hooks->feature ? hooks->feature->probes : 0;
}

static void state_probes(ps_probe_set wanted)
{
    const char *refused[PS_PROBE_COUNT] = {NULL};
    for (int i = 0; ps_the_vm.hooks[i]; i++) {
        const ps_hooks *hooks = ps_the_vm.hooks[i];
        const char *reason = hooks->refused ? hooks->refused() : NULL;
        for (int probe = 0; reason && probe < PS_PROBE_COUNT; probe++)
            if (probes_of(hooks) >> probe & 1) refused[probe] = reason;
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

static void state_unsupported(ps_probe_set probes, const char *reason)
{
    for (int i = 0; reason && i < PS_PROBE_COUNT; i++)
        if (probes >> i & 1) ps_info_state((enum ps_probe)i, PS_STATE_UNSUPPORTED, reason);
}

void ps_features_init(void)
{
    /* The core fires these, or they change what other probes do. */
    ps_probe_set served =
        PS_BIT(FUNCTIONS__ALL) | PS_BIT(STATS__BY_REQUEST) | PS_BIT(STATS__DONE) | PS_BIT(STATUS);
    for (int i = 0; ps_the_vm.hooks[i]; i++) {
        const ps_hooks *hooks = ps_the_vm.hooks[i];
        served |= probes_of(hooks);
        if (hooks->unsupported) state_unsupported(hooks->unsupported, hooks->why());
    }
    state_unsupported(~served, "this version of probescope does not fire it yet");
}

/* ---- Rows ---- */

/* False while the flush reads the rows, or hooks run on other threads: try again later. */
static bool lock_tables(void)
{
    return (!ps_the_vm.may_clear || ps_the_vm.may_clear()) && ps_flush_try_lock();
}

static bool clear(const ps_hooks *hooks)
{
    if (!lock_tables()) return false;
    if (hooks->feature->forget) hooks->feature->forget();
    if (hooks->forget) hooks->forget();
    if (hooks->feature->table) ps_table_clear(hooks->feature->table);
    ps_flush_unlock();
    return true;
}

bool ps_features_clear(const ps_feature *feature)
{
    const ps_hooks *const *each = ps_the_vm.hooks;
    while ((*each)->feature != feature) each++;
    return clear(*each);
}

/* Called when the last listener has left and every feature has cleared its rows. */
static bool forget_names(void)
{
    if (!lock_tables()) return false;
    ps_routes_clear();
    ps_sites_clear();
    ps_flush_unlock();
    return true;
}

/* ---- Hooks ---- */

static bool hook(const ps_hooks *hooks, ps_probe_set wanted)
{
    return !hooks->hook || hooks->hook(wanted);
}

/* Does one slice. Returns true when the hooks are as `wanted` requires. */
static bool switch_one(const ps_hooks *hooks, struct state *state, ps_probe_set wanted)
{
    ps_probe_set probes = probes_of(hooks);
    if (wanted & probes && hooks->refused && hooks->refused()) wanted &= ~probes;
    if (hooks->feature && hooks->feature->listen) hooks->feature->listen(wanted);
    if (state->in && !(wanted & probes)) state->clearing = hooks->feature->table || hooks->feature->forget;
    if (state->clearing) {
        if (!hook(hooks, wanted & ~probes) || !clear(hooks)) return false;
        state->clearing = false;
        state->in = 0;
        if (!(wanted & probes)) return true;
    }
    state->in = wanted & probes;
    return hook(hooks, wanted);
}

bool ps_features_hook(ps_probe_set wanted)
{
    bool done = true;
    for (int i = 0; ps_the_vm.hooks[i]; i++) done &= switch_one(ps_the_vm.hooks[i], &features.of[i], wanted);
    return done && (wanted || PS_READ(ps_overhead_out) || forget_names());
}

void ps_features_switch(void)
{
    ps_probe_set wanted = ps_watcher_switching();
    if (!features.installed) wanted = 0;
    /* Ticks of two clocks cannot be compared. So the clock is chosen while no hook is in. */
    if (wanted && !features.any) ps_info_flag(PS_INFO_CYCLE_CLOCK, ps_clock_choose());
    features.any = wanted != 0;
    if (!ps_features_hook(wanted)) {
        ps_watcher_progress();
        return;
    }
    state_probes(wanted);
    ps_watcher_applied(wanted);
}

int ps_features_install(void)
{
    /*
     * The watcher starts last. It may request a job from the VM at once. state_probes() calls
     * refused(), which may run that job, and would then overwrite the states that the job has set.
     */
    ps_overhead_start();
    state_probes(0);
    features.installed = true;
    int error = ps_watcher_start(&ps_the_vm);
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
    if (!ps_features_hook(0)) return false;
    state_probes(0);
    ps_watcher_applied(0);
    return true;
}

void ps_features_do_upkeep(void)
{
    for (const ps_hooks *const *each = ps_the_vm.hooks; *each; each++)
        if ((*each)->needs_upkeep && (*each)->needs_upkeep()) (*each)->upkeep();
}

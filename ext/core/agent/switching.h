/*
 * Switches features. Each feature hooks one kind of event, and each language has a table of its
 * features. The functions here do what is common to all languages: they switch hooks to the probes
 * that have listeners, and report the state of each probe in probescope_info.
 */
#ifndef PS_SWITCHING_H
#define PS_SWITCHING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/watcher.h"
#include "usdt/probe_groups.h"

/*
 * A function that a feature does not need is NULL. Called with the VM lock, unless noted otherwise.
 */
typedef struct ps_hooks {
    uint32_t probes; /* the probes that it serves */
    /*
     * Makes the feature's hooks match the probes that have listeners, or does a slice of that.
     * Returns true when it is done.
     */
    bool (*hook)(uint32_t wanted);
    /*
     * Returns the reason why the feature's probes are refused for now, also while no tracer
     * listens. NULL: they are not refused.
     */
    const char *(*refused)(void);
    /*
     * True when a hook left small work for later. Called on the watcher's thread, without the VM
     * lock.
     */
    bool (*needs_upkeep)(void);
    void (*do_upkeep)(void);
} ps_hooks;

/*
 * Called once, after ps_info_start(). The table must stay valid. Hooks are switched in its order.
 */
void ps_features_init(const ps_hooks *table, size_t count);
/* Starts the watcher. Returns 0 or an errno. */
int ps_features_install(const ps_vm *vm);
bool ps_features_installed(void);
/* No hook is put in after this. */
void ps_features_uninstall(void);
/*
 * Takes out all hooks, or a slice of them. Returns true when done. Called after
 * ps_features_uninstall() and the end of the watcher, whose flush could hold the lock.
 */
bool ps_features_unhook(void);

/* The VM calls these when it handles PS_REQUEST_SWITCH and PS_REQUEST_UPKEEP. */
void ps_features_switch(void);
void ps_features_do_upkeep(void);
/* For ps_vm.needs_upkeep. */
bool ps_features_need_upkeep(void);

#endif

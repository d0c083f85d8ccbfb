/*
 * Switches hooks, for every VM. The VM's hooks (vm/vm.h) say how one feature is hooked. Here it is
 * decided when: hooks match the probes that have listeners, a feature without listeners loses its
 * rows, and probescope_info tells the state of each probe.
 *
 * Called with the VM lock.
 */
#ifndef PS_SWITCHING_H
#define PS_SWITCHING_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/watcher.h"
#include "table/feature.h"
#include "vm/vm.h"

/* Called once, after ps_info_start(): reports the probes that the VM does not serve. */
void ps_features_init(void);
/* Starts the watcher. Returns 0 or an errno. */
int ps_features_install(void);
bool ps_features_installed(void);
/* No hook is put in after this. */
void ps_features_uninstall(void);
/*
 * Takes out all hooks, or a slice of them. Returns true when done. Called after
 * ps_features_uninstall() and the end of the watcher, whose flush could hold the lock.
 */
bool ps_features_unhook(void);

/*
 * Switches the hooks to these probes, or does a slice of that: one of each feature. Returns true
 * when every hook is as `wanted` requires, and rows that nobody reads any more are cleared.
 */
bool ps_features_hook(ps_probe_set wanted);

/* The VM calls these when it handles PS_REQUEST_SWITCH and PS_REQUEST_UPKEEP. */
void ps_features_switch(void);
void ps_features_do_upkeep(void);

/*
 * Clears the rows of a feature whose hooks are out. For a hook that begins again, because the rows
 * have other contents from now on. Returns false while they are read: try again later.
 */
bool ps_features_clear(const ps_feature *feature);

#endif

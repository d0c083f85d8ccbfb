/*
 * The parts of an extension. Each hooks one kind of event, and its language has a table of them;
 * what does not depend on the language is done here: hooks are switched to what is listened to, and
 * probescope_info says how each probe is.
 */
#ifndef PS_PARTS_H
#define PS_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "watcher.h"

/* Probes that are switched together in every language. */
#define PS_SLOW_PROBES (PS_BIT(FUNCTION__SLOW1MS) | PS_BIT(FUNCTION__SLOW10MS) | PS_BIT(FUNCTION__SLOW100MS))
#define PS_FUNCTION_PROBES                                                                                   \
    (PS_BIT(FUNCTION__ENTRY) | PS_BIT(FUNCTION__RETURN) | PS_SLOW_PROBES | PS_BIT(FUNCTION__STATS))
#define PS_LINE_PROBES PS_BIT(LINE)
#define PS_EXCEPTION_PROBES                                                                                  \
    (PS_BIT(EXCEPTION__RAISE) | PS_BIT(EXCEPTION__DETAIL) | PS_BIT(EXCEPTION__RESCUE) |                      \
     PS_BIT(EXCEPTION__STATS))
#define PS_BACKTRACE_PROBES (PS_BIT(BACKTRACE__DONE) | PS_BIT(EXCEPTION__STATS))
#define PS_OBJECT_PROBES    (PS_BIT(OBJECT__ALLOC) | PS_BIT(OBJECT__STATS))
#define PS_GC_PROBES        (PS_BIT(GC__START) | PS_BIT(GC__DONE))
#define PS_REQUEST_PROBES   (PS_BIT(REQUEST__START) | PS_BIT(REQUEST__DONE))
#define PS_SAMPLE_PROBES    (PS_BIT(SAMPLE) | PS_BIT(SAMPLE__STATS) | PS_BIT(SAMPLE__FRAME))

/* What is not needed is NULL. Called with the VM lock, where nothing else is said. */
typedef struct ps_part {
    uint32_t probes; /* which it serves */
    /*
     * Makes its hooks match the probes that are listened to, or a slice of it; true when that is
     * done.
     */
    bool (*hook)(uint32_t wanted);
    /* Why its probes are refused for now, also while nobody listens; NULL: they are not. */
    const char *(*refused)(void);
    /*
     * Is there small work that a hook left for later? Called on the watcher's thread, without the
     * VM lock.
     */
    bool (*needs_upkeep)(void);
    void (*do_upkeep)(void);
} ps_part;

/* Called once, after ps_info_start(). The table stays valid; hooks are switched in its order. */
void ps_parts_init(const ps_part *table, size_t count);
/* Starts the watcher; 0 or an errno. */
int ps_parts_install(const ps_vm *vm);
bool ps_parts_installed(void);
/* From now on no hook comes in. */
void ps_parts_uninstall(void);
/*
 * After that, and when the watcher has ended, whose flush could be in the way: takes out all hooks,
 * or a slice of them; true when done.
 */
bool ps_parts_unhook(void);

/* What the VM does when it is asked for PS_REQUEST_SWITCH and PS_REQUEST_UPKEEP. */
void ps_parts_switch(void);
void ps_parts_do_upkeep(void);
/* For ps_vm. */
bool ps_parts_need_upkeep(void);

#endif

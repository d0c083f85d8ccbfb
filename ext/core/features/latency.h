/*
 * Latency probes: one for each method that the application names, such as `latency:Shop.checkout`.
 * A probe fires with the ns that a call took, and its outcome.
 *
 * Each probe is in a library of its own, so that tracers of the other probes are not disturbed when
 * one is added. Nothing is hooked until a tracer raises the probe's semaphore. The watcher sees
 * that at its next look, and asks the VM to hook the method.
 *
 * Called with the VM lock, unless noted otherwise. A probe that was defined stays until the process
 * ends, because other threads read it without the lock.
 */
#ifndef PS_LATENCY_H
#define PS_LATENCY_H

#include <stdbool.h>
#include <stdint.h>

enum { PS_LATENCY_NAME = 128 };

typedef struct ps_latency {
    struct ps_latency *next;
    char name[PS_LATENCY_NAME];
    struct SDTProvider *provider;
    struct SDTProbe *probe;
    bool closed;        /* the application has closed it and not defined it again */
    bool hooked;        /* whether the VM has hooked the method */
    const char *reason; /* why the probe does not fire; NULL: no known reason */
} ps_latency;

/*
 * Returns the probe of that name. A new one is defined and shown to tracers. Returns NULL when the
 * name is not allowed: *error tells why.
 */
ps_latency *ps_latency_define(const char *name, const char **error);
/* Hides the probe from tracers. */
void ps_latency_close(ps_latency *latency);
/* The file by which tracers reach every process that has this probe. NULL when there is none. */
const char *ps_latency_path(const ps_latency *latency);
/* The first of all probes; `next` leads to the others. Any thread. */
ps_latency *ps_latency_first(void);
/*
 * The probe after this one that the application still has, or that has a reason to show. NULL:
 * after none, so the first. Returns NULL at the end.
 */
const ps_latency *ps_latency_next_shown(const ps_latency *after);

/* True while a tracer listens. Any thread, without the lock, like the next two. */
bool ps_latency_listened(const ps_latency *latency);
/* True when a probe has a listener and is not hooked, or the other way round. */
bool ps_latency_changed(void);
bool ps_latency_any_hooked(void);
/*
 * True when every probe with a listener is hooked, and no other one. installed: whether the library
 * is. While it is not, no probe may be hooked.
 */
bool ps_latency_is_switched(bool installed);
/* Records whether the VM has hooked the method. */
void ps_latency_hooked(ps_latency *latency, bool hooked);

void ps_latency_fire(const ps_latency *latency, uint64_t elapsed_ns, int outcome);

#endif

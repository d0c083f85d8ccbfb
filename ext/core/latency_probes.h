/*
 * Latency probes: one for each method that the application names, such as `latency:Shop.checkout`,
 * with the ns that a call took and its outcome.
 *
 * Each is in a library of its own, so that one more leaves the tracers of the others alone. Nothing
 * is hooked until a tracer raises its semaphore: the watcher finds that at its next look, and has
 * the VM hook those methods.
 *
 * Called with the VM lock, where nothing else is said. What is defined stays until the process
 * ends: others read it without.
 */
#ifndef PS_LATENCY_PROBES_H
#define PS_LATENCY_PROBES_H

#include <stdbool.h>
#include <stdint.h>

enum { PS_LATENCY_NAME = 128 };

typedef struct ps_latency {
    struct ps_latency *next;
    char name[PS_LATENCY_NAME];
    struct SDTProvider *provider;
    struct SDTProbe *probe;
    bool closed;        /* the application wants it no more, until it is defined again */
    bool hooked;        /* what the VM has made of it: as it was listened to then */
    const char *reason; /* why it is not told of; NULL: no reason that is known */
} ps_latency;

/*
 * The probe of that name; defined and shown to tracers when it is not yet. NULL: *error says what
 * is wrong with the name.
 */
ps_latency *ps_latency_define(const char *name, const char **error);
/* Takes it back from tracers. */
void ps_latency_close(ps_latency *latency);
/* The file by which tracers reach every process that has this probe; NULL: there is none. */
const char *ps_latency_path(const ps_latency *latency);
/* All of them, by their `next`; on any thread. */
ps_latency *ps_latency_first(void);

/* Does anybody listen? On any thread, without the lock, as the next two. */
bool ps_latency_listened(const ps_latency *latency);
/* Is anything listened to that is not hooked, or the other way round? */
bool ps_latency_changed(void);
bool ps_latency_any_hooked(void);
/* What the VM has made of it. */
void ps_latency_hooked(ps_latency *latency, bool hooked);

void ps_latency_fire(const ps_latency *latency, uint64_t elapsed_ns, int outcome);

#endif

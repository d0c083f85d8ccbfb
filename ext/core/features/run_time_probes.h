/*
 * The part of run-time probes that is the same in every language: what a probe consists of, how it
 * is added and fired, and what wrong arguments lead to.
 *
 * Include this header first, for the reason that usdt/provider_any.h gives.
 */
#ifndef PS_RUN_TIME_PROBES_H
#define PS_RUN_TIME_PROBES_H

#include "usdt/provider_any.h"

#include "base/atomic.h"

typedef struct ps_run_time_probe {
    SDTProbe_t *sdt; /* owned by the provider */
    int count;
    ArgType_t types[SDT_MAX_ARGUMENTS];
    uint64_t dropped; /* events with wrong arguments */
} ps_run_time_probe;

/* What a language calls the types of arguments. */
typedef struct ps_type_names {
    const char *text, *number, *integer; /* integer: the start of "an int that fits uint32" */
} ps_type_names;

enum { PS_TYPE_BUFFER = 64 };

/* Wrong arguments raise in the caller. Set in development. */
extern bool ps_run_time_strict;

/*
 * Adds the probe, whose count and types are set. Returns NULL, or what is wrong in the library's
 * words.
 */
const char *ps_run_time_add(ps_run_time_probe *probe, SDTProvider_t *provider, const char *name);
/* Shows the provider's probes to tracers. Returns the same. */
const char *ps_run_time_load(SDTProvider_t *provider);
/* Ends the provider. */
void ps_run_time_free(SDTProvider_t *provider);

/* Writes what an argument of this type has to be. Returns `to`. */
const char *ps_run_time_wanted(char to[static PS_TYPE_BUFFER], ArgType_t type, const ps_type_names *names);

/* Counts an event with wrong arguments. Returns true when the caller is to raise as well. */
static inline bool ps_run_time_refuse(ps_run_time_probe *probe)
{
    PS_FETCH_ADD(probe->dropped, 1);
    return PS_READ(ps_run_time_strict);
}

/* Returns whether a tracer listens. values: SDT_MAX_ARGUMENTS of them. */
static inline bool ps_run_time_fire(const ps_run_time_probe *probe, const uint64_t *values)
{
    bool enabled = probeIsEnabled(probe->sdt);
    if (enabled) ps_probe_fire(probe->sdt, values);
    return enabled;
}

#endif

#include "usdt/provider_any.h"

#include "features/latency.h"

#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "base/memory.h"

static ps_latency *first;

ps_latency *ps_latency_first(void)
{
    return PS_READ_ACQUIRE(first);
}

const ps_latency *ps_latency_next_shown(const ps_latency *after)
{
    const ps_latency *latency = after ? after->next : ps_latency_first();
    while (latency && latency->closed && !latency->reason) latency = latency->next;
    return latency;
}

static ps_latency *find(const char *name)
{
    ps_latency *latency = first;
    while (latency && strcmp(latency->name, name) != 0) latency = latency->next;
    return latency;
}

static ps_latency *make(const char *name, const char **error)
{
    static const ArgType_t types[] = {uint64, uint64};
    static char reason[160];
    ps_latency *latency = ps_memory_take(sizeof(*latency));
    *error = "no memory for it (PROBESCOPE_MEMORY)";
    if (!latency) return NULL;
    latency->provider = providerInit("latency");
    latency->probe = latency->provider ? ps_provider_add(latency->provider, name, 2, types) : NULL;
    if (latency->probe && strlen(name) < PS_LATENCY_NAME) {
        strcpy(latency->name, name);
        latency->closed = true;
        latency->next = first;
        PS_WRITE_RELEASE(first, latency);
        return latency;
    }
    if (latency->provider && latency->provider->error) {
        snprintf(reason, sizeof(reason), "%s", latency->provider->error);
        *error = reason;
    } else if (strlen(name) >= PS_LATENCY_NAME) {
        *error = "its name has more than 127 bytes";
    }
    if (latency->provider) providerDestroy(latency->provider);
    ps_memory_give(latency, sizeof(*latency));
    return NULL;
}

ps_latency *ps_latency_define(const char *name, const char **error)
{
    ps_latency *latency = find(name);
    if (!latency) latency = make(name, error);
    if (!latency || !latency->closed) return latency;
    latency->closed = ps_provider_load(latency->provider) != 0;
    latency->reason = NULL;
    if (latency->closed)
        latency->reason = latency->provider->error ? latency->provider->error : "it cannot be loaded";
    return latency;
}

void ps_latency_close(ps_latency *latency)
{
    latency->closed = true;
    latency->reason = NULL;
/* Upstream's library would unmap the semaphore, which the watcher may be about to read. */
#ifdef LIBSTAPSDT_PROBESCOPE
    providerUnload(latency->provider);
#endif
}

const char *ps_latency_path(const ps_latency *latency)
{
#ifdef LIBSTAPSDT_PROBESCOPE
    return providerPath(latency->provider);
#else
    return NULL;
#endif
}

bool ps_latency_listened(const ps_latency *latency)
{
    return !PS_READ(latency->closed) && probeIsEnabled(latency->probe);
}

bool ps_latency_changed(void)
{
    for (const ps_latency *latency = ps_latency_first(); latency; latency = latency->next)
        if (ps_latency_listened(latency) != PS_READ(latency->hooked)) return true;
    return false;
}

bool ps_latency_any_hooked(void)
{
    for (const ps_latency *latency = ps_latency_first(); latency; latency = latency->next)
        if (PS_READ(latency->hooked)) return true;
    return false;
}

bool ps_latency_is_switched(bool installed)
{
    return installed ? !ps_latency_changed() : !ps_latency_any_hooked();
}

void ps_latency_hooked(ps_latency *latency, bool hooked)
{
    PS_WRITE(latency->hooked, hooked);
}

void ps_latency_fire(const ps_latency *latency, uint64_t elapsed_ns, int outcome)
{
    uint64_t values[MAX_ARGUMENTS] = {elapsed_ns, (uint64_t)outcome};
    if (ps_latency_listened(latency)) ps_probe_fire(latency->probe, values);
}

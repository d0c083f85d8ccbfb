/*
 * One interface to run-time probes for both languages. It uses our own providers, or a
 * libstapsdt.so when this header is compiled with PS_OTHER_STAPSDT and that library's header comes
 * first. Upstream's libstapsdt supports six arguments at most, integers alone, and no semaphores.
 *
 * Include this header first: libstapsdt's own header has a member named errno, and <errno.h>
 * defines errno as a macro.
 */
#ifndef PS_PROVIDER_ANY_H
#define PS_PROVIDER_ANY_H

#include <libstapsdt.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef LIBSTAPSDT_PROBESCOPE
#define PS_MOST_ARGUMENTS SDT_MAX_ARGUMENTS

static inline SDTProbe_t *ps_provider_add(SDTProvider_t *provider, const char *name, int count,
                                          const ArgType_t *types)
{
    return providerAddProbeArray(provider, name, count, types);
}

static inline int ps_provider_load(SDTProvider_t *provider)
{
    return providerLoad(provider);
}

static inline void ps_probe_fire(SDTProbe_t *probe, const uint64_t *values)
{
    probeFireArray(probe, values);
}
#else
#define PS_MOST_ARGUMENTS MAX_ARGUMENTS
#define SDT_MAX_ARGUMENTS MAX_ARGUMENTS
enum { sdtDouble = 0x108, sdtString = 0x208 };

static inline SDTProbe_t *ps_provider_add(SDTProvider_t *provider, const char *name, int count,
                                          const ArgType_t *types)
{
    ArgType_t t[MAX_ARGUMENTS] = {noarg};
    if (provider->_handle || count < 0 || count > MAX_ARGUMENTS) return NULL;
    for (int i = 0; i < count; i++) t[i] = (int)types[i] > uint64 ? uint64 : types[i];
    return providerAddProbe(provider, name, count, t[0], t[1], t[2], t[3], t[4], t[5]);
}

/* Upstream's providerLoad() would load a loaded provider a second time. */
static inline int ps_provider_load(SDTProvider_t *provider)
{
    return provider->_handle ? 0 : providerLoad(provider);
}

/* values: six at least. */
static inline void ps_probe_fire(SDTProbe_t *probe, const uint64_t *v)
{
    probeFire(probe, v[0], v[1], v[2], v[3], v[4], v[5]);
}
#endif

/* "own", or the path of the libstapsdt.so. */
static inline const char *ps_provider_library(void)
{
#ifdef PS_OTHER_STAPSDT
    Dl_info info;
    return dladdr((void *)(uintptr_t)providerInit, &info) ? info.dli_fname : "libstapsdt.so";
#else
    return "own";
#endif
}

/* True when the type can hold the integer. value: its 64 bits. negative: the integer is below 0. */
static inline bool ps_type_holds(ArgType_t type, uint64_t value, bool negative)
{
    int bits = 8 * (int)(type < 0 ? -type : type);
    if (type > 0) return !negative && (bits == 64 || value >> bits == 0);
    int64_t number = (int64_t)value, limit = INT64_MAX >> (64 - bits);
    return negative ? number < 0 && number >= -limit - 1 : number >= 0 && number <= limit;
}

#endif

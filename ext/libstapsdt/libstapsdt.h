/*
 * USDT probes that a program defines while it runs. The API and the ABI are libstapsdt's
 * (https://github.com/linux-usdt/libstapsdt, documented at https://libstapsdt.readthedocs.io). What
 * libstapsdt does not have is marked "Beyond libstapsdt".
 *
 *   SDTProvider_t *provider = providerInit("shop");
 *   SDTProbe_t *checkout = providerAddProbe(provider, "checkout", 2, uint64, int32);
 *   if (providerLoad(provider) == -1) fprintf(stderr, "%s\n", provider->error);
 *   if (probeIsEnabled(checkout)) probeFire(checkout, "a string", 42);
 *   providerDestroy(provider);
 *
 *   # bpftrace -p PID -e 'usdt:*:shop:checkout { printf("%s %d\n", str(arg0), arg1) }'
 *
 * Threads: every function may be called on any thread. A probe may be fired while its provider is
 * unloaded or loaded again. No thread may use the provider or its probes when providerDestroy() is
 * called. A signal handler may call probeFire(), probeIsEnabled() and probeFireArray(), and no
 * other function. A child made by fork() keeps the probes that were loaded.
 */
#ifndef _LIBSTAPSDT_H
#define _LIBSTAPSDT_H

#include <stdint.h>

/*
 * The member `errno` is part of the API, and <errno.h> defines errno as a macro. A file that
 * includes <errno.h> uses the member lastError instead.
 */
#pragma push_macro("errno")
#undef errno

#ifdef __cplusplus
extern "C" {
#endif

#define MAX_ARGUMENTS 6

typedef enum {
    noError = -1,
    elfCreationError = 0,
    tmpCreationError = 1, /* no place for the library, or a '/' in the provider's name */
    sharedLibraryOpenError = 2,
    symbolLoadingError = 3,      /* not used here: nothing is looked up by its name */
    sharedLibraryCloseError = 4, /* not used here: unloading always succeeds */
    /* Beyond libstapsdt: */
    invalidNameError = 5,      /* the name of a provider or a probe is not allowed */
    invalidArgumentsError = 6, /* too many, or a type that does not exist */
    providerLoadedError = 7,   /* no probe can be added until the provider is unloaded */
} SDTError_t;

typedef enum {
    noarg = 0,
    uint8 = 1,
    int8 = -1,
    uint16 = 2,
    int16 = -2,
    uint32 = 4,
    int32 = -4,
    uint64 = 8,
    int64 = -8,
    /* Beyond libstapsdt: */
    /* A double. Tracers see its 64 bits as an unsigned integer. */
    sdtDouble = 0x108,
    /*
     * A const char * or NULL. probeFire() reads the string first, because a tracer cannot read
     * pages that were never touched.
     */
    sdtString = 0x208,
} ArgType_t;

typedef enum {
    memfd_disabled = 0,
    memfd_enabled = 1,
} MemFDOption_t;

struct SDTProvider;

typedef struct SDTProbe {
    char *name;
    ArgType_t argFmt[MAX_ARGUMENTS]; /* the first six; noarg after the last */
    void *_fire;
    struct SDTProvider *provider;
    int argCount;
} SDTProbe_t;

typedef struct SDTProbeList_ {
    SDTProbe_t probe;
    struct SDTProbeList_ *next;
} SDTProbeList_t;

typedef struct SDTProvider {
    char *name;
    SDTProbeList_t *probes; /* the probe that was added last comes first */
    union {
        SDTError_t errno; /* of the last call that failed */
        SDTError_t lastError;
    };
    char *error; /* the message for that error, or NULL */

    /* Private. */
    void *_handle;
    char *_filename;
    int _memfd;
    MemFDOption_t _use_memfd;
} SDTProvider_t;

/*
 * Takes any name. providerLoad() refuses a name that is not 1 to 127 of A-Z a-z 0-9 _ - . +.
 * Returns NULL when there is no memory.
 */
SDTProvider_t *providerInit(const char *name);

/*
 * Chooses where providerLoad() puts the library that tracers read.
 * - memfd_disabled, the default here: a file in a directory that only this user can enter
 *   ($XDG_RUNTIME_DIR/probescope or /tmp/probescope-UID). When neither works, the library is in
 *   memory all the same.
 * - memfd_enabled: in memory. bpftrace 0.25 and later do not look there, and no tracer can attach
 *   by path.
 *
 * Returns 1, or 0 when the provider is already loaded.
 */
int providerUseMemfd(SDTProvider_t *provider, const MemFDOption_t use_memfd);

/*
 * Adds a probe with argCount types. Returns NULL with provider->errno when the name (see
 * providerInit()), the count or a type is not allowed, or when the provider is loaded.
 */
SDTProbe_t *providerAddProbe(SDTProvider_t *provider, const char *name, int argCount, ...);

/*
 * Shows the probes to tracers. Returns 0, also when the provider is already loaded; -1 with
 * provider->errno on failure.
 */
int providerLoad(SDTProvider_t *provider);

/*
 * Hides the probes from tracers. Firing them does nothing then. Probes can be added, and the
 * provider can be loaded again. Always returns 0.
 */
int providerUnload(SDTProvider_t *provider);

/* Unloads the provider, and frees it and its probes. NULL is allowed. */
void providerDestroy(SDTProvider_t *provider);

/*
 * Fires the probe. It takes as many arguments as the probe has: an integer or a pointer each, and a
 * double for sdtDouble. It does nothing while no tracer listens.
 */
void probeFire(SDTProbe_t *probe, ...);

/*
 * 1 while a tracer listens to this probe of this process, else 0. A tracer that listens raises the
 * probe's semaphore.
 */
int probeIsEnabled(SDTProbe_t *probe);

/*
 * --- Beyond libstapsdt --------------------------------------------------------------------------
 */

#define LIBSTAPSDT_PROBESCOPE 1 /* defined where the header has what follows */
#define SDT_MAX_ARGUMENTS     12

/*
 * providerAddProbe() with up to twelve types. bpftrace reads the seventh and later arguments from
 * 0.24 on. Earlier versions refuse a program that names them.
 */
SDTProbe_t *providerAddProbeArray(SDTProvider_t *provider, const char *name, int argCount,
                                  const ArgType_t *types);

/*
 * probeFire() for bindings. It takes as many values as the probe has arguments. The value for a
 * double is its 64 bits.
 */
void probeFireArray(SDTProbe_t *probe, const uint64_t *values);

/*
 * The path that tracers can attach to. NULL when the provider is not loaded or is in memory. Valid
 * until the provider is unloaded.
 */
const char *providerPath(const SDTProvider_t *provider);

#ifdef __cplusplus
}
#endif

#pragma pop_macro("errno")

#endif

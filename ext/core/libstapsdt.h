/*
 * USDT probes that a program defines while it runs. The API and the ABI are libstapsdt's
 * (https://github.com/linux-usdt/libstapsdt, documented at https://libstapsdt.readthedocs.io); what
 * that library does not have stands at the end, under "Beyond libstapsdt".
 *
 *   SDTProvider_t *provider = providerInit("shop");
 *   SDTProbe_t *checkout = providerAddProbe(provider, "checkout", 2, uint64, int32);
 *   if (providerLoad(provider) == -1) fprintf(stderr, "%s\n", provider->error);
 *   if (probeIsEnabled(checkout)) probeFire(checkout, "a string", 42);
 *   providerDestroy(provider);
 *
 *   # bpftrace -p PID -e 'usdt:*:shop:checkout { printf("%s %d\n", str(arg0), arg1) }'
 *
 * Threads: every function may be called on any thread, and a probe may be fired while its provider
 * is unloaded or loaded again; providerDestroy() alone wants that nobody uses the provider and its
 * probes any more. None of them may be called in a signal handler but probeFire(), probeIsEnabled()
 * and probeFireArray(). A child made by fork() keeps the probes that were loaded.
 */
#ifndef _LIBSTAPSDT_H
#define _LIBSTAPSDT_H

#include <stdint.h>

/*
 * The member of that name is part of the API, and <errno.h> makes it a macro: such a file says
 * lastError.
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
    tmpCreationError = 1, /* no place for the library; or the provider's name has a '/' */
    sharedLibraryOpenError = 2,
    symbolLoadingError = 3,      /* not in use here: nothing is looked up by its name */
    sharedLibraryCloseError = 4, /* not in use here: what is loaded can always be unloaded */
    /* Beyond libstapsdt: */
    invalidNameError = 5,      /* of a provider or a probe */
    invalidArgumentsError = 6, /* too many, or of a type that does not exist */
    providerLoadedError = 7,   /* no probe can be added until it is unloaded */
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
    sdtDouble = 0x108, /* a double; tracers see the 64 bits of it as an unsigned integer */
    sdtString =
        0x208, /* a const char * or NULL; it is looked at before a tracer does, which cannot read untouched pages */
} ArgType_t;

typedef enum {
    memfd_disabled = 0,
    memfd_enabled = 1,
} MemFDOption_t;

struct SDTProvider;

typedef struct SDTProbe {
    char *name;
    ArgType_t argFmt[MAX_ARGUMENTS]; /* the first six; noarg behind the last */
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
    SDTProbeList_t *probes; /* the one that was added last comes first */
    union {
        SDTError_t errno; /* of the last call that failed */
        SDTError_t lastError;
    };
    char *error; /* what it was, in words, or NULL */

    /* Private. */
    void *_handle;
    char *_filename;
    int _memfd;
    MemFDOption_t _use_memfd;
} SDTProvider_t;

/*
 * Any name is taken; providerLoad() refuses those that are not 1 to 127 of A-Z a-z 0-9 _ - . +.
 * NULL: no memory.
 */
SDTProvider_t *providerInit(const char *name);

/*
 * Where providerLoad() puts the library that tracers read: memfd_disabled, the default here, a file
 * in a directory of this user's alone ($XDG_RUNTIME_DIR/probescope or /tmp/probescope-UID; in
 * memory all the same when neither takes it); memfd_enabled, in memory, where bpftrace 0.25 and
 * later do not look and nobody attaches by path. Returns 1, or 0 when the provider is loaded.
 */
int providerUseMemfd(SDTProvider_t *provider, const MemFDOption_t use_memfd);

/*
 * Adds a probe of argCount types. NULL with provider->errno: the name (as above), the count, a
 * type, or it is loaded.
 */
SDTProbe_t *providerAddProbe(SDTProvider_t *provider, const char *name, int argCount, ...);

/* Shows the probes to tracers. 0, also when it is loaded already; -1 with provider->errno. */
int providerLoad(SDTProvider_t *provider);

/*
 * Takes them back; they can be fired and say nothing. Probes can be added and the provider loaded
 * again. Always 0.
 */
int providerUnload(SDTProvider_t *provider);

/* Unloads it and frees it and its probes. NULL is fine. */
void providerDestroy(SDTProvider_t *provider);

/*
 * As many arguments as the probe has, each an integer, a pointer, or a double for sdtDouble. Does
 * nothing while nobody listens.
 */
void probeFire(SDTProbe_t *probe, ...);

/*
 * 1 while a tracer listens to this probe of this process, else 0. Tracers say so by the probe's
 * semaphore.
 */
int probeIsEnabled(SDTProbe_t *probe);

/*
 * --- Beyond libstapsdt
 * ---------------------------------------------------------------------------------------------------
 */

#define LIBSTAPSDT_PROBESCOPE 1 /* that what follows is there */
#define SDT_MAX_ARGUMENTS     12

/*
 * providerAddProbe() with up to twelve types. bpftrace reads the seventh and later arguments from
 * 0.24 on; before, it refuses a program that names them.
 */
SDTProbe_t *providerAddProbeArray(SDTProvider_t *provider, const char *name, int argCount,
                                  const ArgType_t *types);

/*
 * probeFire() for bindings: as many values as the probe has arguments; those of a double are its
 * bits.
 */
void probeFireArray(SDTProbe_t *probe, const uint64_t *values);

/*
 * The path that tracers can attach to, or NULL when the provider is not loaded or is in memory.
 * Valid until it is unloaded.
 */
const char *providerPath(const SDTProvider_t *provider);

#ifdef __cplusplus
}
#endif

#pragma pop_macro("errno")

#endif

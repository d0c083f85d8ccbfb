#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include "base/atomic.h"
#include "provider.h"

enum { IN_REGISTERS = 6, TOUCHED = 1024 };

/*
 * The sites are in no source file: provider_image.c writes them. Their notes tell where these
 * arguments are when a site is called.
 */
typedef void site6(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
typedef void site12(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                    uint64_t, uint64_t, uint64_t);

/*
 * Not instrumented: ThreadSanitizer would report a race, because the kernel writes the semaphore,
 * and the thread that unloads the provider covers it.
 */
#ifdef __SANITIZE_THREAD__
__attribute__((no_sanitize_thread))
#else
inline
#endif
static int
listens(const ps_provider_probe *probe)
{
    return PS_UNLIKELY(probe != NULL) && PS_UNLIKELY(*PS_READ_ACQUIRE(probe->semaphore) != 0);
}

/*
 * Reads the strings, because a tracer cannot read a page that was never touched. A tracer reads
 * 1024 bytes at most by default.
 */
static void touch(const ps_provider_probe *probe, const uint64_t *values)
{
    for (int i = 0; probe->strings >> i; i++) {
        if (!(probe->strings >> i & 1) || !values[i]) continue;
        size_t length = strnlen((const char *)(uintptr_t)values[i], TOUCHED);
        __asm__ volatile("" ::"r"(length) : "memory");
    }
}

/* values: six at least. */
static void fire(const ps_provider_probe *probe, const uint64_t *v)
{
    void *site = PS_READ_ACQUIRE(probe->node.probe._fire);
    if (!site) return;
    if (probe->strings) touch(probe, v);
    if (probe->node.probe.argCount <= IN_REGISTERS) ((site6 *)site)(v[0], v[1], v[2], v[3], v[4], v[5]);
    else ((site12 *)site)(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11]);
}

int probeIsEnabled(SDTProbe_t *probe)
{
    return listens((const ps_provider_probe *)probe);
}

void probeFire(SDTProbe_t *probe, ...)
{
    const ps_provider_probe *own = (const ps_provider_probe *)probe;
    if (!listens(own)) return;
    uint64_t values[SDT_MAX_ARGUMENTS] = {0};
    va_list arguments;
    va_start(arguments, probe);
    for (int i = 0; i < probe->argCount; i++) {
        if (own->doubles >> i & 1) {
            double value = va_arg(arguments, double);
            memcpy(&values[i], &value, sizeof(value));
        } else {
            /*
             * Both CPUs' calling conventions pass smaller types in the same place. The note tells
             * how many of the bytes count.
             */
            values[i] = va_arg(arguments, uint64_t);
        }
    }
    va_end(arguments);
    fire(own, values);
}

void probeFireArray(SDTProbe_t *probe, const uint64_t *values)
{
    const ps_provider_probe *own = (const ps_provider_probe *)probe;
    if (!listens(own)) return;
    uint64_t copy[SDT_MAX_ARGUMENTS] = {0};
    memcpy(copy, values, (size_t)probe->argCount * sizeof(*values));
    fire(own, copy);
}

/* The private struct behind each SDTProbe_t of libstapsdt.h. */
#ifndef PS_PROVIDER_H
#define PS_PROVIDER_H

#include <stdint.h>

#include "libstapsdt.h"

typedef struct ps_provider_probe {
    SDTProbeList_t node; /* first: users hold &node.probe */
    /*
     * Raised by the kernel. While the probe is not loaded, this points to a zero. Threads that fire
     * read it without a lock.
     */
    const volatile uint16_t *semaphore;
    ArgType_t types[SDT_MAX_ARGUMENTS];
    uint16_t doubles, strings; /* a bit for each argument */
} ps_provider_probe;

#endif

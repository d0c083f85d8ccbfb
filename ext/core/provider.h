/* What stands behind the structs of libstapsdt.h. */
#ifndef PS_PROVIDER_H
#define PS_PROVIDER_H

#include <stdint.h>

#include "libstapsdt.h"

typedef struct ps_provider_probe {
    SDTProbeList_t node; /* first: users hold &node.probe */
    /*
     * Raised by the kernel; of a probe that is not loaded, a zero. Read by threads that fire,
     * without a lock.
     */
    const volatile uint16_t *semaphore;
    ArgType_t types[SDT_MAX_ARGUMENTS];
    uint16_t doubles, strings; /* a bit for each argument */
} ps_provider_probe;

#endif

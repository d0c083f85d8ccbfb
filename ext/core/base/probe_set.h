/* A set of probes: a bit for each (usdt/probe_groups.h). */
#ifndef PS_PROBE_SET_H
#define PS_PROBE_SET_H

#include <stdint.h>

typedef uint64_t ps_probe_set;

#endif

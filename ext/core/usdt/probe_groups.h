/* Sets of probes: a bit for each probe. The features have the others (table/feature.h). */
#ifndef PS_PROBE_GROUPS_H
#define PS_PROBE_GROUPS_H

#include "base/probe_set.h"
#include "usdt/probes.gen.h"

#define PS_BIT(probe) (UINT64_C(1) << PS_PROBE_##probe)

#define PS_SLOW_PROBES    (PS_BIT(FUNCTION__SLOW1MS) | PS_BIT(FUNCTION__SLOW10MS) | PS_BIT(FUNCTION__SLOW100MS))
#define PS_REQUEST_PROBES (PS_BIT(REQUEST__START) | PS_BIT(REQUEST__DONE))

#endif

/* Sets of probes: a bit for each probe. */
#ifndef PS_PROBE_GROUPS_H
#define PS_PROBE_GROUPS_H

#include "usdt/probes.gen.h"

#define PS_BIT(probe) (1u << PS_PROBE_##probe)

/* Probes that are switched together in every language. */
#define PS_SLOW_PROBES (PS_BIT(FUNCTION__SLOW1MS) | PS_BIT(FUNCTION__SLOW10MS) | PS_BIT(FUNCTION__SLOW100MS))
#define PS_FUNCTION_PROBES                                                                                   \
    (PS_BIT(FUNCTION__ENTRY) | PS_BIT(FUNCTION__RETURN) | PS_SLOW_PROBES | PS_BIT(FUNCTION__STATS))
#define PS_LINE_PROBES PS_BIT(LINE)
#define PS_EXCEPTION_PROBES                                                                                  \
    (PS_BIT(EXCEPTION__RAISE) | PS_BIT(EXCEPTION__DETAIL) | PS_BIT(EXCEPTION__RESCUE) |                      \
     PS_BIT(EXCEPTION__STATS))
#define PS_BACKTRACE_PROBES (PS_BIT(BACKTRACE__DONE) | PS_BIT(EXCEPTION__STATS))
#define PS_OBJECT_PROBES    (PS_BIT(OBJECT__ALLOC) | PS_BIT(OBJECT__STATS))
#define PS_GC_PROBES        (PS_BIT(GC__START) | PS_BIT(GC__DONE))
#define PS_REQUEST_PROBES   (PS_BIT(REQUEST__START) | PS_BIT(REQUEST__DONE))
#define PS_SAMPLE_PROBES    (PS_BIT(SAMPLE) | PS_BIT(SAMPLE__STATS) | PS_BIT(SAMPLE__FRAME))

#endif

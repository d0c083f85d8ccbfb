#include "traceparent.h"

#include "info.h"

void ps_traceparent_is_unknown(uint32_t probes)
{
    static const char reason[] =
        "OpenTelemetry is loaded, but keeps its context in a way that is not known: traceparent is empty";
    for (int i = 0; i < PS_PROBE_COUNT; i++)
        if ((probes >> i) & 1 && ps_info_state_of((enum ps_probe)i) == PS_STATE_ON)
            ps_info_state((enum ps_probe)i, PS_STATE_DEGRADED, reason);
}

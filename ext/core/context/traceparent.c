#include "context/traceparent.h"

#include <inttypes.h>
#include <stdio.h>

#include "usdt/info.h"

/* Reads lowercase digits only, as the standard requires. */
static bool hex(const char *text, int digits, uint64_t *number)
{
    *number = 0;
    for (int i = 0; i < digits; i++) {
        bool letter = text[i] >= 'a' && text[i] <= 'f';
        if (!letter && (text[i] < '0' || text[i] > '9')) return false;
        *number = *number << 4 | (uint64_t)(letter ? text[i] - 'a' + 10 : text[i] - '0');
    }
    return true;
}

bool ps_traceparent_read(ps_trace *trace, const char *text, size_t size)
{
    enum { LENGTH = PS_TRACEPARENT_BUFFER - 1 };
    uint64_t version, flags;
    if (size < LENGTH || text[2] != '-' || text[35] != '-' || text[52] != '-') return false;
    if (!hex(text, 2, &version) || !hex(text + 3, 16, &trace->trace_id[0]) ||
        !hex(text + 19, 16, &trace->trace_id[1]) || !hex(text + 36, 16, &trace->span_id) ||
        !hex(text + 53, 2, &flags))
        return false;
    /* Later versions may have more fields. */
    if (version == 0xff || (size > LENGTH && (version == 0 || text[LENGTH] != '-'))) return false;
    /* Only these flags have a meaning yet: sampled, and a random id. Others are not passed on. */
    trace->flags = (uint8_t)flags & 3;
    return (trace->trace_id[0] || trace->trace_id[1]) && trace->span_id;
}

void ps_traceparent_write(char *to, const ps_trace *trace)
{
    snprintf(to, PS_TRACEPARENT_BUFFER, "00-%016" PRIx64 "%016" PRIx64 "-%016" PRIx64 "-%02x",
             trace->trace_id[0], trace->trace_id[1], trace->span_id, trace->flags);
}

void ps_traceparent_is_unknown(uint32_t probes)
{
    static const char reason[] =
        "OpenTelemetry is loaded, but keeps its context in a way that is not known: traceparent is empty";
    for (int i = 0; i < PS_PROBE_COUNT; i++)
        if ((probes >> i) & 1 && ps_info_state_of((enum ps_probe)i) == PS_STATE_ON)
            ps_info_state((enum ps_probe)i, PS_STATE_DEGRADED, reason);
}

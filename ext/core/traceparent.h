/* The W3C trace context of the application's current OpenTelemetry span, as the probes that carry it have it. */
#ifndef PS_TRACEPARENT_H
#define PS_TRACEPARENT_H

#include <stdint.h>

/* "00-", a trace id, "-", a span id, "-", flags, and a NUL. */
enum { PS_TRACEPARENT_BUFFER = 56 };

/* OpenTelemetry is there and cannot be read: says so of those of these probes that are on, until the detach. */
void ps_traceparent_is_unknown(uint32_t probes);

#endif

/*
 * The W3C trace context of the application's current OpenTelemetry span, or of the request, in the
 * form in which probes carry it. https://www.w3.org/TR/trace-context/
 */
#ifndef PS_TRACEPARENT_H
#define PS_TRACEPARENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "00-", a trace id, "-", a span id, "-", flags, and a NUL. */
enum { PS_TRACEPARENT_BUFFER = 56 };

typedef struct ps_trace {
    uint64_t trace_id[2], span_id;
    uint8_t flags;
} ps_trace;

/* Parses a header. Returns false when it does not follow the standard. */
bool ps_traceparent_read(ps_trace *trace, const char *text, size_t size);
void ps_traceparent_write(char *to, const ps_trace *trace);

/*
 * OpenTelemetry is loaded, but its context cannot be read. Marks those of these probes that are on
 * as degraded, until the detach.
 */
void ps_traceparent_is_unknown(uint32_t probes);

#endif

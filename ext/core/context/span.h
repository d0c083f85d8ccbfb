/*
 * A span: the W3C trace context of the application's current OpenTelemetry span, or of a request.
 * It is passed on as bytes. Text is read where a request comes in, and written where a probe fires.
 * https://www.w3.org/TR/trace-context/
 */
#ifndef PS_SPAN_H
#define PS_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bytes in the order of their hexadecimal digits. All zeros: there is no span. */
typedef struct ps_span {
    uint8_t trace_id[16], span_id[8];
    uint8_t flags;
    bool known;
} ps_span;

/* Only these flags have a meaning yet: sampled, and a random id. Requests pass on no others. */
enum { PS_SPAN_FLAGS = 3 };
/* "00-", a trace id, "-", a span id, "-", flags, and a NUL. */
enum { PS_TRACEPARENT_BUFFER = 56 };

/*
 * Parses the traceparent header of a request. Returns false, and sets no span, when the header does
 * not follow the standard.
 */
bool ps_span_of_header(ps_span *span, const char *text, size_t size);
/* Writes the span as probes carry it, "" for no span. Returns `to`. */
const char *ps_span_text(char to[static PS_TRACEPARENT_BUFFER], const ps_span *span);

/* The id of a span as a number, for probes that carry it as one. */
uint64_t ps_span_number(const uint8_t span_id[static 8]);
void ps_span_set_number(uint8_t span_id[static 8], uint64_t number);

#endif

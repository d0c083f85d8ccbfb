/*
 * Requests and jobs: request__start and request__done, which the middleware of each language and the hooks of job libraries have
 * fired.
 *
 * Where the application has no OpenTelemetry of its own, a request has a trace context: a span id, and the trace of the
 * traceparent header that came with it, or a new one. What fires while it is the current one (slow calls, details of exceptions)
 * has that for its traceparent.
 */
#ifndef PS_REQUEST_H
#define PS_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "parts.h"
#include "probe.h"
#include "traceparent.h"

enum { PS_METHOD_MAX = 31, PS_ROUTE_MAX = 255 };

/* What the application has, as it is: any bytes. NULL is none. */
typedef struct ps_text {
    const char *bytes;
    size_t size;
} ps_text;

typedef struct ps_request {
    char method[PS_METHOD_MAX + 1], path[PS_ROUTE_MAX + 1];
    char traceparent[PS_TRACEPARENT_BUFFER]; /* its own, or what came in, or "" */
    uint64_t span_id, parent_id;
    uint64_t start; /* ns */
    bool own;       /* the span is its own */
    bool done;
} ps_request;

/* Does somebody listen to what a request is needed for? While nobody does, none should be begun. */
static inline bool ps_requests_wanted(void)
{
    return PS_ENABLED(REQUEST__START) || PS_ENABLED(REQUEST__DONE) || PS_ENABLED(FUNCTION__SLOW1MS) ||
           PS_ENABLED(FUNCTION__SLOW10MS) || PS_ENABLED(FUNCTION__SLOW100MS) || PS_ENABLED(EXCEPTION__DETAIL);
}

/*
 * header: the traceparent that came in. own: the application has no OpenTelemetry. current: traceparent of the current span that
 * it has, or "".
 */
void ps_request_start(ps_request *request, ps_text method, ps_text path, ps_text header, bool own, const char *current);
/* Once: what is called again does nothing. template: the route's, or NULL. */
void ps_request_done(ps_request *request, ps_text template, uint64_t status, const char *current);

#endif

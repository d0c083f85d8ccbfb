/*
 * Requests and jobs: request__start and request__done, which the middleware of each language and
 * the hooks of job libraries have fired.
 *
 * Where the application has no OpenTelemetry of its own, a request has a trace context: a span id,
 * and the trace of the traceparent header that came with it, or a new one. What fires while it is
 * the current one (slow calls, details of exceptions) has that for its traceparent.
 */
#ifndef PS_REQUEST_H
#define PS_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "by_request.h"
#include "parts.h"
#include "probe.h"
#include "traceparent.h"

enum { PS_METHOD_MAX = 31, PS_ROUTE_MAX = 255, PS_SYSTEM_MAX = 31, PS_QUEUE_MAX = 62, PS_SCHEME_MAX = 15 };

/* What the application has, as it is: any bytes. NULL is none. */
typedef struct ps_text {
    const char *bytes;
    size_t size;
} ps_text;

typedef struct ps_request {
    char method[PS_METHOD_MAX + 1], path[PS_ROUTE_MAX + 1];
    char traceparent[PS_TRACEPARENT_BUFFER]; /* its own, or what came in, or "" */
    uint64_t span_id, parent_id;
    uint64_t start;                                          /* ns */
    bool own;                                                /* the span is its own */
    pid_t pid;                                               /* of the process that began it */
    char system[PS_SYSTEM_MAX + 1], queue[PS_QUEUE_MAX + 1]; /* of a job, or "" */
    char scheme[PS_SCHEME_MAX + 1];                          /* of a URL, or "" */
    ps_counted counted;
    bool done;
} ps_request;

/* Does somebody listen to what a request is needed for? While nobody does, none should be begun. */
static inline bool ps_requests_wanted(void)
{
    return PS_ENABLED(REQUEST__START) || PS_ENABLED(REQUEST__DONE) || PS_ENABLED(FUNCTION__SLOW1MS) ||
           PS_ENABLED(FUNCTION__SLOW10MS) || PS_ENABLED(FUNCTION__SLOW100MS) ||
           PS_ENABLED(EXCEPTION__DETAIL) || PS_ENABLED(STATS__BY_REQUEST);
}

/*
 * Something here tells of requests or jobs from now on, whether there are any or not:
 * probescope_info says so.
 */
void ps_requests_told(void);
/*
 * header: the traceparent that came in. own: the application has no OpenTelemetry. current:
 * traceparent of the current span that it has, or of the request that this one is made in, whose
 * child it is where no header came; or "".
 */
void ps_request_start(ps_request *request, ps_text method, ps_text path, ps_text scheme, ps_text header,
                      bool own, const char *current);
/*
 * The same for a job, whose name is the path. system: what runs it; queue: where it came from, or
 * NULL.
 */
void ps_request_start_job(ps_request *request, ps_text name, ps_text header, bool own, const char *current,
                          ps_text system, ps_text queue);
/*
 * Once: what is called again does nothing. In a child that was forked meanwhile nothing fires.
 * template: the route's, or NULL.
 */
void ps_request_done(ps_request *request, ps_text template, uint64_t status, const char *current);
/* It is to be freed, whether it is done or not. */
void ps_request_forget(ps_request *request);

#endif

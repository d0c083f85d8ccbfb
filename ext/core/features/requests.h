/*
 * Requests and jobs: request__start and request__done. The middleware of each language and the
 * hooks of job libraries fire them.
 *
 * Where the application has no OpenTelemetry of its own, a request gets a trace context: a span id,
 * and the trace of the traceparent header that came with it, or a new trace. Probes that fire while
 * the request is current (slow calls, details of exceptions) have this context as their
 * traceparent.
 */
#ifndef PS_REQUESTS_H
#define PS_REQUESTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "context/span.h"
#include "table/feature.h"
#include "table/routes.h"
#include "usdt/probe.h"

extern const ps_feature ps_requests_feature;

enum { PS_METHOD_MAX = 31, PS_ROUTE_MAX = 255, PS_SYSTEM_MAX = 31, PS_QUEUE_MAX = 62, PS_SCHEME_MAX = 15 };

/* Bytes as the application has them: they may be any bytes. NULL is none. */
typedef struct ps_text {
    const char *bytes;
    size_t size;
} ps_text;

typedef struct ps_request {
    char method[PS_METHOD_MAX + 1], path[PS_ROUTE_MAX + 1];
    ps_span span; /* its own, or the one that came in, or none */
    uint64_t span_id, parent_id;
    uint64_t start;                                          /* ns */
    bool own;                                                /* the span was made here */
    pid_t pid;                                               /* of the process that began it */
    char system[PS_SYSTEM_MAX + 1], queue[PS_QUEUE_MAX + 1]; /* of a job, or "" */
    char scheme[PS_SCHEME_MAX + 1];                          /* of a URL, or "" */
    ps_counted counted;
    bool done;
} ps_request;

/*
 * True while a tracer listens to a probe that needs requests. Otherwise no request should be begun.
 */
bool ps_requests_wanted(void);

/* Sets a flag in probescope_info: from now on requests or jobs are reported, if any come. */
void ps_requests_told(void);
/*
 * header: the traceparent that came in. Where the application sends no spans of its own, a request
 * without a header becomes a child of the current span, or of the request that encloses it.
 */
void ps_request_start(ps_request *request, ps_text method, ps_text path, ps_text scheme, ps_text header);
/*
 * The same for a job. Its name is the path. system: what runs the job. queue: the queue that it
 * came from, or NULL.
 */
void ps_request_start_job(ps_request *request, ps_text name, ps_text header, ps_text system, ps_text queue);
/*
 * Ends the request. A second call does nothing. In a child that was forked since the start nothing
 * fires. template: the route's template, or NULL.
 */
void ps_request_done(ps_request *request, ps_text template, uint64_t status);
/* Called before the request is freed, whether it is done or not. */
void ps_request_forget(ps_request *request);

/*
 * Tells programs on which stack the current request runs, while ps_here_requests. They know it by
 * method and path, in which ids are "*": the route may be known at the end only. stack, version: as
 * for ps_here_request().
 */
struct ps_stack;
void ps_request_here(struct ps_stack *stack, const uint64_t *version);

/*
 * The site whose name is method and path, in which ids are "*", and whose line is a number for them:
 * the route may be known at the end only. request: that of a ps_request, or one whose `here` is
 * made. NULL: ps_site_none.
 */
const ps_site *ps_request_label(ps_counted *request);

/* The span_id of the current request, or 0. */
uint64_t ps_request_id(void);
/* The counters of the current request, or NULL. Each VM's extension has this function. */
ps_counted *ps_requests_counted_now(void);
/* The same for ps_routes_row(). NULL also while no tracer listens to stats__by_request. */
static inline ps_counted *ps_requests_counted(void)
{
    return PS_ENABLED(STATS__BY_REQUEST) ? ps_requests_counted_now() : NULL;
}
/*
 * Reads the application's current span. If it cannot be read, those of `probes` that are on become
 * degraded until the detach.
 */
void ps_span_of_application(ps_span *span, ps_probe_set probes);
/* The same, but without a span it is that of the current request. For probes that carry a span. */
void ps_span_current(ps_span *span, ps_probe_set probes);

#endif

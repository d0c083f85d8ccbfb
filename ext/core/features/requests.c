#include "features/requests.h"

#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/thread_id.h"
#include "calls/here.h"
#include "context/vm.h"
#include "table/interned_strings.h"
#include "usdt/info.h"
#include "usdt/probe_groups.h"

/*
 * Copies text, with '?' for control characters. The client chooses these bytes, and they end up in
 * terminals.
 */
static size_t copy(char *to, size_t capacity, ps_text text)
{
    size_t size = ps_copy_utf8(to, capacity, text.bytes ? text.bytes : "", text.bytes ? text.size : 0);
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)to[i], after = (unsigned char)to[i + 1];
        if (byte < ' ' || byte == 0x7f) to[i] = '?';
        if (byte == 0xc2 && after < 0xa0) to[i] = to[i + 1] = '?'; /* U+0080 to U+009F */
    }
    return size;
}

/*
 * Random enough for ids. At boot the kernel may have no entropy yet: then the time makes ids
 * differ.
 */
static void random_bytes(void *to, size_t size)
{
    if (getrandom(to, size, GRND_NONBLOCK) == (ssize_t)size) return;
    uint64_t salt = ps_monotonic_ns() ^ ps_thread_id() << 32 ^ (uintptr_t)to;
    for (size_t i = 0; i < size; i++)
        ((unsigned char *)to)[i] = (unsigned char)((salt *= 0x9e3779b97f4a7c15u) >> 56);
}

bool ps_requests_wanted(void)
{
    ps_probe_set probes = PS_BIT(STATS__BY_REQUEST);
    for (const ps_feature *const *each = ps_features; *each; each++) probes |= (*each)->with_request;
    return ps_any_enabled(probes);
}

uint64_t ps_request_id(void)
{
    const ps_request *request = ps_vm_request();
    return request ? request->span_id : 0;
}

static void degrade(ps_probe_set probes)
{
    static const char reason[] =
        "OpenTelemetry is loaded, but keeps its context in a way that is not known: traceparent is empty";
    ps_info_states(probes & ps_info_probes_in(PS_STATE_ON), PS_STATE_DEGRADED, reason);
}

void ps_span_of_application(ps_span *span, ps_probe_set probes)
{
    if (ps_vm_span(span) == PS_SPAN_UNKNOWN) degrade(probes);
}

void ps_span_current(ps_span *span, ps_probe_set probes)
{
    const ps_request *request = ps_vm_request();
    bool own = request && request->own;
    /* A copy: while the application's span is read, a collection may run finalizers. */
    ps_span otherwise = request ? request->span : (ps_span){.known = false};
    *span = (ps_span){.known = false};
    /*
     * Without an SDK the current span is only what somebody took from a header: nobody will send
     * it.
     */
    if (!own || ps_vm_sends_spans()) ps_span_of_application(span, probes);
    if (!span->known) *span = otherwise;
}

/* Sets *current to the current span, or that of the request around this one. */
static void begin_trace(ps_request *request, ps_text header, ps_span *current)
{
    /* The header first: the VM may collect garbage while its span is read. */
    bool came = ps_span_of_header(&request->span, header.bytes, header.bytes ? header.size : 0);
    ps_span_current(current, PS_REQUEST_PROBES);
    request->own = !ps_vm_sends_spans();
    if (!came && request->own) {
        request->span = *current;
        request->span.flags &= PS_SPAN_FLAGS;
    }
    request->parent_id = ps_span_number(request->span.span_id);
    uint64_t fresh[3];
    random_bytes(fresh, sizeof(fresh));
    request->span_id = fresh[2] ? fresh[2] : 1; /* 0 is no id */
    if (!request->own) return;
    if (!request->span.known) {
        request->span = (ps_span){.flags = 1, .known = true};
        ps_span_set_number(request->span.trace_id, fresh[0]);
        ps_span_set_number(request->span.trace_id + 8, fresh[1] ? fresh[1] : 1);
    }
    ps_span_set_number(request->span.span_id, request->span_id);
}

static const ps_span *span_of(const ps_request *request, const ps_span *current)
{
    return current->known && !request->own ? current : &request->span;
}

/* The two probes differ in name only. */
#define MORE(probe, request, span_text, full)                                                                \
    {                                                                                                        \
        .thread_id = ps_thread_id(), .traceparent = (span_text), .span_id = (request)->span_id,              \
        .parent_id = (request)->parent_id, .template = (full), .path = (request)->path,                      \
        .own = (request)->own, .system = (request)->system, .queue = (request)->queue,                       \
        .url_scheme = (request)->scheme,                                                                     \
    }

void ps_requests_told(void)
{
    if (!(PS_READ(probescope_info.flags) & PS_INFO_REQUESTS)) ps_info_flag(PS_INFO_REQUESTS, 1);
}

static void start(ps_request *request, ps_text method, ps_text path, ps_text header)
{
    ps_span current;
    copy(request->method, sizeof(request->method), method);
    request->counted = (ps_counted){0};
    size_t size = copy(request->path, sizeof(request->path), path);
    begin_trace(request, header, &current);
    request->done = false;
    request->pid = ps_process_id();
    ps_requests_told();
    request->start = ps_monotonic_ns();
    if (!PS_ENABLED(REQUEST__START)) return;
    char route[PS_FILE_MAX + 1], traceparent[PS_TRACEPARENT_BUFFER];
    ps_shorten(route, request->path, size);
    ps_span_text(traceparent, span_of(request, &current));
    struct ps_more_request__start more = MORE(request__start, request, traceparent, "");
    ps_fire_request__start(route, request->method, &more);
}

static const char job[] = "JOB", no_job[] = "JOB?";

void ps_request_start(ps_request *request, ps_text method, ps_text path, ps_text scheme, ps_text header)
{
    request->system[0] = request->queue[0] = '\0';
    copy(request->scheme, sizeof(request->scheme), scheme);
    /* A client may send JOB as its method. Such a request must not count as a job. */
    if (method.bytes && method.size == sizeof(job) - 1 && memcmp(method.bytes, job, method.size) == 0)
        method = (ps_text){no_job, sizeof(no_job) - 1};
    start(request, method, path, header);
}

void ps_request_start_job(ps_request *request, ps_text name, ps_text header, ps_text system, ps_text queue)
{
    copy(request->system, sizeof(request->system), system);
    copy(request->queue, sizeof(request->queue), queue);
    request->scheme[0] = '\0';
    start(request, (ps_text){job, sizeof(job) - 1}, name, header);
    ps_routes_known(&request->counted, request->method, request->path);
}

/*
 * True for a number, a UUID or a hash in hexadecimal digits. Unless it is all decimal digits, it
 * has at least eight characters and a decimal digit among them.
 */
static bool is_id(const char *segment, size_t size)
{
    size_t digits = 0, others = 0;
    for (size_t i = 0; i < size; i++) {
        if (segment[i] >= '0' && segment[i] <= '9') digits++;
        else if (segment[i] == '-' || (segment[i] >= 'a' && segment[i] <= 'f') ||
                 (segment[i] >= 'A' && segment[i] <= 'F'))
            others++;
        else return false;
    }
    return digits && (!others || size >= 8);
}

/*
 * The size of the id that the segment begins with: all of it, or what is before an extension, which
 * begins with a letter. 0: no id.
 */
static size_t id_size(const char *segment, size_t size)
{
    const char *dot = memchr(segment, '.', size);
    size_t stem = dot ? (size_t)(dot - segment) : size;
    if (dot && !(dot[1] >= 'a' && dot[1] <= 'z') && !(dot[1] >= 'A' && dot[1] <= 'Z')) return 0;
    return is_id(segment, stem) ? stem : 0;
}

/*
 * Writes the route of a path without a known template. Ids become "*". Otherwise each order would
 * be a route of its own.
 */
static void without_ids(char *to, const char *path)
{
    for (const char *segment = path; *segment;) {
        size_t size = strcspn(segment, "/"), id = id_size(segment, size);
        if (id) *to++ = '*';
        memcpy(to, segment + id, size - id);
        to += size - id;
        segment += size;
        if (*segment) *to++ = *segment++;
    }
    *to = '\0';
}

static void write_route(char *to, const ps_request *request, const char *template, uint64_t status)
{
    enum { NOT_FOUND = 404 };
    if (*template) strcpy(to, template);
    else if (strcmp(request->method, job) == 0) strcpy(to, request->path);
    else if (status == NOT_FOUND) strcpy(to, "(not found)"); /* clients can make up any path */
    else without_ids(to, request->path);
}

void ps_request_done(ps_request *request, ps_text template, uint64_t status)
{
    if (request->done) return;
    request->done = true;
    uint64_t elapsed = ps_monotonic_ns() - request->start;
    char full[PS_ROUTE_MAX + 1], long_route[PS_ROUTE_MAX + 1], route[PS_FILE_MAX + 1];
    copy(full, sizeof(full), template);
    write_route(long_route, request, full, status);
    ps_routes_known(&request->counted, request->method, long_route);
    ps_routes_end(&request->counted);
    if (!PS_ENABLED(REQUEST__DONE) || request->pid != ps_process_id()) return;
    ps_shorten(route, long_route, strlen(long_route));
    ps_span current;
    char traceparent[PS_TRACEPARENT_BUFFER];
    ps_span_of_application(&current, PS_REQUEST_PROBES);
    ps_span_text(traceparent, span_of(request, &current));
    struct ps_more_request__done more = MORE(request__done, request, traceparent, full);
    ps_fire_request__done(route, request->method, status, elapsed, &more);
}

void ps_request_forget(ps_request *request)
{
    char route[PS_ROUTE_MAX + 1];
    write_route(route, request, "", 0);
    ps_routes_known(&request->counted, request->method, route);
    ps_routes_end(&request->counted);
}

/* Its name begins with the method. One of an earlier generation is freed memory. */
static PS_APART const ps_site *make_here(ps_request *request)
{
    bool ours = ps_ours_begin();
    char route[PS_ROUTE_MAX + 1];
    write_route(route, request, "", 0);
    request->counted.here = ps_routes_label(request->method, route);
    request->counted.here_generation = ps_sites_generation;
    ps_ours_end(ours);
    return request->counted.here;
}

const ps_site *ps_request_label(ps_counted *request)
{
    if (!request) return &ps_site_none;
    if (request->here && request->here_generation == ps_sites_generation) return request->here;
    return make_here((ps_request *)((char *)request - offsetof(ps_request, counted)));
}

void ps_request_here(ps_stack *stack, const uint64_t *version)
{
    ps_request *request = ps_vm_request();
    ps_here_request(stack, request ? ps_request_label(&request->counted) : NULL, version);
}

const ps_feature ps_requests_feature = {
    .probes = PS_REQUEST_PROBES,
    .with_request = PS_REQUEST_PROBES,
};

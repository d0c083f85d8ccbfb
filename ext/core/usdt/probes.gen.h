/* Generated from providers/probescope.yml by `rake generate`. Do not edit. */
#ifndef PS_PROBES_GEN_H
#define PS_PROBES_GEN_H

#include <stdint.h>

#define PS_ABI 1
#define PS_PROVIDER "probescope"

enum ps_probe {
    PS_PROBE_FUNCTION__ENTRY,
    PS_PROBE_FUNCTION__RETURN,
    PS_PROBE_FUNCTION__SLOW1MS,
    PS_PROBE_FUNCTION__SLOW10MS,
    PS_PROBE_FUNCTION__SLOW100MS,
    PS_PROBE_FUNCTION__STATS,
    PS_PROBE_FUNCTIONS__ALL,
    PS_PROBE_EXCEPTION__RAISE,
    PS_PROBE_EXCEPTION__DETAIL,
    PS_PROBE_EXCEPTION__RESCUE,
    PS_PROBE_EXCEPTION__STATS,
    PS_PROBE_BACKTRACE__DONE,
    PS_PROBE_OBJECT__ALLOC,
    PS_PROBE_OBJECT__STATS,
    PS_PROBE_GC__START,
    PS_PROBE_GC__DONE,
    PS_PROBE_SAMPLE,
    PS_PROBE_SAMPLE__STATS,
    PS_PROBE_SAMPLE__FRAME,
    PS_PROBE_LINE,
    PS_PROBE_GVL__WAIT,
    PS_PROBE_REQUEST__START,
    PS_PROBE_REQUEST__DONE,
    PS_PROBE_STATS__BY_REQUEST,
    PS_PROBE_STATS__DONE,
    PS_PROBE_STATUS,
    PS_PROBE_FUNCTION__HERE,
    PS_PROBE_WAIT__STATS,
    PS_PROBE_STACK__FRAME,
    PS_PROBE_STACK__CPU,
    PS_PROBE_COUNT
};

extern const char *const ps_probe_names[PS_PROBE_COUNT];

struct ps_more_function__entry {
    const char *path; /* the file's full path */
    /* identifies the shadow stack, that of a thread, fiber, task or greenlet */
    uint64_t context_id;
};

struct ps_more_function__return {
    const char *path; /* the file's full path */
    uint64_t context_id; /* identifies the shadow stack */
    uint64_t depth; /* as in function__entry */
    uint64_t kind; /* as in function__entry */
    uint64_t outcome; /* 0 returned, 1 raised, 2 suspended */
};

struct ps_more_function__slow1ms {
    const char *path; /* the file's full path */
    uint64_t thread_id; /* gettid() as the process sees it */
    uint64_t outcome; /* 0 returned, 1 raised, 2 suspended */
    /* W3C trace context of the application's current span, else of the request, or empty */
    const char *traceparent;
    uint64_t span_id; /* the event's own id */
    uint64_t parent_id; /* id of the enclosing timed call, or 0 */
    /* span_id of the request in which the call was made, as in request__done, or 0 */
    uint64_t request_id;
};

struct ps_more_function__slow10ms {
    const char *path; /* the file's full path */
    uint64_t thread_id; /* gettid() as the process sees it */
    uint64_t outcome; /* 0 returned, 1 raised, 2 suspended */
    /* W3C trace context of the application's current span, else of the request, or empty */
    const char *traceparent;
    uint64_t span_id; /* the event's own id */
    uint64_t parent_id; /* id of the enclosing timed call, or 0 */
    /* span_id of the request in which the call was made, as in request__done, or 0 */
    uint64_t request_id;
};

struct ps_more_function__slow100ms {
    const char *path; /* the file's full path */
    uint64_t thread_id; /* gettid() as the process sees it */
    uint64_t outcome; /* 0 returned, 1 raised, 2 suspended */
    /* W3C trace context of the application's current span, else of the request, or empty */
    const char *traceparent;
    uint64_t span_id; /* the event's own id */
    uint64_t parent_id; /* id of the enclosing timed call, or 0 */
    /* span_id of the request in which the call was made, as in request__done, or 0 */
    uint64_t request_id;
};

struct ps_more_function__stats {
    const char *path; /* the file's full path */
    uint64_t elapsed; /* time in the function with callees, outermost activations only (ns) */
    uint64_t max; /* longest call that ended since the previous flush (ns) */
    uint64_t raised; /* calls that an exception left */
    uint64_t resumed; /* entries after a suspension (resumptions) */
    /*
     * CLOCK_MONOTONIC when its hooks were removed for PROBESCOPE_MAX_OVERHEAD: since then nothing
     * is counted, and each flush fires the row again; 0: not removed (ns)
     */
    uint64_t out;
};

struct ps_more_exception__raise {
    const char *path; /* the file's full path */
    const char *function; /* function that raised */
    uint64_t thread_id; /* gettid() as the process sees it */
};

struct ps_more_exception__detail {
    const char *path; /* the file's full path */
    const char *function; /* function that raised */
    uint64_t thread_id; /* gettid() as the process sees it */
    /* the stored message, cut at 255 bytes; empty if it would have to be computed */
    const char *message;
    /* W3C trace context of the application's current span, else of the request, or empty */
    const char *traceparent;
    const char *app_file; /* nearest file of the application's own code on the stack, or empty */
    uint64_t app_line; /* line in that file */
};

struct ps_more_exception__rescue {
    const char *path; /* the full path of the rescue's file */
    const char *function; /* function that rescued */
    const char *raise_file; /* file of the raise */
    uint64_t raise_line; /* line of the raise */
};

struct ps_more_exception__stats {
    const char *path; /* the file's full path */
    const char *function; /* function that raised */
    uint64_t depth_sum; /* frames of all the backtraces */
    uint64_t depth_max; /* frames of the deepest backtrace since the previous flush */
    uint64_t string_cost; /* time on the CPU to turn their backtraces into strings (ns) */
    uint64_t rescued; /* rescues of these exceptions that were seen */
    const char *rescue_file; /* file where the last one was rescued, or empty */
    uint64_t rescue_line; /* line in that file */
    const char *asked_file; /* file that last requested a backtrace as strings, or empty */
    uint64_t asked_line; /* line in that file */
    /*
     * nearest file of the application's own code, perhaps the raise's own, on the stack of the
     * first raise, or empty
     */
    const char *app_file;
    uint64_t app_line; /* line in that file */
    /*
     * rescues by the method that raised; 0 before Ruby 3.3, which does not report them (exceptions)
     */
    uint64_t rescued_at_once;
    /*
     * while a tracer listens to stats__by_request: method and route of the request to which the row
     * belongs, or empty
     */
    const char *request;
    /* a number for that method and route, the same in each process, or 0 */
    uint64_t request_number;
};

struct ps_more_backtrace__done {
    const char *path; /* the file's full path */
    const char *function; /* function that made the request */
    const char *type; /* class of the exception, or empty */
    const char *raise_file; /* file of the first raise, or empty */
    uint64_t raise_line; /* line in that file */
};

struct ps_more_object__alloc {
    const char *path; /* the file's full path */
};

struct ps_more_object__stats {
    const char *path; /* the file's full path */
    /*
     * while a tracer listens to stats__by_request: method and route of the request to which the row
     * belongs, or empty
     */
    const char *request;
    /* a number for that method and route, the same in each process, or 0 */
    uint64_t request_number;
};

struct ps_more_sample {
    const char *path; /* the file's full path */
    uint64_t thread_id; /* gettid() as the process sees it */
};

struct ps_more_sample__stats {
    const char *path; /* the file's full path */
    uint64_t self_samples; /* samples with the function as the leaf */
    uint64_t total_samples; /* samples with the function on the stack */
    /*
     * while a tracer listens to stats__by_request: method and route of the request to which the row
     * belongs, or empty
     */
    const char *request;
    /* a number for that method and route, the same in each process, or 0 */
    uint64_t request_number;
    /*
     * the VM's own function, mostly in C, that the function called and that was running, or empty.
     * A row with a builtin has no total and no total_samples
     */
    const char *builtin;
    uint64_t builtin_number; /* a number for that name, the same in each process, or 0 */
};

struct ps_more_sample__frame {
    const char *path; /* the file's full path */
};

struct ps_more_line {
    const char *path; /* the file's full path */
};

struct ps_more_request__start {
    uint64_t thread_id; /* gettid() as the process sees it */
    /*
     * W3C trace context. If the application has no OpenTelemetry of its own: that of the request,
     * with span_id in it; else that of the current span, or the incoming one, or empty
     */
    const char *traceparent;
    uint64_t span_id; /* the request's own id */
    /*
     * id of the span in the incoming traceparent, or of the request in which this one was made, or
     * 0
     */
    uint64_t parent_id;
    /* route template, at most 255 bytes; empty if the framework does not know it (yet) */
    const char *template;
    const char *path; /* the path or the job's name, at most 255 bytes */
    /* 1 if the application has no OpenTelemetry of its own and the span is the request's, else 0 */
    uint64_t own;
    /* for a job, what runs it, such as active_job, sidekiq, celery; else empty */
    const char *system;
    const char *queue; /* for a job, its queue if that is known; else empty */
    const char *url_scheme; /* for a request, http or https, as the server reports it; else empty */
};

struct ps_more_request__done {
    uint64_t thread_id; /* gettid() as the process sees it */
    /*
     * W3C trace context. If the application has no OpenTelemetry of its own: that of the request,
     * with span_id in it; else that of the current span, or the incoming one, or empty
     */
    const char *traceparent;
    uint64_t span_id; /* the request's own id */
    /*
     * id of the span in the incoming traceparent, or of the request in which this one was made, or
     * 0
     */
    uint64_t parent_id;
    /* route template, at most 255 bytes; empty if the framework does not know it (yet) */
    const char *template;
    const char *path; /* the path or the job's name, at most 255 bytes */
    /* 1 if the application has no OpenTelemetry of its own and the span is the request's, else 0 */
    uint64_t own;
    /* for a job, what runs it, such as active_job, sidekiq, celery; else empty */
    const char *system;
    const char *queue; /* for a job, its queue if that is known; else empty */
    const char *url_scheme; /* for a request, http or https, as the server reports it; else empty */
};

struct ps_more_stats__done {
    /*
     * ticks without a sample although the process was on the CPU: a thread was in a call that
     * answers no request, or the watcher had no CPU (samples)
     */
    uint64_t samples_missed;
    uint64_t details_suppressed; /* exception__detail events over the limit */
    /*
     * samples that count; divided by cpu they give the rate: 99 for a second of CPU time if one
     * thread runs all the time
     */
    uint64_t samples_taken;
    /*
     * CPU time that looking took in this interval: that of the hooks, with the tracer's part if a
     * probe fires in a hook, and that of the library's own threads (ns)
     */
    uint64_t looking;
    /*
     * CLOCK_MONOTONIC up to which the rows count: the end of this interval and the start of the
     * next one (ns)
     */
    uint64_t cut;
};

struct ps_more_function__here {
    /*
     * address of the record, which is never freed or moved. 8 bytes each: address of the stack on
     * which the thread runs, or 0; layout; epoch; address of a number; number; flags; names;
     * requests. If bit 56 of the layout is set, Ruby's threads share native threads, and the stack
     * counts only while the number at that address is the number behind it: else its thread does
     * not run there any more. flags: bit 0 is set if Ruby's threads share native threads, and it is
     * not known which one runs: then the stack is always 0. names: 8 bits each from the lowest, the
     * offsets of name, file, line and path in a site. requests: 0 unless a tracer also listens to
     * stats__by_request. The lower 32 bits are a round; then 8 bits each from the lowest, the
     * offsets in a stack of: the site of the request, or 0, whose name is method and path; the
     * address of a number; the number that is there while that request's code runs; the round in
     * which these are told (4 bytes). In another round, or with another number, the request is not
     * known. Fields are only appended
     */
    uint64_t record;
    /*
     * 8 bits each from the lowest: offsets of frames, depth and epoch in a stack; size of a frame;
     * offsets of row and of the VM's frame in a frame; offset of site in a row; then bit 56 (see
     * record). depth and epoch have 4 bytes, the others 8. epoch follows depth, and is never 0
     */
    uint64_t layout;
    /* address of the current epoch, 4 bytes; a stack with another epoch has no open calls */
    uint64_t epoch;
    uint64_t thread_id; /* gettid() as the process sees it */
    /*
     * address of the VM lock's data: a wait for a futex in it is a wait for the VM lock; 0 if not
     * known
     */
    uint64_t gil;
    uint64_t gil_bytes; /* size of that data (bytes) */
    /*
     * offset of the innermost frame in the VM's data on the thread. If bit 32 is set, a pointer is
     * there, and bits 16 to 31 are the offset behind it. 0 if not known
     */
    uint64_t vm_frame;
    /*
     * 16 bits each from the lowest: offsets of the code and of the instruction in a frame of the
     * VM, of the first instruction and of the qualified name in a code; 0 if not known
     */
    uint64_t vm_code;
    uint64_t vm_text; /* offset of the bytes in an ASCII text of the VM; 0 if not known */
    /*
     * 16 bits each from the lowest: offsets of the line table and of the first line (4 bytes) in a
     * code of the VM, of the size and of the contents in a line table; 0 if not known
     */
    uint64_t vm_lines;
    /*
     * offset of the VM's frame in the object to which a frame of the stack points; 0 if it points
     * to the VM's frame itself
     */
    uint64_t vm_object;
};

struct ps_more_wait__stats {
    const char *path; /* the file's full path */
    const char *function; /* function that contains the line */
    uint64_t vm_lock; /* time from then until the thread ran with the VM lock (ns) */
    uint64_t longest; /* longest wait that ended since the previous flush (ns) */
    /*
     * function of the thread that ended the wait, such as one that unlocked a Mutex. Empty if no
     * thread of the program did, as at the end of a sleep, and on Ruby 3.2
     */
    const char *holder;
    const char *holder_file; /* its file, found as `file` is */
    uint64_t holder_line; /* its line at that moment, or 0 */
    /* identifies holder, holder_file and holder_line while a tracer listens, or 0 */
    uint64_t holder_id;
    /*
     * while a tracer listens to stats__by_request: method and route of the request to which the row
     * belongs, or empty
     */
    const char *request;
    /* a number for that method and route, the same in each process, or 0 */
    uint64_t request_number;
};

struct ps_more_stack__frame {
    const char *path; /* the file's full path */
    uint64_t file_number; /* a number for that path, the same in each process */
    uint64_t defined; /* line of the function's definition, or 0 */
    /*
     * 1: the file is the application's own; 2: the frame is no function, but what the figures are
     * about
     */
    uint64_t flags;
};

struct ps_more_stack__cpu {
    /*
     * while a tracer listens to stats__by_request: method and path of the request, in which ids are
     * *, or empty
     */
    const char *request;
    uint64_t request_number; /* a number for that method and path, the same in each process, or 0 */
};

void ps_fire_function__entry(const char *function, const char *file, uint64_t line, uint64_t depth, uint64_t kind, const struct ps_more_function__entry *more);
void ps_fire_function__return(const char *function, const char *file, uint64_t line, uint64_t elapsed, uint64_t self, const struct ps_more_function__return *more);
void ps_fire_function__slow1ms(const char *function, const char *file, uint64_t line, uint64_t elapsed, uint64_t self, const struct ps_more_function__slow1ms *more);
void ps_fire_function__slow10ms(const char *function, const char *file, uint64_t line, uint64_t elapsed, uint64_t self, const struct ps_more_function__slow10ms *more);
void ps_fire_function__slow100ms(const char *function, const char *file, uint64_t line, uint64_t elapsed, uint64_t self, const struct ps_more_function__slow100ms *more);
void ps_fire_function__stats(const char *function, const char *file, uint64_t line, uint64_t calls, uint64_t self, const struct ps_more_function__stats *more);
void ps_fire_functions__all(void);
void ps_fire_exception__raise(const char *type, const char *file, uint64_t line, uint64_t depth, uint64_t backtrace_cost, const struct ps_more_exception__raise *more);
void ps_fire_exception__detail(const char *type, const char *file, uint64_t line, uint64_t depth, uint64_t backtrace_cost, const struct ps_more_exception__detail *more);
void ps_fire_exception__rescue(const char *type, const char *file, uint64_t line, uint64_t elapsed, uint64_t unwound, const struct ps_more_exception__rescue *more);
void ps_fire_exception__stats(const char *type, const char *file, uint64_t line, uint64_t raised, uint64_t backtrace_cost, const struct ps_more_exception__stats *more);
void ps_fire_backtrace__done(const char *kind, const char *file, uint64_t line, uint64_t depth, uint64_t elapsed, const struct ps_more_backtrace__done *more);
void ps_fire_object__alloc(const char *class, const char *file, uint64_t line, uint64_t size, const struct ps_more_object__alloc *more);
void ps_fire_object__stats(const char *class, const char *file, uint64_t line, uint64_t allocated, uint64_t bytes, const struct ps_more_object__stats *more);
void ps_fire_gc__start(const char *kind, uint64_t generation);
void ps_fire_gc__done(const char *kind, uint64_t generation, uint64_t elapsed, uint64_t objects);
void ps_fire_sample(const char *function, const char *file, uint64_t line, uint64_t weight, uint64_t stack_id, const struct ps_more_sample *more);
void ps_fire_sample__stats(const char *function, const char *file, uint64_t line, uint64_t self, uint64_t total, const struct ps_more_sample__stats *more);
void ps_fire_sample__frame(const char *function, const char *file, uint64_t line, uint64_t stack_id, uint64_t index, const struct ps_more_sample__frame *more);
void ps_fire_line(const char *function, const char *file, uint64_t line, const struct ps_more_line *more);
void ps_fire_gvl__wait(uint64_t thread_id, uint64_t elapsed);
void ps_fire_request__start(const char *route, const char *method, const struct ps_more_request__start *more);
void ps_fire_request__done(const char *route, const char *method, uint64_t status, uint64_t elapsed, const struct ps_more_request__done *more);
void ps_fire_stats__by_request(void);
void ps_fire_stats__done(uint64_t sequence, uint64_t elapsed, uint64_t cpu, uint64_t rows, uint64_t dropped, const struct ps_more_stats__done *more);
void ps_fire_status(const char *probe, uint64_t state, const char *reason);
void ps_fire_function__here(const struct ps_more_function__here *more);
void ps_fire_wait__stats(const char *what, const char *file, uint64_t line, uint64_t waits, uint64_t blocked, const struct ps_more_wait__stats *more);
void ps_fire_stack__frame(const char *function, const char *file, uint64_t line, uint64_t id, uint64_t parent, const struct ps_more_stack__frame *more);
void ps_fire_stack__cpu(uint64_t stack_id, uint64_t thread_id, uint64_t count, uint64_t weight, uint64_t looked, const struct ps_more_stack__cpu *more);

#endif

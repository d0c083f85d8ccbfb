#include "recorder.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "vm/vm.h"

static void request(unsigned what)
{
    (void)what;
}

/* For programs that have no VM of their own. */
__attribute__((weak)) const ps_vm ps_the_vm = {.request = request};

#define NUMBER(value) ((uint64_t)(uintptr_t)(value))

static struct {
    struct recorded *events;
    size_t count, capacity;
} record;
static pthread_mutex_t record_lock = PTHREAD_MUTEX_INITIALIZER;

/* A fork in the middle of a record would leave the child a lock that no thread opens. */
static void hold(void)
{
    pthread_mutex_lock(&record_lock);
}

static void let_go(void)
{
    pthread_mutex_unlock(&record_lock);
}

__attribute__((constructor)) static void hold_at_fork(void)
{
    pthread_atfork(hold, let_go, let_go);
}

/* Not instrumented, because the kernel would write from outside the program. */
__attribute__((noinline, no_sanitize("thread"))) void recorder_semaphore(enum ps_probe probe, uint16_t value)
{
    ps_semaphores[probe] = value;
}

void recorder_lower_all(void)
{
    for (int i = 0; i < PS_PROBE_COUNT; i++) recorder_semaphore((enum ps_probe)i, 0);
}

void recorder_forget(void)
{
    pthread_mutex_lock(&record_lock);
    free(record.events);
    memset(&record, 0, sizeof(record));
    pthread_mutex_unlock(&record_lock);
}

size_t recorder_total(void)
{
    pthread_mutex_lock(&record_lock);
    size_t count = record.count;
    pthread_mutex_unlock(&record_lock);
    return count;
}

static bool is_wanted(const struct recorded *event, enum ps_probe probe, const char *first)
{
    return event->probe == probe && (!first || strcmp(event->text[0], first) == 0);
}

size_t recorder_count(enum ps_probe probe, const char *first)
{
    size_t count = 0;
    pthread_mutex_lock(&record_lock);
    for (size_t i = 0; i < record.count; i++) count += is_wanted(&record.events[i], probe, first);
    pthread_mutex_unlock(&record_lock);
    return count;
}

struct recorded recorder_last(enum ps_probe probe, const char *first)
{
    struct recorded last = {0};
    pthread_mutex_lock(&record_lock);
    for (size_t i = 0; i < record.count; i++)
        if (is_wanted(&record.events[i], probe, first)) last = record.events[i];
    pthread_mutex_unlock(&record_lock);
    return last;
}

uint64_t recorder_sum(enum ps_probe probe, const char *first, int arg)
{
    uint64_t sum = 0;
    pthread_mutex_lock(&record_lock);
    for (size_t i = 0; i < record.count; i++)
        if (is_wanted(&record.events[i], probe, first)) sum += record.events[i].arg[arg];
    pthread_mutex_unlock(&record_lock);
    return sum;
}

struct recorded recorder_at(size_t number)
{
    struct recorded event = {0};
    pthread_mutex_lock(&record_lock);
    if (number < record.count) event = record.events[number];
    pthread_mutex_unlock(&record_lock);
    return event;
}

void (*recorder_meanwhile)(void);

static void add(struct recorded *event, const char *text0, const char *text1, const void *more,
                size_t more_size)
{
    if (text0) strncpy(event->text[0], text0, sizeof(event->text[0]) - 1);
    if (text1) strncpy(event->text[1], text1, sizeof(event->text[1]) - 1);
    if (more) memcpy(&event->more, more, more_size);
    pthread_mutex_lock(&record_lock);
    event->at_ns = ps_monotonic_ns();
    if (record.count == record.capacity) {
        record.capacity = record.capacity ? record.capacity * 2 : 64;
        record.events = realloc(record.events, record.capacity * sizeof(*record.events));
        if (!record.events) abort();
    }
    record.events[record.count++] = *event;
    pthread_mutex_unlock(&record_lock);
    if (recorder_meanwhile) recorder_meanwhile();
}

/*
 * For a probe whose arguments are what, where and two figures. traceparent_text is copied, because
 * it lasts only while the probe fires.
 */
#define RECORD_ROW(name, number, traceparent_text)                                                           \
    void __real_ps_fire_##name(const char *, const char *, uint64_t, uint64_t, uint64_t,                     \
                               const struct ps_more_##name *);                                               \
    void __wrap_ps_fire_##name(const char *what, const char *file, uint64_t line, uint64_t a3, uint64_t a4,  \
                               const struct ps_more_##name *more);                                           \
    void __wrap_ps_fire_##name(const char *what, const char *file, uint64_t line, uint64_t a3, uint64_t a4,  \
                               const struct ps_more_##name *more)                                            \
    {                                                                                                        \
        struct recorded event = {.probe = number, .arg = {NUMBER(what), NUMBER(file), line, a3, a4}};        \
        strncpy(event.traceparent, (traceparent_text), sizeof(event.traceparent) - 1);                       \
        add(&event, what, file, more, sizeof(*more));                                                        \
        __real_ps_fire_##name(what, file, line, a3, a4, more);                                               \
    }

RECORD_ROW(function__stats, PS_PROBE_FUNCTION__STATS, "")
RECORD_ROW(function__slow1ms, PS_PROBE_FUNCTION__SLOW1MS, more->traceparent)
RECORD_ROW(function__slow10ms, PS_PROBE_FUNCTION__SLOW10MS, more->traceparent)
RECORD_ROW(function__slow100ms, PS_PROBE_FUNCTION__SLOW100MS, more->traceparent)
RECORD_ROW(exception__stats, PS_PROBE_EXCEPTION__STATS, "")
RECORD_ROW(exception__raise, PS_PROBE_EXCEPTION__RAISE, "")
RECORD_ROW(exception__detail, PS_PROBE_EXCEPTION__DETAIL, more->traceparent)
RECORD_ROW(exception__rescue, PS_PROBE_EXCEPTION__RESCUE, "")
RECORD_ROW(backtrace__done, PS_PROBE_BACKTRACE__DONE, "")
RECORD_ROW(object__stats, PS_PROBE_OBJECT__STATS, "")
RECORD_ROW(sample, PS_PROBE_SAMPLE, "")
RECORD_ROW(sample__stats, PS_PROBE_SAMPLE__STATS, "")
RECORD_ROW(sample__frame, PS_PROBE_SAMPLE__FRAME, "")
RECORD_ROW(stack__frame, PS_PROBE_STACK__FRAME, "")
RECORD_ROW(wait__stats, PS_PROBE_WAIT__STATS, "")

void __real_ps_fire_stack__cpu(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                               const struct ps_more_stack__cpu *);
void __wrap_ps_fire_stack__cpu(uint64_t stack_id, uint64_t thread_id, uint64_t count, uint64_t weight,
                               uint64_t looked, const struct ps_more_stack__cpu *more);
void __wrap_ps_fire_stack__cpu(uint64_t stack_id, uint64_t thread_id, uint64_t count, uint64_t weight,
                               uint64_t looked, const struct ps_more_stack__cpu *more)
{
    struct recorded event = {.probe = PS_PROBE_STACK__CPU,
                             .arg = {stack_id, thread_id, count, weight, looked}};
    add(&event, NULL, NULL, more, sizeof(*more));
    __real_ps_fire_stack__cpu(stack_id, thread_id, count, weight, looked, more);
}

void __real_ps_fire_stats__done(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                const struct ps_more_stats__done *);
void __wrap_ps_fire_stats__done(uint64_t sequence, uint64_t elapsed, uint64_t cpu, uint64_t rows,
                                uint64_t dropped, const struct ps_more_stats__done *more);
void __wrap_ps_fire_stats__done(uint64_t sequence, uint64_t elapsed, uint64_t cpu, uint64_t rows,
                                uint64_t dropped, const struct ps_more_stats__done *more)
{
    struct recorded event = {.probe = PS_PROBE_STATS__DONE, .arg = {sequence, elapsed, cpu, rows, dropped}};
    add(&event, NULL, NULL, more, sizeof(*more));
    __real_ps_fire_stats__done(sequence, elapsed, cpu, rows, dropped, more);
}

/* Copies what `more` points to, because it lasts only while the probe fires. */
static void add_request(struct recorded *event, const char *route, const char *method,
                        const char *traceparent, const char *template, const char *path, const void *more)
{
    strncpy(event->traceparent, traceparent, sizeof(event->traceparent) - 1);
    strncpy(event->template, template, sizeof(event->template) - 1);
    strncpy(event->path, path, sizeof(event->path) - 1);
    add(event, route, method, more, sizeof(struct ps_more_request__done));
}

void __real_ps_fire_request__start(const char *, const char *, const struct ps_more_request__start *);
void __wrap_ps_fire_request__start(const char *route, const char *method,
                                   const struct ps_more_request__start *more);
void __wrap_ps_fire_request__start(const char *route, const char *method,
                                   const struct ps_more_request__start *more)
{
    struct recorded event = {.probe = PS_PROBE_REQUEST__START, .arg = {NUMBER(route), NUMBER(method)}};
    add_request(&event, route, method, more->traceparent, more->template, more->path, more);
    __real_ps_fire_request__start(route, method, more);
}

void __real_ps_fire_request__done(const char *, const char *, uint64_t, uint64_t,
                                  const struct ps_more_request__done *);
void __wrap_ps_fire_request__done(const char *route, const char *method, uint64_t status, uint64_t elapsed,
                                  const struct ps_more_request__done *more);
void __wrap_ps_fire_request__done(const char *route, const char *method, uint64_t status, uint64_t elapsed,
                                  const struct ps_more_request__done *more)
{
    struct recorded event = {.probe = PS_PROBE_REQUEST__DONE,
                             .arg = {NUMBER(route), NUMBER(method), status, elapsed}};
    add_request(&event, route, method, more->traceparent, more->template, more->path, more);
    __real_ps_fire_request__done(route, method, status, elapsed, more);
}

void __real_ps_fire_function__here(const struct ps_more_function__here *);
void __wrap_ps_fire_function__here(const struct ps_more_function__here *more);
void __wrap_ps_fire_function__here(const struct ps_more_function__here *more)
{
    struct recorded event = {.probe = PS_PROBE_FUNCTION__HERE};
    add(&event, NULL, NULL, more, sizeof(*more));
    __real_ps_fire_function__here(more);
}

void __real_ps_fire_status(const char *, uint64_t, const char *);
void __wrap_ps_fire_status(const char *probe, uint64_t state, const char *reason);
void __wrap_ps_fire_status(const char *probe, uint64_t state, const char *reason)
{
    struct recorded event = {.probe = PS_PROBE_STATUS, .arg = {NUMBER(probe), state, NUMBER(reason)}};
    add(&event, probe, reason, NULL, 0);
    __real_ps_fire_status(probe, state, reason);
}

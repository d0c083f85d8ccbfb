/*
 * Takes the place of a tracer. It raises semaphores as the kernel does, by writing to them, and
 * records the events that fire. The linker redirects calls of the ps_fire_ functions to recorder.c
 * (--wrap).
 */
#ifndef PS_RECORDER_H
#define PS_RECORDER_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#include "usdt/probe.h"

/*
 * One event. arg[] has the arguments as a tracer sees them: a string is a pointer there, as a
 * number. text[] has copies of the first two strings.
 */
struct recorded {
    enum ps_probe probe;
    uint64_t at_ns;    /* of CLOCK_MONOTONIC */
    char text[2][128]; /* the strings of the first two arguments */
    uint64_t arg[5];
    char traceparent[128];         /* of the probes that have one */
    char template[128], path[128]; /* of request__start and request__done */
    union {
        struct ps_more_function__stats function;
        struct ps_more_function__slow1ms slow; /* of all three function__slow probes */
        struct ps_more_exception__stats exception;
        struct ps_more_exception__raise raise;
        struct ps_more_exception__detail detail;
        struct ps_more_exception__rescue rescue;
        struct ps_more_backtrace__done backtrace;
        struct ps_more_object__stats object;
        struct ps_more_sample sample;
        struct ps_more_sample__stats sampled;
        struct ps_more_request__done request; /* of request__start and request__done */
        struct ps_more_stats__done done;
        struct ps_more_function__here here;
        struct ps_more_wait__stats wait;
        struct ps_more_stack__frame frame;
        struct ps_more_stack__cpu stack;
    } more;
};

#define RAISE(probe) recorder_semaphore(PS_PROBE_##probe, 1)
#define LOWER(probe) recorder_semaphore(PS_PROBE_##probe, 0)
void recorder_semaphore(enum ps_probe probe, uint16_t value);
void recorder_lower_all(void);

/*
 * Called at each event, in place of what the program does while a tracer works. NULL: nothing is
 * called.
 */
extern void (*recorder_meanwhile)(void);

void recorder_forget(void);
size_t recorder_total(void);
/*
 * Number of events of this probe. With `first`, only events that have it as their first argument.
 */
size_t recorder_count(enum ps_probe probe, const char *first);
/* The last of these events; all 0 when there is none. */
struct recorded recorder_last(enum ps_probe probe, const char *first);
/* The sum of an argument over these events. */
uint64_t recorder_sum(enum ps_probe probe, const char *first, int arg);
/* The event with this number, counted from 0 over all probes; all 0 when there are fewer. */
struct recorded recorder_at(size_t number);

#endif

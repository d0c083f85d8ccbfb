#include "context/thread_context.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The OTEP's layout, without padding. */
struct record {
    uint8_t trace_id[16];
    uint8_t span_id[8];
    uint8_t valid;
    uint8_t flags;
    uint16_t attributes_size;
};
_Static_assert(sizeof(struct record) == 28, "the record has no padding");

__attribute__((visibility("default"))) __thread struct record *otel_thread_ctx_v1;

enum { TRACE_ID_AT = 3, SPAN_ID_AT = 36, FLAGS_AT = 53, LENGTH = 55 };

static uint8_t digit(char c)
{
    return (uint8_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
}

static void bytes(uint8_t *to, const char *hex, int count)
{
    for (int i = 0; i < count; i++) to[i] = (uint8_t)(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
}

void ps_thread_context_set(const char *traceparent)
{
    static __thread struct record record;
    /*
     * A reader stops this thread while it reads. So only the order of the compiler's writes
     * matters.
     */
    __atomic_store_n(&otel_thread_ctx_v1, NULL, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (strlen(traceparent) != LENGTH) return;
    bytes(record.trace_id, traceparent + TRACE_ID_AT, sizeof(record.trace_id));
    bytes(record.span_id, traceparent + SPAN_ID_AT, sizeof(record.span_id));
    bytes(&record.flags, traceparent + FLAGS_AT, 1);
    record.valid = 1;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&otel_thread_ctx_v1, &record, __ATOMIC_RELAXED);
}

#include "context/thread_context.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "context/span.h"
#include "context/vm.h"

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

void ps_thread_context_publish(void)
{
    static __thread struct record record;
    ps_span span;
    enum ps_span_found found = ps_vm_span(&span);
    /*
     * A reader stops this thread while it reads. So only the order of the compiler's writes
     * matters.
     */
    __atomic_store_n(&otel_thread_ctx_v1, NULL, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (found != PS_A_SPAN) return;
    memcpy(record.trace_id, span.trace_id, sizeof(record.trace_id));
    memcpy(record.span_id, span.span_id, sizeof(record.span_id));
    record.flags = span.flags;
    record.valid = 1;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&otel_thread_ctx_v1, &record, __ATOMIC_RELAXED);
}

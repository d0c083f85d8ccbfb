#include "context/thread_context.h"

#include <pthread.h>

#include "check.h"
#include "test_vm.h"

/* The symbol that OTEP 4947 names. A reader knows of the record what the OTEP says. */
extern __thread uint8_t *otel_thread_ctx_v1;
enum { SPAN_ID_AT = 16, VALID_AT = 24, FLAGS_AT = 25, ATTRIBUTES_AT = 26, SIZE = 28 };

static const char *record(void)
{
    static char text[PS_TRACEPARENT_BUFFER];
    ps_span span = {.known = otel_thread_ctx_v1 != NULL};
    if (span.known) {
        CHECK_EQUAL(otel_thread_ctx_v1[VALID_AT], 1);
        CHECK(otel_thread_ctx_v1[ATTRIBUTES_AT] == 0 && otel_thread_ctx_v1[SIZE - 1] == 0);
        memcpy(span.trace_id, otel_thread_ctx_v1, sizeof(span.trace_id));
        memcpy(span.span_id, otel_thread_ctx_v1 + SPAN_ID_AT, sizeof(span.span_id));
        span.flags = otel_thread_ctx_v1[FLAGS_AT];
    }
    return ps_span_text(text, &span);
}

#define ONE   "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
#define OTHER "00-11111111111111111111111111111111-2222222222222222-00"

static void has_the_current_span(void)
{
    CHECK_STRING(record(), "");
    test_vm_set_span(ONE);
    CHECK_STRING(record(), ""); /* not published yet */
    ps_thread_context_publish();
    CHECK_STRING(record(), ONE);
    test_vm_set_span(OTHER);
    ps_thread_context_publish();
    CHECK_STRING(record(), OTHER);
    test_vm.span.flags = 0xff; /* as the application has them */
    ps_thread_context_publish();
    CHECK_STRING(record() + 53, "ff");
}

static void has_none_where_there_is_none_and_where_it_is_not_known(void)
{
    test_vm_set_span(ONE);
    ps_thread_context_publish();
    test_vm_set_span(NULL);
    ps_thread_context_publish();
    CHECK_STRING(record(), "");
    test_vm_set_span(ONE);
    ps_thread_context_publish();
    CHECK_STRING(record(), ONE);
    test_vm.found = PS_SPAN_UNKNOWN;
    ps_thread_context_publish();
    CHECK_STRING(record(), "");
}

static void *publish_other(void *unused)
{
    (void)unused;
    CHECK_STRING(record(), "");
    test_vm_set_span(OTHER);
    ps_thread_context_publish();
    CHECK_STRING(record(), OTHER);
    return NULL;
}

static void is_of_its_thread_alone(void)
{
    pthread_t thread;
    test_vm_set_span(ONE);
    ps_thread_context_publish();
    CHECK(pthread_create(&thread, NULL, publish_other, NULL) == 0);
    pthread_join(thread, NULL);
    CHECK_STRING(record(), ONE);
}

int main(void)
{
    RUN(has_the_current_span);
    RUN(has_none_where_there_is_none_and_where_it_is_not_known);
    RUN(is_of_its_thread_alone);
    return check_report("thread_context");
}

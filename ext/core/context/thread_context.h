/*
 * The thread context of OpenTelemetry (OTEP 4947): the current span of a thread. Profilers outside
 * of the process find it through the thread-local symbol otel_thread_ctx_v1.
 */
#ifndef PS_THREAD_CONTEXT_H
#define PS_THREAD_CONTEXT_H

/* Publishes the application's current span as that of the calling thread. */
void ps_thread_context_publish(void);

#endif

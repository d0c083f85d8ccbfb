/*
 * The thread context of OpenTelemetry (OTEP 4947): the current span of a thread. Profilers outside
 * of the process find it through the thread-local symbol otel_thread_ctx_v1.
 */
#ifndef PS_THREAD_CONTEXT_H
#define PS_THREAD_CONTEXT_H

/* Sets the current span of the calling thread, as a W3C traceparent. "" is none. */
void ps_thread_context_set(const char *traceparent);

#endif

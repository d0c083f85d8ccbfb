/*
 * The thread context of OpenTelemetry (OTEP 4947): which span is current on a thread, where
 * profilers outside of the process find it: behind the thread-local symbol otel_thread_ctx_v1.
 */
#ifndef PS_THREAD_RECORD_H
#define PS_THREAD_RECORD_H

/* Of the calling thread. A W3C traceparent; "" for none. */
void ps_thread_record_set(const char *traceparent);

#endif

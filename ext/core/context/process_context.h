/*
 * The process context of OpenTelemetry (OTEP 4719, version 2): the resource of this process. Other
 * processes find it in a mapping named OTEL_CTX. It is published only when the application asks for
 * it.
 */
#ifndef PS_PROCESS_CONTEXT_H
#define PS_PROCESS_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Publishes a payload, and replaces the last one. payload: an encoded ProcessContext message, which
 * is copied. Not thread-safe. Returns false when there is no memory, or the system does not allow
 * such a mapping.
 */
bool ps_process_context_publish(const void *payload, size_t size);

#endif

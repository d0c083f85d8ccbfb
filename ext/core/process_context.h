/*
 * The process context of OpenTelemetry (OTEP 4719, version 2): the resource of this process, where
 * other processes find it, in a mapping named OTEL_CTX. Only what an application asks for is
 * published.
 */
#ifndef PS_PROCESS_CONTEXT_H
#define PS_PROCESS_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * payload: an encoded ProcessContext message, which is copied. Replaces the last one. One thread at
 * a time. False when there is no memory, or the system lets nobody have such a mapping.
 */
bool ps_process_context_publish(const void *payload, size_t size);
/* In a forked child, which does not inherit the mapping: publishes the same again. */
void ps_process_context_after_fork(void);

#endif

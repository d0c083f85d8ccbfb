#ifndef PS_THREAD_ID_H
#define PS_THREAD_ID_H

#include <stdint.h>

/* gettid(), cached for the thread: what the probes call thread_id. */
uint64_t ps_thread_id(void);

#endif

#ifndef PS_THREAD_ID_H
#define PS_THREAD_ID_H

#include <stdint.h>

/* The gettid() of the calling thread, cached. The probes call it thread_id. */
uint64_t ps_thread_id(void);
/* The getpid() of the process, which is a system call. */
int ps_process_id(void);

#endif

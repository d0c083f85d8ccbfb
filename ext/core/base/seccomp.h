/*
 * A seccomp filter may end the process at a system call that it does not list, and the process
 * cannot find that out beforehand. So under a filter no system call is made that the application
 * might not make itself. With PROBESCOPE_SECCOMP=errno the user states that the filter returns an
 * error instead. The default profile of container runtimes does so.
 */
#ifndef PS_SECCOMP_H
#define PS_SECCOMP_H

#include <stdbool.h>

/* True when a system call that the process has not made yet may end the process. */
bool ps_seccomp_may_end_us(void);

#endif

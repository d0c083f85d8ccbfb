/*
 * What a seccomp filter does not know it may answer with the end of the process, and nothing tells
 * beforehand. So under a filter no system call is made that the application might not make itself,
 * unless the user says that it answers with an error: PROBESCOPE_SECCOMP=errno. The default profile
 * of container runtimes does.
 */
#ifndef PS_SECCOMP_H
#define PS_SECCOMP_H

#include <stdbool.h>

/* May a system call that is new to this process end it? */
bool ps_seccomp_may_end_us(void);

#endif

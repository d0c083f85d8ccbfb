/*
 * What a seccomp filter does not know it may answer with the end of the process, and nothing tells beforehand. So under a filter no
 * system call is made that the application might not make itself.
 */
#ifndef PS_SECCOMP_H
#define PS_SECCOMP_H

#include <stdbool.h>

/* Is there a filter? True as well where the kernel does not say. */
bool ps_seccomp_filters(void);

#endif

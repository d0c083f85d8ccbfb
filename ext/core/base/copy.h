/*
 * Copies memory of this process that another thread may change or unmap at any moment. A plain load
 * from such memory could cause a SIGSEGV.
 *
 * The kernel copies (process_vm_readv() on the process itself), and reports where it could not. No
 * file descriptor is used: the application could close a descriptor of ours, and its number could
 * then become that of an application's file.
 */
#ifndef PS_COPY_H
#define PS_COPY_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Returns false when not all of it is mapped, or when the kernel does not allow the call. Then the
 * content of `to` is undefined.
 */
bool ps_copy(void *to, const void *from, size_t size);
/*
 * True when ps_copy() may be called and copies. False under a seccomp filter that may end the
 * process (seccomp.h), or that refuses the call.
 */
bool ps_copy_works(void);

#endif

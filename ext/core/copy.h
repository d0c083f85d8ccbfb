/*
 * Copies memory of this process that another thread may change or unmap at any moment. A plain load
 * of it could be a SIGSEGV.
 *
 * The kernel copies (process_vm_readv() of the process itself), and says where it could not. No
 * file descriptor is involved: one of ours could be closed by the application, and its number then
 * be that of a file of the application.
 */
#ifndef PS_COPY_H
#define PS_COPY_H

#include <stdbool.h>
#include <stddef.h>

/*
 * False: not all of it is mapped, or the kernel does not copy at all. Then what stands at `to` is
 * undefined.
 */
bool ps_copy(void *to, const void *from, size_t size);
/*
 * May it be called, and does it copy? Not under a seccomp filter that may end the process
 * (seccomp.h), or does not let it pass.
 */
bool ps_copy_works(void);

#endif

#include "base/copy.h"

#include <sys/uio.h>
#include <unistd.h>

#include "base/seccomp.h"
#include "base/thread_record.h"

bool ps_copy(void *to, const void *from, size_t size)
{
    struct iovec local = {to, size}, remote = {(void *)from, size};
    bool ours = ps_ours_begin();
    ssize_t copied = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    ps_ours_end(ours);
    return copied == (ssize_t)size;
}

bool ps_copy_works(void)
{
    const unsigned from = 0x5eed;
    unsigned to = 0;
    return !ps_seccomp_may_end_us() && ps_copy(&to, &from, sizeof(to)) && to == from;
}

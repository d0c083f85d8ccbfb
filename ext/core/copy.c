#include "copy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

bool ps_copy(void *to, const void *from, size_t size)
{
    struct iovec local = {to, size}, remote = {(void *)from, size};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)size;
}

/* True as well where the kernel does not say. */
static bool has_filter(void)
{
    static const char field[] = "Seccomp:";
    char line[256];
    bool found = false, none = false;
    FILE *status = fopen("/proc/self/status", "re");
    while (status && !found && fgets(line, sizeof(line), status)) {
        found = strncmp(line, field, sizeof(field) - 1) == 0;
        none = found && strtol(line + sizeof(field) - 1, NULL, 10) == 0;
    }
    if (status) fclose(status);
    return !none;
}

bool ps_copy_works(void)
{
    const unsigned from = 0x5eed;
    unsigned to = 0;
    return !has_filter() && ps_copy(&to, &from, sizeof(to)) && to == from;
}

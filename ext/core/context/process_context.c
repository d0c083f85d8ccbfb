#include "context/process_context.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fork.h"

#ifndef PR_SET_VMA
#define PR_SET_VMA           0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

#define NAME "OTEL_CTX"
enum { VERSION = 2 };

struct header {
    char signature[8];
    uint32_t version;
    uint32_t payload_size;
    uint64_t published_at; /* ns of CLOCK_BOOTTIME; 0 while the header changes */
    uint64_t payload;
};

static struct header *header;
static void *payload;
static size_t payload_size;

/* Returns a page that a child does not inherit, or NULL. */
static struct header *map_page(void)
{
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    int file = memfd_create(NAME, MFD_CLOEXEC | MFD_NOEXEC_SEAL);
    if (file < 0) file = memfd_create(NAME, MFD_CLOEXEC); /* before Linux 6.3 */
    int flags = MAP_PRIVATE | (file < 0 ? MAP_ANONYMOUS : 0);
    void *page = MAP_FAILED;
    if (file < 0 || ftruncate(file, (off_t)size) == 0)
        page = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, file, 0);
    if (file >= 0) close(file);
    if (page == MAP_FAILED) return NULL;
    if (madvise(page, size, MADV_DONTFORK) == 0) return page;
    munmap(page, size);
    return NULL;
}

static void name_page(void)
{
    /*
     * A reader may wait for this call. So it is made even where the kernel does not support such
     * names.
     */
    prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, header, sysconf(_SC_PAGESIZE), NAME);
}

/*
 * A reader reads published_at before and after the rest, and starts again when the values differ.
 */
static bool write_header(void)
{
    if (!header) header = map_page();
    if (!header) return false;
    uint64_t last = header->published_at, now = ps_clock_read(CLOCK_BOOTTIME);
    __atomic_store_n(&header->published_at, 0, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* without it aarch64 may do the next stores before that one */
    header->version = VERSION;
    header->payload_size = (uint32_t)payload_size;
    header->payload = (uint64_t)(uintptr_t)payload;
    __atomic_store_n(&header->published_at, now > last ? now : last + 1, __ATOMIC_SEQ_CST);
    memcpy(header->signature, NAME, sizeof(header->signature));
    name_page();
    return true;
}

bool ps_process_context_publish(const void *bytes, size_t size)
{
    void *copy = size <= UINT32_MAX ? malloc(size ? size : 1) : NULL, *old = payload;
    if (!copy) return false;
    memcpy(copy, bytes, size);
    size_t old_size = payload_size;
    payload = copy;
    payload_size = size;
    if (write_header()) {
        free(old);
        return true;
    }
    payload = old;
    payload_size = old_size;
    free(copy);
    return false;
}

/* The child does not inherit the mapping. */
static void after_fork_in_child(void)
{
    if (!header) return;
    header = NULL;
    write_header();
}
PS_FORK_STEP(PS_FORK_PROCESS_CONTEXT, .in_child = after_fork_in_child)

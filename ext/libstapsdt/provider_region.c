#include "provider_region.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "provider_file.h"

static bool reserve(ps_region *region, size_t size)
{
    if (region->count > 0) {
        if (region->places[region->count - 1].size >= size) return true;
        if (size < 2 * region->places[region->count - 1].size)
            size = 2 * region->places[region->count - 1].size;
    }
    void *start = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return false;
    region->places[region->count].start = start;
    region->places[region->count++].size = size;
    return true;
}

static bool map(uint8_t *at, size_t size, int protection, int flags, int file, size_t offset)
{
    return size == 0 ||
           mmap(at, size, protection, MAP_PRIVATE | MAP_FIXED | flags, file, (off_t)offset) != MAP_FAILED;
}

uint8_t *ps_region_map(ps_region *region, const ps_image *image, int file)
{
    if (!reserve(region, image->mapped)) return NULL;
    uint8_t *start = region->places[region->count - 1].start;
    /*
     * The code is mapped last. Where a tracer has attached by path, the kernel looks for the
     * semaphores when the code is mapped.
     */
    size_t semaphores = image->mapped - image->semaphores;
    if (map(start + image->semaphores, semaphores, PROT_READ | PROT_WRITE, 0, file, image->semaphores) &&
        map(start, image->semaphores, PROT_READ | PROT_EXEC, 0, file, 0))
        return start;
    int error = errno;
    map(start + image->semaphores, semaphores, PROT_READ | PROT_WRITE, MAP_ANONYMOUS, -1, 0);
    errno = error;
    return NULL;
}

/* Makes a file that has nothing but sites. */
static int file_of_sites(size_t text, size_t size)
{
    uint8_t *bytes = calloc(1, size);
    if (!bytes) return -1;
    ps_image_sites(bytes, text, size);
    int file = ps_file_in_memory("probescope", bytes, size);
    free(bytes);
    return file;
}

bool ps_region_cover(ps_region *region, size_t text, size_t semaphores, size_t mapped)
{
    uint8_t *start = region->places[region->count - 1].start;
    int file = file_of_sites(text, semaphores);
    bool covered = file >= 0 && map(start, semaphores, PROT_READ | PROT_EXEC, 0, file, 0);
    if (file >= 0) close(file);
    return map(start + semaphores, mapped - semaphores, PROT_READ | PROT_WRITE, MAP_ANONYMOUS, -1, 0) &&
           covered;
}

void ps_region_free(ps_region *region)
{
    while (region->count > 0) {
        region->count--;
        munmap(region->places[region->count].start, region->places[region->count].size);
    }
}

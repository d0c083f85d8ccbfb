/*
 * The memory to which a provider's library is mapped. A thread may fire a probe, without a lock,
 * while another thread unloads the provider. So memory that was mapped stays mapped until the
 * provider is destroyed. Unloading covers it: the code by the same code from a file that no tracer
 * finds, the semaphores by zeros. Loading again maps the library over the cover. A library that has
 * outgrown its place gets a new place, at least twice as large.
 */
#ifndef PS_PROVIDER_REGION_H
#define PS_PROVIDER_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "provider_image.h"

/* Each place is at least twice as large as the one before, so no provider runs out of places. */
enum { PS_REGION_PLACES = 40 };

typedef struct ps_region {
    struct {
        uint8_t *start;
        size_t size;
    } places[PS_REGION_PLACES]; /* the last one is in use */
    int count;
} ps_region;

/*
 * Maps the image, whose content is in the file. Returns the start of the mapping, or NULL with
 * errno.
 */
uint8_t *ps_region_map(ps_region *region, const ps_image *image, int file);
/*
 * Covers the library. Returns false when there was no descriptor or no memory for the cover: then
 * the file stays in use.
 */
bool ps_region_cover(ps_region *region, size_t text, size_t semaphores, size_t mapped);
void ps_region_free(ps_region *region);

#endif

/*
 * Where a provider's library stands in memory. A thread may fire a probe while another one unloads
 * the provider, and it holds no lock: so what was mapped is never unmapped before the provider is
 * destroyed. It is covered: the code by the same code in a file that no tracer knows, the
 * semaphores by zeros. Loading again covers that, or, when the library has outgrown it, takes a
 * place twice as large.
 */
#ifndef PS_PROVIDER_REGION_H
#define PS_PROVIDER_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "provider_image.h"

/*
 * As each place is at least twice as large as the one before, no provider comes to the end of
 * these.
 */
enum { PS_REGION_PLACES = 40 };

typedef struct ps_region {
    struct {
        uint8_t *start;
        size_t size;
    } places[PS_REGION_PLACES]; /* the last one is in use */
    int count;
} ps_region;

/*
 * Maps the image, which is what the file holds, and returns where it begins; or NULL, with errno.
 */
uint8_t *ps_region_map(ps_region *region, const ps_image *image, int file);
/* Covers it. False: there was no descriptor or no memory for it, and the file stays in use. */
bool ps_region_cover(ps_region *region, size_t text, size_t semaphores, size_t mapped);
void ps_region_free(ps_region *region);

#endif

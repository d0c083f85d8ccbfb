/*
 * The library that tracers read to learn of a provider's probes. It is an ELF file with one site
 * for each probe, a semaphore for each name, and the notes that sys/sdt.h would have written
 * (https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation).
 *
 *   page 0...   headers, .note.gnu.build-id, .stapsdt.base, .text  mapped for reading and execution
 *   page n...   .probes: the semaphores                            mapped for writing
 *   after that  .note.stapsdt, .symtab, .strtab                    not mapped, for tools
 *
 * Addresses in it are offsets in the file. It has no dynamic section, because no loader links it:
 * provider_region.c maps it.
 */
#ifndef PS_PROVIDER_IMAGE_H
#define PS_PROVIDER_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libstapsdt.h"

/* A site is a nop, to which the note points, and a return. */
enum { PS_SITE_SIZE = 8 };

typedef struct ps_image_probe {
    const char *name;
    const ArgType_t *types;
    int count;
    /* Offsets of its site and its semaphore: ps_image_make() sets them. */
    size_t site, semaphore;
} ps_image_probe;

typedef struct ps_image {
    uint8_t *bytes;
    size_t size;
    size_t text;       /* where the sites begin */
    size_t semaphores; /* where the semaphores begin: the first byte of a page */
    size_t mapped;     /* where the last page of the semaphores ends */
    uint64_t digest;   /* of the content: the build-id */
} ps_image;

/*
 * Probes of one name get one semaphore, because tracers lose events when a name has several
 * (bpftrace#3601). Returns false when there is no memory or the CPU is not supported.
 */
bool ps_image_make(ps_image *image, const char *provider, ps_image_probe *probes, size_t count);
void ps_image_free(ps_image *image);

/* Writes sites from one offset of the image to another. */
void ps_image_sites(uint8_t *bytes, size_t from, size_t to);

#endif

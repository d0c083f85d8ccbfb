/*
 * The library that tracers read to learn of a provider's probes: an ELF file with one site for each
 * probe, a semaphore for each name, and the notes that sys/sdt.h would have written
 * (https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation).
 *
 *   page 0...   headers, .note.gnu.build-id, .stapsdt.base, .text   mapped for reading and execution
 *   page n...   .probes: the semaphores                             mapped for writing
 *   behind it   .note.stapsdt, .symtab, .strtab                     for tools alone
 *
 * Addresses in it are offsets in the file. Nobody links it: it has no dynamic section, and
 * provider_region.c maps it.
 */
#ifndef PS_PROVIDER_IMAGE_H
#define PS_PROVIDER_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libstapsdt.h"

/* A site is an instruction that does nothing, where the note points, and a return. */
enum { PS_SITE_SIZE = 8 };

typedef struct ps_image_probe {
    const char *name;
    const ArgType_t *types;
    int count;
    /* Where its site and its semaphore are: set by ps_image_make(). */
    size_t site, semaphore;
} ps_image_probe;

typedef struct ps_image {
    uint8_t *bytes;
    size_t size;
    size_t text;       /* where the sites begin */
    size_t semaphores; /* where they begin, the first byte of a page */
    size_t mapped;     /* where the last page of them ends */
    uint64_t digest;   /* of its content: the build-id */
} ps_image;

/*
 * Probes of one name have one semaphore: tracers lose events when there are several
 * (bpftrace#3601). False: no memory, or no such CPU.
 */
bool ps_image_make(ps_image *image, const char *provider, ps_image_probe *probes, size_t count);
void ps_image_free(ps_image *image);

/* Writes sites from one offset of the image to another. */
void ps_image_sites(uint8_t *bytes, size_t from, size_t to);

#endif

/*
 * A probe site: the instruction and the note by which a tracer finds one probe. Each probe has one
 * function with one site.
 *
 *   nop          the note points to it. Every kernel can put its breakpoint on a nop without
 *                single-stepping. No nop5 follows, because the kernel could turn a nop5 into a
 *                call: see docs/decisions/031-one-nop.md
 *   the note     section .note.stapsdt, as SystemTap's sys/sdt.h lays it out
 *                (https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation)
 *
 * Rules that keep the application whole:
 * - Sites stand in functions that are never inlined or cloned. So each probe has exactly one
 *   address, and its operands are the registers of the calling convention. Every parser of notes
 *   takes this form, which is the simplest.
 * - All semaphores are one array. Each name has one semaphore, because tracers lose events when
 *   sites of one name have several (bpftrace#3601). The semaphores lie close together, so that the
 *   watcher reads all of them from one cache line.
 */
#ifndef PS_PROBE_H
#define PS_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/probe_set.h"
#include "usdt/probes.gen.h"

/* The kernel raises and lowers the semaphores by writing to the mapped page. */
extern volatile uint16_t ps_semaphores[PS_PROBE_COUNT] __attribute__((visibility("hidden")));

/* True while a tracer listens to the probe. */
#define PS_ENABLED(probe) (__builtin_expect(ps_semaphores[PS_PROBE_##probe] != 0, 0))

/* The set of the probes to which a tracer listens (probe_groups.h). */
static inline ps_probe_set ps_probes_listened(void)
{
    ps_probe_set listened = 0;
    for (int i = 0; i < PS_PROBE_COUNT; i++) listened |= (ps_probe_set)(ps_semaphores[i] != 0) << i;
    return listened;
}

/* The same for any probe of a set, which has a bit for each probe. */
static inline bool ps_any_enabled(ps_probe_set probes)
{
    for (; probes; probes &= probes - 1)
        if (ps_semaphores[__builtin_ctzll(probes)]) return true;
    return false;
}

#if defined(__linux__) && defined(__x86_64__)
#define PS_HAVE_SITES 1
#define PS_R0         "rdi"
#define PS_R1         "rsi"
#define PS_R2         "rdx"
#define PS_R3         "rcx"
#define PS_R4         "r8"
#define PS_R5         "r9"
#define PS_OPERAND(i) "8@%%" PS_R##i
#elif defined(__linux__) && defined(__aarch64__)
#define PS_HAVE_SITES 1
#define PS_R0         "x0"
#define PS_R1         "x1"
#define PS_R2         "x2"
#define PS_R3         "x3"
#define PS_R4         "x4"
#define PS_R5         "x5"
#define PS_OPERAND(i) "8@" PS_R##i
#else
#define PS_HAVE_SITES 0
#endif

#if defined(__clang__)
#define PS_SITE_FUNCTION __attribute__((noinline, used, visibility("hidden")))
#else
#define PS_SITE_FUNCTION __attribute__((noinline, noclone, used, visibility("hidden")))
#endif

#define PS_ARG(value) ((uint64_t)(uintptr_t)(value))

#if PS_HAVE_SITES
#define PS_NOTE(name, operands)                                                                              \
    "990: nop\n"                                                                                             \
    ".pushsection .note.stapsdt,\"?\",\"note\"\n"                                                            \
    ".balign 4\n"                                                                                            \
    ".4byte 992f-991f, 994f-993f, 3\n"                                                                       \
    "991: .asciz \"stapsdt\"\n"                                                                              \
    "992: .balign 4\n"                                                                                       \
    "993: .8byte 990b\n"                                                                                     \
    ".8byte _.stapsdt.base\n"                                                                                \
    ".8byte ps_semaphores + %c[semaphore]\n"                                                                 \
    ".asciz \"" PS_PROVIDER "\"\n"                                                                           \
    ".asciz \"" name "\"\n"                                                                                  \
    ".asciz \"" operands "\"\n"                                                                              \
    "994: .balign 4\n"                                                                                       \
    ".popsection\n" /* From the address of this section tools compute how far a prelinked file moved. */     \
    ".ifndef _.stapsdt.base\n"                                                                               \
    ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"                                  \
    ".weak _.stapsdt.base\n"                                                                                 \
    ".hidden _.stapsdt.base\n"                                                                               \
    "_.stapsdt.base: .space 1\n"                                                                             \
    ".size _.stapsdt.base, 1\n"                                                                              \
    ".popsection\n"                                                                                          \
    ".endif\n"

/*
 * A site of any number of arguments, as `rake generate` writes it into probe_sites.gen.c:
 *
 *   PS_REG(0, a);
 *   PS_REG(1, b);
 *   PS_EMIT("name", PS_OPERAND(0) " " PS_OPERAND(1), PS_SEMAPHORE(probe), "r"(reg0), "r"(reg1));
 */
#define PS_REG(i, value)    register uint64_t reg##i __asm__(PS_R##i) = PS_ARG(value)
#define PS_SEMAPHORE(probe) [semaphore] "i"((probe) * sizeof(ps_semaphores[0]))
/* "memory": the compiler writes what the arguments point to before the tracer reads it. */
#define PS_EMIT(name, operands, ...) __asm__ volatile(PS_NOTE(name, operands)::__VA_ARGS__ : "memory")

#else
#define PS_REG(i, value) (void)(value)
#define PS_EMIT(...)     (void)0
#endif

#endif

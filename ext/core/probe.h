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

#include <stdint.h>

#include "probes.gen.h"

/* The kernel raises and lowers the semaphores by writing to the mapped page. */
extern volatile uint16_t ps_semaphores[PS_PROBE_COUNT] __attribute__((visibility("hidden")));

/* True while a tracer listens to the probe. */
#define PS_ENABLED(probe) (__builtin_expect(ps_semaphores[PS_PROBE_##probe] != 0, 0))

#if defined(__linux__) && defined(__x86_64__)
#define PS_HAVE_SITES   1
#define PS_R0           "rdi"
#define PS_R1           "rsi"
#define PS_R2           "rdx"
#define PS_R3           "rcx"
#define PS_R4           "r8"
#define PS_R5           "r9"
#define PS_OPERAND(reg) "8@%%" reg
#elif defined(__linux__) && defined(__aarch64__)
#define PS_HAVE_SITES   1
#define PS_R0           "x0"
#define PS_R1           "x1"
#define PS_R2           "x2"
#define PS_R3           "x3"
#define PS_R4           "x4"
#define PS_R5           "x5"
#define PS_OPERAND(reg) "8@" reg
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

#define PS_REG(i, value)    register uint64_t reg##i __asm__(PS_R##i) = (value)
#define PS_SEMAPHORE(probe) [semaphore] "i"((probe) * sizeof(ps_semaphores[0]))
/* "memory": the compiler writes what the arguments point to before the tracer reads it. */
#define PS_EMIT(name, operands, ...) __asm__ volatile(PS_NOTE(name, operands)::__VA_ARGS__ : "memory")

#define PS_SITE0(name, probe) PS_EMIT(name, "", PS_SEMAPHORE(probe))
#define PS_SITE2(name, probe, a0, a1)                                                                        \
    PS_REG(0, a0);                                                                                           \
    PS_REG(1, a1);                                                                                           \
    PS_EMIT(name, PS_OPERAND(PS_R0) " " PS_OPERAND(PS_R1), PS_SEMAPHORE(probe), "r"(reg0), "r"(reg1))
#define PS_SITE3(name, probe, a0, a1, a2)                                                                    \
    PS_REG(0, a0);                                                                                           \
    PS_REG(1, a1);                                                                                           \
    PS_REG(2, a2);                                                                                           \
    PS_EMIT(name, PS_OPERAND(PS_R0) " " PS_OPERAND(PS_R1) " " PS_OPERAND(PS_R2), PS_SEMAPHORE(probe),        \
            "r"(reg0), "r"(reg1), "r"(reg2))
#define PS_SITE4(name, probe, a0, a1, a2, a3)                                                                \
    PS_REG(0, a0);                                                                                           \
    PS_REG(1, a1);                                                                                           \
    PS_REG(2, a2);                                                                                           \
    PS_REG(3, a3);                                                                                           \
    PS_EMIT(name, PS_OPERAND(PS_R0) " " PS_OPERAND(PS_R1) " " PS_OPERAND(PS_R2) " " PS_OPERAND(PS_R3),       \
            PS_SEMAPHORE(probe), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3))
#define PS_SITE6(name, probe, a0, a1, a2, a3, a4, a5)                                                        \
    PS_REG(0, a0);                                                                                           \
    PS_REG(1, a1);                                                                                           \
    PS_REG(2, a2);                                                                                           \
    PS_REG(3, a3);                                                                                           \
    PS_REG(4, a4);                                                                                           \
    PS_REG(5, a5);                                                                                           \
    PS_EMIT(name,                                                                                            \
            PS_OPERAND(PS_R0) " " PS_OPERAND(PS_R1) " " PS_OPERAND(PS_R2) " " PS_OPERAND(                    \
                PS_R3) " " PS_OPERAND(PS_R4) " " PS_OPERAND(PS_R5),                                          \
            PS_SEMAPHORE(probe), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5))
/*
 * There is no PS_SITE5: no probe has five plain arguments and no `more`. stats__done has five and
 * `more`, which is six.
 */
#else
#define PS_SITE0(name, probe)                 (void)0
#define PS_SITE2(name, probe, a0, a1)         (void)(a0), (void)(a1)
#define PS_SITE3(name, probe, a0, a1, a2)     (void)(a0), (void)(a1), (void)(a2)
#define PS_SITE4(name, probe, a0, a1, a2, a3) (void)(a0), (void)(a1), (void)(a2), (void)(a3)
#define PS_SITE6(name, probe, a0, a1, a2, a3, a4, a5)                                                        \
    (void)(a0), (void)(a1), (void)(a2), (void)(a3), (void)(a4), (void)(a5)
#endif

#endif

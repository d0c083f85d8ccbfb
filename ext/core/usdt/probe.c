#include "usdt/probe.h"

/* In a section with contents, because the kernel finds a semaphore by its offset in the file. */
volatile uint16_t ps_semaphores[PS_PROBE_COUNT] __attribute__((section(".probes"), aligned(64)));

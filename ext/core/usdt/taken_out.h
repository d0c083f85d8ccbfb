/*
 * What PROBESCOPE_MAX_OVERHEAD has taken out. agent/overhead.h decides and writes it. The layers
 * below it read it.
 */
#ifndef PS_TAKEN_OUT_H
#define PS_TAKEN_OUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/probe_set.h"

/* The limit in millionths of the CPU time; 0: there is none. */
extern uint32_t ps_overhead_limit;
/* A bit for each probe whose hooks were taken out. Written by the watcher. */
extern ps_probe_set ps_overhead_out;
/* True when functions were taken out since the process started. */
extern bool ps_overhead_functions;

#endif

/*
 * What status() of each package shows, in this order: a name and a value for each line. The VM's
 * extension defines the macros that are given here, each of which stores one pair.
 */
#ifndef PS_STATUS_H
#define PS_STATUS_H

#include "agent/switching.h"
#include "base/clock.h"
#include "base/memory.h"
#include "usdt/info.h"

/* PROBES stores a pair for each probe: its name, and its state with the reason, if there is one. */
#define PS_STATUS(FLAG, PROBES, TEXT, NUMBER)                                                                \
    FLAG("installed", ps_features_installed())                                                               \
    PROBES("probes")                                                                                         \
    TEXT("clock", ps_clock.counter ? "cycles" : "vdso")                                                      \
    NUMBER("memory_used", ps_memory_used())                                                                  \
    NUMBER("memory_limit", ps_memory_limit())                                                                \
    NUMBER("rows_dropped", probescope_info.rows_dropped)                                                     \
    NUMBER("flushes", probescope_info.flushes)

#endif

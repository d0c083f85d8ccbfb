#include "usdt/taken_out.h"

uint32_t ps_overhead_limit;
ps_probe_set ps_overhead_out;
bool ps_overhead_functions;

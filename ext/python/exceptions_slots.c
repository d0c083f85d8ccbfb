#include "exceptions.h"

#if !PS_HAVE_MONITORING

#include "info.h"

bool ps_exceptions_hook(uint32_t wanted)
{
    for (int i = 0; i < PS_PROBE_COUNT; i++)
        if (((wanted & PS_EXCEPTION_PROBES) >> i) & 1)
            ps_info_state((enum ps_probe)i, PS_STATE_UNSUPPORTED, "exceptions need CPython 3.12 or later so far");
    return false;
}

void ps_exceptions_forget(void) {}

bool ps_exceptions_hook_needs_upkeep(void)
{
    return false;
}

void ps_exceptions_hook_upkeep(bool last) {}

#endif

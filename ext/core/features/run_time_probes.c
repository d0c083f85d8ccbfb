#include "features/run_time_probes.h"

#include <stdio.h>
#include <stdlib.h>

bool ps_run_time_strict;

static const char *error_of(const SDTProvider_t *provider, const char *otherwise)
{
    return provider->error ? provider->error : otherwise;
}

const char *ps_run_time_add(ps_run_time_probe *probe, SDTProvider_t *provider, const char *name)
{
    probe->sdt = ps_provider_add(provider, name, probe->count, probe->types);
    return probe->sdt ? NULL : error_of(provider, "it is loaded: unload it to add probes");
}

const char *ps_run_time_load(SDTProvider_t *provider)
{
    return ps_provider_load(provider) == 0 ? NULL : error_of(provider, "libstapsdt does not load it");
}

void ps_run_time_free(SDTProvider_t *provider)
{
    providerUnload(provider); /* libstapsdt requires this call first */
    providerDestroy(provider);
}

const char *ps_run_time_wanted(char to[static PS_TYPE_BUFFER], ArgType_t type, const ps_type_names *names)
{
    if ((int)type == sdtString) snprintf(to, PS_TYPE_BUFFER, "%s", names->text);
    else if ((int)type == sdtDouble) snprintf(to, PS_TYPE_BUFFER, "%s", names->number);
    else
        snprintf(to, PS_TYPE_BUFFER, "%s that fits %sint%d", names->integer, type > 0 ? "u" : "",
                 8 * abs((int)type));
    return to;
}

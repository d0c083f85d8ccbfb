#include "base/seccomp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* True also where the kernel does not tell. */
static bool has_filter(void)
{
    static const char field[] = "Seccomp:";
    char line[256];
    bool found = false, none = false;
    FILE *status = fopen("/proc/self/status", "re");
    while (status && !found && fgets(line, sizeof(line), status)) {
        found = strncmp(line, field, sizeof(field) - 1) == 0;
        none = found && strtol(line + sizeof(field) - 1, NULL, 10) == 0;
    }
    if (status) fclose(status);
    return !none;
}

bool ps_seccomp_may_end_us(void)
{
    const char *answers = getenv("PROBESCOPE_SECCOMP");
    return !(answers && strcmp(answers, "errno") == 0) && has_filter();
}

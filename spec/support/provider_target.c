/*
 * Fires its own probes in a loop, with or without a tracer:
 *
 *   provider_target file|memory [PROVIDER [PROBE]]
 *
 * Prints "ready PID PATH", and reads orders from stdin: "fork", "unload", "load", "enabled". Ends
 * with stdin.
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <errno.h>

#include <libstapsdt.h>

static SDTProvider_t *provider;
static SDTProbe_t *kinds, *small, *twelve, *dotted;

static void fire(void)
{
    probeFire(kinds, UINT64_MAX, INT64_MIN, 1.5, "a string", (const char *)NULL, 7);
    probeFire(small, -1, 255, -2, 65535, -3, 4294967295u);
    uint64_t values[SDT_MAX_ARGUMENTS];
    for (int i = 0; i < SDT_MAX_ARGUMENTS; i++) values[i] = (uint64_t)(100 + i);
    probeFireArray(twelve, values);
    if (probeIsEnabled(dotted)) probeFire(dotted, getpid());
}

static int define(const char *name, const char *last, int in_memory)
{
    provider = providerInit(name);
    if (in_memory) providerUseMemfd(provider, memfd_enabled);
    kinds = providerAddProbe(provider, "kinds", 6, uint64, int64, sdtDouble, sdtString, sdtString, int32);
    small = providerAddProbe(provider, "small", 6, int8, uint8, int16, uint16, int32, uint32);
    ArgType_t types[SDT_MAX_ARGUMENTS];
    for (int i = 0; i < SDT_MAX_ARGUMENTS; i++) types[i] = i % 2 ? int32 : uint64;
    twelve = providerAddProbeArray(provider, "twelve", SDT_MAX_ARGUMENTS, types);
    dotted = providerAddProbe(provider, last, 1, int32);
    if (!kinds || !small || !twelve || !dotted || providerLoad(provider) != 0) {
        fprintf(stderr, "%s\n", provider->error);
        return -1;
    }
    return 0;
}

static void obey(const char *line)
{
    if (!strcmp(line, "fork\n")) {
        int child = fork();
        if (child) printf("forked %d\n", child);
        else fclose(stdin);
    } else if (!strcmp(line, "unload\n")) {
        providerUnload(provider);
        puts("unloaded");
    } else if (!strcmp(line, "load\n")) {
        puts(providerLoad(provider) == 0 ? "loaded" : provider->error);
    } else if (!strcmp(line, "enabled\n")) {
        printf("enabled %d %d\n", probeIsEnabled(kinds), probeIsEnabled(dotted));
    }
}

int main(int argc, char **argv)
{
    setlinebuf(stdout);
    if (argc < 2) return 1;
    if (define(argc > 2 ? argv[2] : "shop", argc > 3 ? argv[3] : "Class.method-1+2",
               !strcmp(argv[1], "memory")) != 0)
        return 1;
    printf("ready %d %s\n", getpid(), providerPath(provider) ? providerPath(provider) : "-");
    int parent = getpid();
    for (;;) {
        struct pollfd input = {parent == getpid() ? 0 : -1, POLLIN, 0};
        char line[64];
        fire();
        if (parent != getpid() && getppid() != parent) break;
        if (poll(&input, 1, 5) <= 0) continue;
        if (!fgets(line, sizeof(line), stdin)) break;
        obey(line);
    }
    providerDestroy(provider);
    return 0;
}

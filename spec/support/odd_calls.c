/*
 * For spec/libstapsdt_spec.rb: prints the results of calls in an odd order. They must equal those
 * of upstream's library.
 */
#include <libstapsdt.h>
#include <stdio.h>
#include <string.h>

static SDTProvider_t *provider;
static SDTProbe_t *probe;

static void start(void)
{
    provider = providerInit("odd");
    providerUseMemfd(provider, memfd_disabled);
    probe = providerAddProbe(provider, "probe", 2, uint8, int64);
}

/* Prints the public fields of the structs. */
static void say(const char *what, int result)
{
    printf("%s: %d, errno %d, error %d, handle %d, probe %s/%s %d %d %d %d fire %d enabled %d\n", what,
           result, provider->errno, provider->error != NULL, provider->_handle != NULL, provider->name,
           probe->name, probe->argCount, probe->argFmt[0], probe->argFmt[1], probe->argFmt[2],
           probe->_fire != NULL, probeIsEnabled(probe));
}

static void fire(const char *when)
{
    probeFire(probe, 255, -1L);
    say(when, probeIsEnabled(probe));
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    start();
    say("made", probe->provider == provider);
    fire("fired before it is loaded");
    say("unloaded before it is loaded", providerUnload(provider));
    say("to memory", providerUseMemfd(provider, memfd_enabled));
    say("to a file", providerUseMemfd(provider, memfd_disabled));
    SDTProbe_t *second = providerAddProbe(provider, "second", 0);
    say("the last one first", &provider->probes->probe == second && &provider->probes->next->probe == probe);
    say("loaded", providerLoad(provider));
    fire("fired");
    say("to memory when it is loaded", providerUseMemfd(provider, memfd_enabled));
    say("unloaded", providerUnload(provider));
    fire("fired after it is unloaded");
    say("unloaded again", providerUnload(provider));
    say("loaded again", providerLoad(provider));
    probeFire(second);
    fire("fired again");
    say("unloaded at the end", providerUnload(provider));
    providerDestroy(provider);

    provider = providerInit("none");
    printf("without a probe: %d\n", providerLoad(provider));
    providerUnload(provider);
    providerDestroy(provider);

    start();
    providerDestroy(provider);

    provider = providerInit("a/b");
    probe = providerAddProbe(provider, "probe", 0);
    providerUseMemfd(provider, memfd_disabled);
    say("a file with a / in its name", providerLoad(provider));
    providerDestroy(provider);
    return 0;
}

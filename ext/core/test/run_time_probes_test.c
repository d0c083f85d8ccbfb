#include "features/run_time_probes.h"

#include "check.h"

static const ps_type_names names = {"a text or nil", "a float", "an int"};

static void says_what_an_argument_has_to_be(void)
{
    char text[PS_TYPE_BUFFER];
    CHECK_STRING(ps_run_time_wanted(text, (ArgType_t)sdtString, &names), "a text or nil");
    CHECK_STRING(ps_run_time_wanted(text, (ArgType_t)sdtDouble, &names), "a float");
    CHECK_STRING(ps_run_time_wanted(text, uint64, &names), "an int that fits uint64");
    CHECK_STRING(ps_run_time_wanted(text, int8, &names), "an int that fits int8");
}

static void adds_until_the_provider_is_loaded(void)
{
    SDTProvider_t *provider = providerInit("shop");
    ps_run_time_probe first = {.count = 1, .types = {int64}}, second = first;
    CHECK(!ps_run_time_add(&first, provider, "bought"));
    CHECK(first.sdt != NULL);
    const char *wrong = ps_run_time_load(provider);
    if (wrong) { /* it says why, for example that no file can be mapped */
        CHECK(*wrong);
    } else {
        wrong = ps_run_time_add(&second, provider, "sold");
        CHECK(wrong && *wrong && !second.sdt);
    }
    const uint64_t values[SDT_MAX_ARGUMENTS] = {1};
    CHECK(!ps_run_time_fire(&first, values)); /* nobody listens */
    ps_run_time_free(provider);
}

static void counts_what_it_refuses(void)
{
    ps_run_time_probe probe = {.count = 2};
    CHECK(!ps_run_time_refuse(&probe));
    ps_run_time_strict = true;
    CHECK(ps_run_time_refuse(&probe));
    ps_run_time_strict = false;
    CHECK_EQUAL(probe.dropped, 2);
}

int main(void)
{
    RUN(says_what_an_argument_has_to_be);
    RUN(adds_until_the_provider_is_loaded);
    RUN(counts_what_it_refuses);
    return check_report("run_time_probes");
}

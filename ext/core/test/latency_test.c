#include "features/latency.h"

#include "check.h"

static void shows_the_probes_that_the_application_has(void)
{
    const char *error;
    CHECK(!ps_latency_next_shown(NULL));
    ps_latency *buy = ps_latency_define("Shop.buy", &error), *sell = ps_latency_define("Shop.sell", &error);
    buy->closed = sell->closed = false; /* also where a provider cannot be loaded */
    buy->reason = sell->reason = NULL;
    CHECK(ps_latency_next_shown(NULL) == sell);
    CHECK(ps_latency_next_shown(sell) == buy);
    CHECK(!ps_latency_next_shown(buy));

    ps_latency_close(sell);
    CHECK(ps_latency_next_shown(NULL) == buy);
    sell->reason = "there is no such method now";
    CHECK(ps_latency_next_shown(NULL) == sell);
    sell->reason = NULL;
    ps_latency_close(buy);
    CHECK(!ps_latency_next_shown(NULL));
}

static void is_switched_when_hooks_and_listeners_agree(void)
{
    const char *error;
    ps_latency *buy = ps_latency_define("Shop.buy", &error);
    CHECK(ps_latency_is_switched(true));
    CHECK(ps_latency_is_switched(false));
    ps_latency_hooked(buy, true); /* without a listener */
    CHECK(!ps_latency_is_switched(true));
    CHECK(!ps_latency_is_switched(false));
    ps_latency_hooked(buy, false);
    CHECK(ps_latency_is_switched(true));
}

int main(void)
{
    RUN(shows_the_probes_that_the_application_has);
    RUN(is_switched_when_hooks_and_listeners_agree);
    return check_report("latency");
}

#include "table/feature.h"

#include "table/routes.h"
#include "usdt/looking.h"
#include "check.h"

/* The core fires these, or they change what other probes do. */
static const ps_probe_set of_no_feature =
    PS_BIT(FUNCTIONS__ALL) | PS_BIT(STATS__BY_REQUEST) | PS_BIT(STATS__DONE) | PS_BIT(STATUS);

static void serve_every_probe(void)
{
    ps_probe_set served = of_no_feature;
    for (const ps_feature *const *each = ps_features; *each; each++) {
        CHECK_EQUAL((*each)->probes & of_no_feature, 0);
        CHECK_EQUAL((*each)->with_request & ~(*each)->probes, 0);
        served |= (*each)->probes;
    }
    CHECK_EQUAL(served, ((ps_probe_set)1 << PS_PROBE_COUNT) - 1);
}

static void have_what_the_flush_fires(void)
{
    ps_probe_set fired = 0;
    int split = 0;
    for (const ps_feature *const *each = ps_features; *each; each++) {
        const ps_feature *feature = *each;
        if (feature->fire_events) {
            CHECK(feature->probes >> feature->event_probe & 1);
            CHECK(!(fired >> feature->event_probe & 1));
            fired |= (ps_probe_set)1 << feature->event_probe;
        }
        CHECK_EQUAL(feature->table != NULL, feature->fire_row != NULL);
        if (!feature->table) continue;
        CHECK(feature->probes >> feature->row_probe & 1);
        CHECK(!(fired >> feature->row_probe & 1));
        fired |= (ps_probe_set)1 << feature->row_probe;
        CHECK(feature->events >= 0 && feature->events < PS_ROW_COUNTERS);
        CHECK(feature->maximum == -1 || (feature->maximum >= 0 && feature->maximum < PS_ROW_COUNTERS));
        CHECK(feature->maximum != feature->events);
        split += feature->table->routes != NULL;
    }
    CHECK(split <= PS_SPLIT_TABLES);
}

/* Otherwise the limit of the overhead would count the time of a hook twice, or not take it out. */
static void share_no_kind_of_hook(void)
{
    uint32_t kinds = 0;
    for (const ps_feature *const *each = ps_features; *each; each++) {
        const ps_feature *with = (*each)->taken_out_with;
        CHECK_EQUAL(kinds & (*each)->kinds, 0);
        kinds |= (*each)->kinds;
        CHECK(!with || (with->kinds && !with->taken_out_with));
        /* What serves a probe together goes together. */
        for (const ps_feature *const *other = ps_features; (*each)->kinds && *other != *each; other++)
            if ((*other)->kinds && (*other)->probes & (*each)->probes) CHECK(with == *other);
    }
    CHECK_EQUAL(kinds & ~((1u << PS_LOOK_KINDS) - 1), 0);
}

int main(void)
{
    RUN(serve_every_probe);
    RUN(have_what_the_flush_fires);
    RUN(share_no_kind_of_hook);
    return check_report("features");
}

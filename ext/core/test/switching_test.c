#include "base/atomic.h"
#include "agent/switching.h"
#include "base/memory.h"
#include "table/flush.h"
#include "table/interned_strings.h"
#include "usdt/info.h"
#include "check.h"
#include "recorder.h"

/*
 * A language with three features. The first needs two slices, the second can be refused, the third
 * has upkeep to do.
 */
static struct {
    char order[16];
    uint32_t wanted;
    int slices, work;
    const char *reason;
} language;

static void note(char feature, uint32_t wanted)
{
    size_t length = strlen(language.order);
    if (length < sizeof(language.order) - 1) language.order[length] = feature;
    language.wanted = wanted;
}

static bool hook_functions(uint32_t wanted)
{
    note('f', wanted);
    return language.slices == 0 || --language.slices == 0;
}

static bool hook_lines(uint32_t wanted)
{
    note('l', wanted);
    return true;
}

static const char *refused(void)
{
    return language.reason;
}

static bool needs_upkeep(void)
{
    return language.work > 0;
}

static void do_upkeep(void)
{
    language.work--;
}

static const ps_hooks table[] = {
    {.probes = PS_FUNCTION_PROBES, .hook = hook_functions},
    {.probes = PS_LINE_PROBES, .hook = hook_lines, .refused = refused},
    {.needs_upkeep = needs_upkeep, .do_upkeep = do_upkeep},
};

static unsigned requests;

static void request(unsigned what)
{
    PS_FETCH_OR(requests, what);
}

static const ps_vm vm = {.request = request, .needs_upkeep = ps_features_need_upkeep};

static void forget(void)
{
    memset(&language, 0, sizeof(language));
}

/* Does what the VM does for a request, and returns the state of a probe. */
static enum ps_state state(enum ps_probe probe)
{
    if (PS_EXCHANGE(requests, 0) & PS_REQUEST_SWITCH) ps_features_switch();
    return ps_info_state_of(probe);
}

static void names_what_no_part_serves(void)
{
    CHECK_EQUAL(state(PS_PROBE_GVL__WAIT), PS_STATE_UNSUPPORTED);
    CHECK_EQUAL(state(PS_PROBE_SAMPLE), PS_STATE_UNSUPPORTED);
    CHECK_EQUAL(state(PS_PROBE_FUNCTION__ENTRY), PS_STATE_OFF);
    CHECK_EQUAL(state(PS_PROBE_STATS__DONE), PS_STATE_OFF);
    CHECK_STRING(ps_state_names[PS_STATE_UNSUPPORTED], "unsupported");
}

static void switches_hooks_in_order_and_in_slices(void)
{
    forget();
    language.slices = 2;
    recorder_semaphore(PS_PROBE_FUNCTION__STATS, 1);
    CHECK_EQUAL(ps_features_install(&vm), 0);
    AWAIT(state(PS_PROBE_FUNCTION__STATS) == PS_STATE_ON);
    /* The watcher may have looked once more meanwhile. */
    CHECK(strncmp(language.order, "flfl", 4) == 0);
    CHECK_EQUAL(language.wanted, PS_BIT(FUNCTION__STATS));
    CHECK_EQUAL(state(PS_PROBE_LINE), PS_STATE_OFF);
    CHECK_EQUAL(probescope_info.flags & PS_INFO_INSTALLED, PS_INFO_INSTALLED);
}

/* A second tracer leaves before its hooks are in. What was hooked for it is taken out again. */
static void takes_out_what_was_hooked_for_one_who_left_early(void)
{
    forget();
    language.slices = -1; /* never done */
    recorder_semaphore(PS_PROBE_LINE, 1);
    AWAIT((state(PS_PROBE_LINE), language.wanted & PS_BIT(LINE)));
    recorder_semaphore(PS_PROBE_LINE, 0);
    AWAIT(!(ps_watcher_wanted() & PS_BIT(LINE)));
    language.slices = 0;
    AWAIT((state(PS_PROBE_LINE), language.wanted == PS_BIT(FUNCTION__STATS)));
    CHECK_EQUAL(state(PS_PROBE_FUNCTION__STATS), PS_STATE_ON);
}

static void leaves_what_a_hook_says_while_it_is_on(void)
{
    ps_info_state(PS_PROBE_FUNCTION__STATS, PS_STATE_DEGRADED, "half of them");
    recorder_semaphore(PS_PROBE_LINE, 1);
    AWAIT(state(PS_PROBE_LINE) == PS_STATE_ON);
    CHECK_EQUAL(state(PS_PROBE_FUNCTION__STATS), PS_STATE_DEGRADED);
    recorder_semaphore(PS_PROBE_FUNCTION__STATS, 0);
    AWAIT(state(PS_PROBE_FUNCTION__STATS) == PS_STATE_OFF);
    /* The reason can still be read. */
    CHECK_STRING(probescope_info.probes[PS_PROBE_FUNCTION__STATS].reason, "half of them");
}

static void refuses_also_while_nobody_listens(void)
{
    language.reason = "never again";
    recorder_semaphore(PS_PROBE_LINE, 0);
    AWAIT(state(PS_PROBE_LINE) == PS_STATE_REFUSED);
    CHECK_STRING(probescope_info.probes[PS_PROBE_LINE].reason, "never again");
    CHECK_EQUAL(state(PS_PROBE_FUNCTION__ENTRY), PS_STATE_OFF);
    language.reason = NULL;
    recorder_semaphore(PS_PROBE_FUNCTION__STATS, 1);
    AWAIT(state(PS_PROBE_FUNCTION__STATS) == PS_STATE_ON);
    CHECK_EQUAL(state(PS_PROBE_LINE), PS_STATE_OFF);
    recorder_semaphore(PS_PROBE_FUNCTION__STATS, 0);
}

/* While a tracer listens to any probe, it may read a name from an earlier event. */
static void gives_names_back_when_the_last_listener_leaves(void)
{
    recorder_semaphore(PS_PROBE_LINE, 1);
    recorder_semaphore(PS_PROBE_FUNCTION__STATS, 1);
    AWAIT(state(PS_PROBE_LINE) == PS_STATE_ON && state(PS_PROBE_FUNCTION__STATS) == PS_STATE_ON);
    size_t before = ps_memory_used();
    const ps_site *site = ps_site_intern("Cart#total", 10, "/app/cart.rb", 12, 3);
    recorder_semaphore(PS_PROBE_LINE, 0);
    AWAIT(state(PS_PROBE_LINE) == PS_STATE_OFF);
    CHECK_STRING(site->name, "Cart#total");
    CHECK(ps_memory_used() > before);

    /* A flush reads names. During a flush they stay, and the VM is asked again. */
    CHECK(ps_flush_try_lock());
    uint32_t generation = ps_sites_generation;
    recorder_semaphore(PS_PROBE_FUNCTION__STATS, 0);
    AWAIT(ps_watcher_wanted() == 0);
    for (int i = 0; i < 3; i++) {
        AWAIT(PS_READ(requests) & PS_REQUEST_SWITCH);
        CHECK_EQUAL(state(PS_PROBE_FUNCTION__STATS), PS_STATE_ON);
        CHECK_STRING(site->name, "Cart#total");
    }
    ps_flush_unlock();
    AWAIT(state(PS_PROBE_FUNCTION__STATS) == PS_STATE_OFF);
    CHECK_EQUAL(ps_memory_used(), before);
    CHECK(ps_sites_generation != generation);
}

static void does_upkeep_where_it_is_needed(void)
{
    language.work = 1;
    CHECK(ps_features_need_upkeep());
    ps_features_do_upkeep();
    ps_features_do_upkeep();
    CHECK_EQUAL(language.work, 0);
}

static void takes_all_hooks_out(void)
{
    recorder_semaphore(PS_PROBE_LINE, 1);
    AWAIT(state(PS_PROBE_LINE) == PS_STATE_ON);
    ps_features_uninstall();
    ps_watcher_stop();
    forget();
    language.slices = 3;
    while (!ps_features_unhook()) {
    }
    CHECK_STRING(language.order, "flflfl");
    CHECK_EQUAL(language.wanted, 0);
    CHECK_EQUAL(state(PS_PROBE_LINE), PS_STATE_OFF);
    CHECK_EQUAL(probescope_info.flags & PS_INFO_INSTALLED, 0);
    /* A tracer is still attached, and a late request hooks nothing. */
    ps_features_switch();
    CHECK_EQUAL(language.wanted, 0);
    recorder_semaphore(PS_PROBE_LINE, 0);
}

int main(void)
{
    ps_info_start("none", "0", "0");
    ps_features_init(table, sizeof(table) / sizeof(table[0]));
    RUN(names_what_no_part_serves);
    RUN(switches_hooks_in_order_and_in_slices);
    RUN(takes_out_what_was_hooked_for_one_who_left_early);
    RUN(leaves_what_a_hook_says_while_it_is_on);
    RUN(refuses_also_while_nobody_listens);
    RUN(gives_names_back_when_the_last_listener_leaves);
    RUN(does_upkeep_where_it_is_needed);
    RUN(takes_all_hooks_out);
    return check_report("switching");
}

#include "base/atomic.h"
#include "agent/switching.h"
#include "agent/overhead.h"
#include "base/memory.h"
#include "features/functions.h"
#include "features/lines.h"
#include "features/objects.h"
#include "features/requests.h"
#include "table/flush.h"
#include "table/interned_strings.h"
#include "usdt/info.h"
#include "check.h"
#include "recorder.h"

/*
 * A VM with hooks for three features. The first needs slices, the second can be refused, the third
 * has rows. A fourth has upkeep to do.
 */
static struct {
    char order[16];
    ps_probe_set wanted;
    int slices, work;
    const char *reason;
    bool other_turns; /* hooks run on other threads */
    /* Of the third. */
    int object_slices; /* that its hooks still need */
    bool on;
    bool left; /* all listeners of its probes have left since its rows were made */
    int cleared;
} language;

static void note(char feature, ps_probe_set wanted)
{
    size_t length = strlen(language.order);
    if (length < sizeof(language.order) - 1) language.order[length] = feature;
    language.wanted = wanted;
}

static bool hook_functions(ps_probe_set wanted)
{
    note('f', wanted);
    return language.slices == 0 || --language.slices == 0;
}

static bool hook_lines(ps_probe_set wanted)
{
    note('l', wanted);
    return true;
}

static const char *refused(void)
{
    return language.reason;
}

static bool hook_objects(ps_probe_set wanted)
{
    bool on = (wanted & ps_objects_feature.probes) != 0;
    if (on == language.on) return true;
    if (language.object_slices && language.object_slices-- > 1) return false;
    /* A tracer that comes back finds empty tables. */
    if (on && language.left) CHECK_EQUAL(ps_object_table.rows, 0);
    language.on = on;
    if (on) {
        language.left = false;
        ps_row *row = ps_table_row(&ps_object_table, 1, 0, 0);
        PS_WRITE_RELEASE(row->site, &ps_site_none);
    }
    return true;
}

static void forget_objects(void)
{
    CHECK(!language.on);
    CHECK(!language.other_turns);
    CHECK(!ps_flush_try_lock());
    language.cleared++;
}

static bool may_clear(void)
{
    return !language.other_turns;
}

static const char *why(void)
{
    return "it never will";
}

static bool needs_upkeep(void)
{
    return language.work > 0;
}

static void do_upkeep(void)
{
    language.work--;
}

static unsigned requests;

static void request(unsigned what)
{
    PS_FETCH_OR(requests, what);
}

static const ps_hooks functions = {.feature = &ps_functions_feature, .hook = hook_functions};
static const ps_hooks lines = {.feature = &ps_lines_feature, .hook = hook_lines, .refused = refused};
static const ps_hooks objects = {
    .feature = &ps_objects_feature, .hook = hook_objects, .forget = forget_objects};
static const ps_hooks requests_of_users = {
    .feature = &ps_requests_feature, .unsupported = PS_BIT(REQUEST__DONE), .why = why};
static const ps_hooks besides = {.needs_upkeep = needs_upkeep, .upkeep = do_upkeep};

const ps_vm ps_the_vm = {.hooks = {&functions, &lines, &objects, &requests_of_users, &besides},
                         .request = request,
                         .may_clear = may_clear};

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

static void names_what_no_hook_serves(void)
{
    CHECK_EQUAL(state(PS_PROBE_GVL__WAIT), PS_STATE_UNSUPPORTED);
    CHECK_EQUAL(state(PS_PROBE_SAMPLE), PS_STATE_UNSUPPORTED);
    CHECK_EQUAL(state(PS_PROBE_FUNCTION__ENTRY), PS_STATE_OFF);
    CHECK_EQUAL(state(PS_PROBE_STATS__DONE), PS_STATE_OFF);
    CHECK_EQUAL(state(PS_PROBE_REQUEST__START), PS_STATE_OFF);
    CHECK_EQUAL(state(PS_PROBE_REQUEST__DONE), PS_STATE_UNSUPPORTED);
    CHECK_STRING(probescope_info.probes[PS_PROBE_REQUEST__DONE].reason, "it never will");
    CHECK_STRING(ps_state_names[PS_STATE_UNSUPPORTED], "unsupported");
}

/* A set of probes has 64 bits. Nothing on its way to the hooks may cut it to 32. */
static void passes_all_bits_of_a_set_to_the_hooks(void)
{
    const ps_probe_set highest = (ps_probe_set)1 << 61;
    forget();
    CHECK(ps_features_hook(highest | PS_BIT(LINE)));
    CHECK_EQUAL(language.wanted, highest | PS_BIT(LINE));
    CHECK(ps_features_hook(0));
    CHECK_EQUAL(language.wanted, 0);
}

static void has_a_bit_for_each_probe(void)
{
    for (int i = 0; i < PS_PROBE_COUNT; i++) {
        const ps_probe_set alone = (ps_probe_set)1 << i;
        const struct ps_info_probe before = probescope_info.probes[i];
        recorder_semaphore((enum ps_probe)i, 1);
        CHECK_EQUAL(ps_probes_listened(), alone);
        CHECK(ps_any_enabled(alone));
        CHECK(!ps_any_enabled(~alone & (((ps_probe_set)1 << PS_PROBE_COUNT) - 1)));
        ps_info_states(alone, PS_STATE_DEGRADED, "half of them");
        CHECK_EQUAL(ps_info_probes_in(PS_STATE_DEGRADED), alone);
        ps_overhead_take_out(alone, 1);
        CHECK_EQUAL(ps_overhead_listened(alone), alone);
        CHECK_EQUAL(ps_info_probes_in(PS_STATE_REFUSED), alone);
        recorder_semaphore((enum ps_probe)i, 0);
        CHECK_EQUAL(ps_probes_listened(), 0);
        ps_overhead_out = 0;
        probescope_info.probes[i] = before;
    }
}

static void switches_hooks_in_order_and_in_slices(void)
{
    forget();
    language.slices = 2;
    recorder_semaphore(PS_PROBE_FUNCTION__STATS, 1);
    CHECK_EQUAL(ps_features_install(), 0);
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
    ps_features_do_upkeep();
    CHECK_EQUAL(language.work, 0);
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

/* ---- Every order of what may happen to a feature with rows ---- */

enum { ATTACH, DETACH, FLUSH_BEGINS, FLUSH_ENDS, TURN_BEGINS, TURN_ENDS, REFUSED_LINES, SLICE, STEPS };

static struct {
    ps_probe_set wanted;
    bool flushes;
} outside;

/* The switch that follows each step, as the job of a VM does it. */
static void switch_as_a_job(void)
{
    int cleared = language.cleared;
    bool done = ps_features_hook(outside.wanted);
    bool listens = (outside.wanted & ps_objects_feature.probes) != 0;
    if (outside.flushes || language.other_turns) CHECK_EQUAL(language.cleared, cleared);
    CHECK(language.cleared - cleared <= 1);
    /* What was refused is not hooked. */
    if (language.reason) CHECK(!(language.wanted & PS_BIT(LINE)));
    if (done) {
        CHECK_EQUAL(language.on, listens);
        CHECK_EQUAL(ps_object_table.rows, listens);
    }
    bool free_to_go = !outside.flushes && !language.other_turns && !language.object_slices;
    if (free_to_go) CHECK(done);
}

static void step(int what)
{
    switch (what) {
    case ATTACH: outside.wanted |= PS_BIT(OBJECT__STATS) | PS_BIT(LINE); break;
    case DETACH:
        if (ps_object_table.rows) language.left = true;
        outside.wanted &= PS_BIT(LINE);
        break;
    case FLUSH_BEGINS: outside.flushes |= !outside.flushes && ps_flush_try_lock(); break;
    case FLUSH_ENDS:
        if (outside.flushes) ps_flush_unlock();
        outside.flushes = false;
        break;
    case TURN_BEGINS: language.other_turns = true; break;
    case TURN_ENDS: language.other_turns = false; break;
    case REFUSED_LINES: language.reason = language.reason ? NULL : "not now"; break;
    case SLICE: language.object_slices = 2; break;
    }
    switch_as_a_job();
}

static void clears_between_two_tracers_in_every_order(void)
{
    enum { LENGTH = 5, ORDERS = STEPS * STEPS * STEPS * STEPS * STEPS };
    ps_features_hook(0);
    for (int order = 0; order < ORDERS && !check_failures; order++) {
        forget();
        outside.wanted = 0;
        int rest = order;
        for (int i = 0; i < LENGTH; i++, rest /= STEPS) step(rest % STEPS);
        step(FLUSH_ENDS);
        step(TURN_ENDS);
        step(DETACH);
        outside.wanted = 0;
        for (int i = 0; i < 4 && !ps_features_hook(0); i++) {
        }
        CHECK(!language.on);
        CHECK_EQUAL(ps_object_table.rows, 0);
        if (check_failures) fprintf(stderr, "in order %d\n", order);
    }
    forget();
}

static void clears_for_a_hook_that_begins_again(void)
{
    CHECK(ps_features_hook(PS_BIT(OBJECT__STATS)));
    language.on = false; /* its hooks are out */
    CHECK(ps_flush_try_lock());
    CHECK(!ps_features_clear(&ps_objects_feature));
    CHECK_EQUAL(ps_object_table.rows, 1);
    ps_flush_unlock();
    CHECK(ps_features_clear(&ps_objects_feature));
    CHECK_EQUAL(ps_object_table.rows, 0);
    language.cleared = 0;
    CHECK(ps_features_hook(PS_BIT(OBJECT__STATS)));
    CHECK_EQUAL(ps_object_table.rows, 1);
    CHECK(ps_features_hook(0));
    CHECK_EQUAL(language.cleared, 1);
}

int main(void)
{
    ps_info_start("none", "0", "0");
    ps_features_init();
    RUN(names_what_no_hook_serves);
    RUN(passes_all_bits_of_a_set_to_the_hooks);
    RUN(has_a_bit_for_each_probe);
    RUN(switches_hooks_in_order_and_in_slices);
    RUN(takes_out_what_was_hooked_for_one_who_left_early);
    RUN(leaves_what_a_hook_says_while_it_is_on);
    RUN(refuses_also_while_nobody_listens);
    RUN(gives_names_back_when_the_last_listener_leaves);
    RUN(does_upkeep_where_it_is_needed);
    RUN(takes_all_hooks_out);
    RUN(clears_between_two_tracers_in_every_order);
    RUN(clears_for_a_hook_that_begins_again);
    return check_report("switching");
}

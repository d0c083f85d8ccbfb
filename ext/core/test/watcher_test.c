#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "agent/watcher.h"
#include "base/clock.h"
#include "base/fork.h"
#include "calls/here.h"
#include "calls/shadow_stack.h"
#include "context/process_context.h"
#include "features/samples.h"
#include "table/flush.h"
#include "table/table.h"
#include "usdt/info.h"
#include "check.h"
#include "recorder.h"

/* A VM that counts the requests it gets, and switches hooks when a test allows it. */
static struct {
    uint64_t switches, samples, upkeeps, wakes;
    bool waits;            /* the VM can be woken, and switches at the first request after that */
    uint64_t switch_after; /* switches from this request on, counted from 1; 0: never */
    uint64_t applied_ns;
    bool has_upkeep, never_comes;
    bool finished; /* it has switched hooks */
    bool blocks_signals;
    uint64_t stack_bytes;
} vm_state;

static void look_at_thread(void)
{
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    bool all = true;
    /* The C library uses 32 and 33; qemu keeps the last two. */
    for (int number = 1; number < NSIG - 2; number++)
        if (number != SIGKILL && number != SIGSTOP && number != 32 && number != 33)
            all &= sigismember(&blocked, number) == 1;
    pthread_attr_t attributes;
    size_t stack_bytes = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstacksize(&attributes, &stack_bytes);
        pthread_attr_destroy(&attributes);
    }
    PS_WRITE(vm_state.blocks_signals, all);
    PS_WRITE(vm_state.stack_bytes, stack_bytes);
}

static void switch_hooks(void)
{
    ps_probe_set wanted = ps_watcher_switching();
    PS_WRITE(vm_state.applied_ns, ps_monotonic_ns());
    ps_watcher_applied(wanted);
    PS_WRITE(vm_state.finished, true);
}

static void request(unsigned what)
{
    look_at_thread();
    if (what & PS_REQUEST_SAMPLE) PS_ADD(vm_state.samples, 1);
    if (what & PS_REQUEST_UPKEEP) PS_ADD(vm_state.upkeeps, 1);
    if (what & PS_REQUEST_SWITCH) {
        PS_ADD(vm_state.switches, 1);
        uint64_t after = PS_READ(vm_state.switch_after);
        if (after && PS_READ(vm_state.switches) >= after) switch_hooks();
    }
}

static bool needs_upkeep(void)
{
    return PS_READ(vm_state.has_upkeep);
}

static bool wake(void)
{
    if (!PS_READ(vm_state.waits)) return false;
    PS_ADD(vm_state.wakes, 1);
    if (!PS_READ(vm_state.never_comes)) PS_WRITE(vm_state.switch_after, PS_READ(vm_state.switches) + 1);
    return true;
}

static const ps_hooks hooks = {.needs_upkeep = needs_upkeep};
static const ps_vm vm = {.hooks = {&hooks}, .request = request, .wake = wake};

/* As ps_features_unhook() does. */
static void take_hooks_out(void)
{
    ps_watcher_switching();
    ps_watcher_applied(0);
}

static void begin_again(void)
{
    ps_watcher_stop();
    take_hooks_out();
    recorder_lower_all();
    recorder_forget();
    memset(&vm_state, 0, sizeof(vm_state));
    ps_table_clear(&ps_function_table);
}

static uint64_t looks(void)
{
    return PS_READ(probescope_info.watcher_ticks);
}

/* Waits until the watcher has completed two whole looks. */
static void await_looks(void)
{
    uint64_t before = looks();
    AWAIT(looks() >= before + 3);
}

static void await_a_second(void)
{
    uint64_t end = ps_monotonic_ns() + PS_FLUSH_NS + 2 * PS_POLL_NS;
    while (ps_monotonic_ns() < end) await_looks();
}

static int threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) return -1;
    while (readdir(tasks)) count++;
    closedir(tasks);
    return count;
}

static void asks_for_nothing_while_nobody_listens(void)
{
    CHECK_EQUAL(ps_watcher_start(&vm), 0);
    await_looks();
    CHECK_EQUAL(vm_state.switches + vm_state.samples + vm_state.upkeeps, 0);
    CHECK_EQUAL(ps_watcher_wanted(), 0);
    CHECK(probescope_info.flags & PS_INFO_WATCHER);
    begin_again();
    CHECK(!(probescope_info.flags & PS_INFO_WATCHER));
    CHECK_EQUAL(recorder_total(), 0);
}

static void asks_to_switch_until_it_is_done(void)
{
    uint64_t switched = probescope_info.switches;
    ps_watcher_start(&vm);
    RAISE(EXCEPTION__RAISE);
    AWAIT(PS_READ(vm_state.switches) >= 3);
    CHECK_EQUAL(ps_watcher_wanted(), PS_BIT(EXCEPTION__RAISE));
    CHECK_EQUAL(PS_READ(probescope_info.switches), switched);

    switch_hooks();
    await_looks();
    uint64_t asked = PS_READ(vm_state.switches);
    await_looks();
    CHECK_EQUAL(PS_READ(vm_state.switches), asked);
    CHECK_EQUAL(PS_READ(probescope_info.switches), switched + 1);

    RAISE(GC__START); /* a second tracer */
    AWAIT(PS_READ(vm_state.switches) > asked);
    CHECK_EQUAL(ps_watcher_wanted(), PS_BIT(EXCEPTION__RAISE) | PS_BIT(GC__START));
    switch_hooks();
    await_looks();
    asked = PS_READ(vm_state.switches);

    recorder_lower_all();
    AWAIT(PS_READ(vm_state.switches) > asked);
    CHECK_EQUAL(ps_watcher_wanted(), 0);
    begin_again();
}

/* Reads as a command does, from outside the program. */
__attribute__((noinline, no_sanitize("thread"))) static uint32_t shown_semaphore(enum ps_probe probe)
{
    return probescope_info.probes[probe].enabled;
}

__attribute__((noinline, no_sanitize("thread"))) static uint64_t shown_ns(const uint64_t *field)
{
    return *(const volatile uint64_t *)field;
}

/*
 * Neither a tracer that comes and goes between two looks, nor a second tracer of the same probe, is
 * a change.
 */
static void looks_at_whether_and_not_how_many_listen(void)
{
    ps_watcher_start(&vm);
    RAISE(GC__START);
    PS_WRITE(vm_state.switch_after, 1);
    AWAIT(PS_READ(vm_state.switches) == 1);
    recorder_semaphore(PS_PROBE_GC__START, 2);
    await_looks();
    CHECK_EQUAL(PS_READ(vm_state.switches), 1);
    CHECK_EQUAL(shown_semaphore(PS_PROBE_GC__START), 2);
    begin_again();
}

/* A second tracer of function__here is no change. It learns of the threads all the same. */
static void has_threads_look_up_their_stacks_four_times_a_second(void)
{
    enum { ROUNDS = 4 };
    ps_watcher_start(&vm);
    uint64_t before = PS_READ(ps_stack_looks);
    await_looks();
    CHECK_EQUAL(PS_READ(ps_stack_looks), before);
    uint64_t began = ps_monotonic_ns();
    RAISE(FUNCTION__HERE);
    AWAIT(PS_READ(ps_stack_looks) >= before + ROUNDS);
    CHECK(ps_monotonic_ns() - began >= (ROUNDS - 1) * (uint64_t)PS_HERE_ROUND_NS);
    LOWER(FUNCTION__HERE);
    await_looks();
    before = PS_READ(ps_stack_looks);
    for (int i = 0; i < 3; i++) await_looks();
    CHECK_EQUAL(PS_READ(ps_stack_looks), before);
    begin_again();
}

/* The interval of a second tracer begins with a flush, so it must not wait for the next round. */
static void has_threads_look_up_their_stacks_with_each_flush(void)
{
    PS_WRITE(vm_state.switch_after, 1);
    ps_watcher_start(&vm);
    RAISE(FUNCTION__HERE);
    RAISE(STATS__DONE);
    for (size_t flush = 1; flush <= 3; flush++) {
        /* The rounds as they were before the flush, however long this thread has no CPU. */
        uint64_t rounds, now = PS_READ(ps_stack_looks);
        do {
            rounds = now;
            now = PS_READ(ps_stack_looks);
        } while (recorder_count(PS_PROBE_STATS__DONE, NULL) < flush);
        uint64_t ticks = looks();
        AWAIT(PS_READ(ps_stack_looks) > rounds || looks() > ticks + 1);
        CHECK(PS_READ(ps_stack_looks) > rounds);
    }
    begin_again();
}

static void asks_again_when_the_coverage_changed(void)
{
    ps_watcher_start(&vm);
    ps_watcher_recheck();
    AWAIT(PS_READ(vm_state.switches) >= 1);
    take_hooks_out();
    await_looks();
    uint64_t asked = PS_READ(vm_state.switches);
    await_looks();
    CHECK_EQUAL(PS_READ(vm_state.switches), asked);
    begin_again();
}

static void asks_for_upkeep_only_while_somebody_listens(void)
{
    PS_WRITE(vm_state.has_upkeep, true);
    ps_watcher_start(&vm);
    await_looks();
    CHECK_EQUAL(PS_READ(vm_state.upkeeps), 0);
    PS_WRITE(vm_state.switch_after, 1);
    RAISE(OBJECT__ALLOC);
    AWAIT(PS_READ(vm_state.upkeeps) >= 2);
    PS_WRITE(vm_state.has_upkeep, false);
    await_looks();
    uint64_t asked = PS_READ(vm_state.upkeeps);
    await_looks();
    CHECK_EQUAL(PS_READ(vm_state.upkeeps), asked);
    begin_again();
}

static struct recorded await_first_flush(void)
{
    AWAIT(recorder_count(PS_PROBE_STATS__DONE, NULL) >= 1);
    struct recorded event = {0};
    for (size_t i = 0; event.probe != PS_PROBE_STATS__DONE && i < recorder_total(); i++)
        event = recorder_at(i);
    return event;
}

static void flushes_first_when_the_hooks_are_in(void)
{
    PS_WRITE(vm_state.switch_after, 3);
    ps_watcher_start(&vm);
    uint64_t raised = ps_monotonic_ns();
    RAISE(STATS__DONE);
    struct recorded first = await_first_flush();
    uint64_t applied = PS_READ(vm_state.applied_ns);
    CHECK(first.at_ns - raised >= PS_POLL_NS);
    CHECK(applied && first.at_ns >= applied);
    begin_again();
}

/* Whether the VM sleeps or runs on: what it does without hooks belongs to no interval. */
static void waits_for_the_hooks_however_long_the_vm_takes(void)
{
    ps_watcher_start(&vm);
    RAISE(STATS__DONE);
    await_a_second();
    CHECK(PS_READ(vm_state.switches) >= 2);
    CHECK_EQUAL(recorder_total(), 0);
    switch_hooks();
    CHECK(await_first_flush().at_ns >= PS_READ(vm_state.applied_ns));
    begin_again();
}

static void wakes_a_vm_that_waits_while_hooks_are_to_come_in(void)
{
    PS_WRITE(vm_state.waits, true);
    ps_watcher_start(&vm);
    uint64_t raised = ps_monotonic_ns();
    RAISE(EXCEPTION__STATS);
    RAISE(STATS__DONE);
    await_first_flush();
    /* The VM had time to switch without being woken. */
    CHECK(PS_READ(vm_state.applied_ns) - raised >= PS_HURRY_NS);
    uint64_t woken = PS_READ(vm_state.wakes);
    CHECK(woken >= 1);
    /* Neither upkeep nor a tracer that leaves is a reason to wake the VM. */
    PS_WRITE(vm_state.switch_after, 0);
    PS_WRITE(vm_state.has_upkeep, true);
    await_looks();
    LOWER(EXCEPTION__STATS);
    AWAIT(!(ps_watcher_wanted() & PS_BIT(EXCEPTION__STATS)));
    await_looks();
    CHECK_EQUAL(PS_READ(vm_state.wakes), woken);
    CHECK(PS_READ(vm_state.upkeeps) >= 1);
    begin_again();
}

/* For example in a call that does not check for interrupts. */
static void wakes_once_in_a_while_what_does_not_come(void)
{
    ps_watcher_start(&vm);
    RAISE(STATS__DONE);
    await_a_second(); /* it cannot be woken so far */
    CHECK_EQUAL(PS_READ(vm_state.wakes), 0);
    PS_WRITE(vm_state.never_comes, true);
    PS_WRITE(vm_state.waits, true);
    AWAIT(PS_READ(vm_state.wakes) >= 1);
    await_looks();
    await_looks();
    CHECK(PS_READ(vm_state.wakes) <= 2);
    AWAIT(PS_READ(vm_state.wakes) >= 3);
    begin_again();
}

/* A second tracer comes. A flush before its hooks are in would begin its interval. */
static void holds_flushes_back_while_hooks_for_one_more_tracer_come_in(void)
{
    PS_WRITE(vm_state.switch_after, 1);
    ps_watcher_start(&vm);
    RAISE(EXCEPTION__STATS);
    RAISE(STATS__DONE);
    AWAIT(recorder_count(PS_PROBE_STATS__DONE, NULL) >= 1);
    PS_WRITE(vm_state.switch_after, 0);
    RAISE(FUNCTION__STATS);
    AWAIT(ps_watcher_wanted() & PS_BIT(FUNCTION__STATS));
    uint64_t flushes = recorder_count(PS_PROBE_STATS__DONE, NULL);
    await_a_second();
    CHECK_EQUAL(recorder_count(PS_PROBE_STATS__DONE, NULL), flushes);
    switch_hooks();
    AWAIT(recorder_count(PS_PROBE_STATS__DONE, NULL) > flushes);
    /* A tracer that leaves holds the flush up for a moment. */
    LOWER(EXCEPTION__STATS);
    AWAIT(!(ps_watcher_wanted() & PS_BIT(EXCEPTION__STATS)));
    flushes = recorder_count(PS_PROBE_STATS__DONE, NULL);
    AWAIT(recorder_count(PS_PROBE_STATS__DONE, NULL) > flushes);
    begin_again();
}

/* Lowers a semaphore once, as a tracer that detaches does. Returns the time of that. */
static uint64_t let_go_of_one(void)
{
    recorder_semaphore(PS_PROBE_GC__START, 2);
    await_looks();
    recorder_semaphore(PS_PROBE_GC__START, 1);
    uint64_t now = ps_monotonic_ns();
    await_looks();
    return now;
}

static void holds_flushes_back_while_a_tracer_leaves(void)
{
    PS_WRITE(vm_state.switch_after, 1);
    ps_watcher_start(&vm);
    RAISE(EXCEPTION__STATS);
    recorder_semaphore(PS_PROBE_STATS__DONE, 2);
    uint64_t flushes = 0, longest;
    do { /* once more when this thread was too slow to lower semaphores in time */
        AWAIT(recorder_count(PS_PROBE_STATS__DONE, NULL) > flushes);
        uint64_t began = let_go_of_one(), last = began, now;
        flushes = recorder_count(PS_PROBE_STATS__DONE, NULL);
        longest = 0;
        do {
            now = let_go_of_one();
            if (now - last > longest) longest = now - last;
            last = now;
        } while (now - began < PS_FLUSH_NS + 2 * PS_POLL_NS);
    } while (longest > PS_FLUSH_NS / 2);
    CHECK_EQUAL(recorder_count(PS_PROBE_STATS__DONE, NULL), flushes);
    /* A tracer that has detached from stats__done has detached from everything. */
    recorder_semaphore(PS_PROBE_STATS__DONE, 1);
    AWAIT(recorder_count(PS_PROBE_STATS__DONE, NULL) > flushes);
    /* Tracers that leave one after the other do not hold the flush up for ever. */
    flushes = recorder_count(PS_PROBE_STATS__DONE, NULL);
    uint64_t end = ps_monotonic_ns() + UINT64_C(60) * PS_FLUSH_NS;
    while (recorder_count(PS_PROBE_STATS__DONE, NULL) < flushes + 2 && ps_monotonic_ns() < end)
        let_go_of_one();
    CHECK(recorder_count(PS_PROBE_STATS__DONE, NULL) >= flushes + 2);
    begin_again();
}

static void says_when_hooks_were_asked_for_and_when_they_were_in(void)
{
    uint64_t before = ps_monotonic_ns();
    ps_watcher_start(&vm);
    RAISE(GC__START);
    AWAIT(PS_READ(vm_state.switches) >= 2);
    uint64_t asked = shown_ns(&probescope_info.asked_ns);
    CHECK(asked >= before && asked <= ps_monotonic_ns());
    CHECK_EQUAL(shown_ns(&probescope_info.hooks_in_ns), 0);
    uint64_t switched = ps_monotonic_ns();
    switch_hooks();
    AWAIT(shown_ns(&probescope_info.hooks_in_ns));
    uint64_t in = shown_ns(&probescope_info.hooks_in_ns);
    CHECK(in >= switched);
    /*
     * The times belong to the change of listeners. A change of the coverage, or another request,
     * does not alter them.
     */
    ps_watcher_recheck();
    await_looks();
    switch_hooks();
    await_looks();
    CHECK_EQUAL(shown_ns(&probescope_info.asked_ns), asked);
    CHECK_EQUAL(shown_ns(&probescope_info.hooks_in_ns), in);
    RAISE(GC__DONE);
    AWAIT(shown_ns(&probescope_info.asked_ns) > asked);
    CHECK_EQUAL(shown_ns(&probescope_info.hooks_in_ns), 0);
    begin_again();
}

/*
 * The coverage changes while the VM switches. What the VM reports afterwards is about the earlier
 * coverage.
 */
static void asks_again_when_the_coverage_changes_in_the_middle(void)
{
    ps_watcher_start(&vm);
    RAISE(GC__START);
    AWAIT(PS_READ(vm_state.switches) >= 1);
    ps_probe_set wanted = ps_watcher_switching();
    ps_watcher_recheck();
    ps_watcher_applied(wanted);
    uint64_t asked = PS_READ(vm_state.switches);
    AWAIT(PS_READ(vm_state.switches) > asked + 1);
    begin_again();
}

/* A tracer attaches its probes one by one. */
static void flushes_first_when_no_further_probe_came_for_a_look(void)
{
    PS_WRITE(vm_state.switch_after, 1);
    ps_watcher_start(&vm);
    RAISE(STATS__DONE);
    AWAIT(ps_watcher_wanted() == PS_BIT(STATS__DONE));
    uint64_t raised = ps_monotonic_ns();
    RAISE(FUNCTION__STATS);
    bool before = recorder_total() > 0; /* on a slow machine the first probe counted as all of them */
    struct recorded first = await_first_flush();
    if (!before && first.at_ns > raised)
        CHECK(first.at_ns - raised >= PS_POLL_NS || !(ps_watcher_wanted() >> 1));
    begin_again();
}

static void flushes_each_second_while_somebody_listens(void)
{
    PS_WRITE(vm_state.switch_after, 1);
    ps_watcher_start(&vm);
    uint64_t raised = ps_monotonic_ns();
    RAISE(STATS__DONE);
    struct recorded first = await_first_flush();
    AWAIT(recorder_count(PS_PROBE_STATS__DONE, NULL) >= 2);
    struct recorded second = recorder_last(PS_PROBE_STATS__DONE, NULL);
    CHECK(second.at_ns - raised >= PS_FLUSH_NS);
    CHECK_EQUAL(second.arg[0], first.arg[0] + 1);
    LOWER(STATS__DONE);
    AWAIT(ps_watcher_wanted() == 0);
    uint64_t flushes = PS_READ(probescope_info.flushes);
    await_looks();
    CHECK_EQUAL(PS_READ(probescope_info.flushes), flushes);
    begin_again();
}

/*
 * Stops and starts with a tracer attached throughout. The tracer's interval begins when the hooks
 * are in again.
 */
static void begins_anew_after_a_restart(void)
{
    PS_WRITE(vm_state.switch_after, 1);
    ps_watcher_start(&vm);
    RAISE(STATS__DONE);
    await_first_flush();
    ps_watcher_stop();
    take_hooks_out();

    recorder_forget();
    PS_WRITE(vm_state.switches, 0);
    PS_WRITE(vm_state.applied_ns, 0);
    PS_WRITE(vm_state.switch_after, 3);
    ps_watcher_start(&vm);
    struct recorded first = await_first_flush();
    uint64_t applied = PS_READ(vm_state.applied_ns);
    CHECK(applied && first.at_ns >= applied);
    begin_again();
}

static void asks_for_samples_while_somebody_listens(void)
{
    ps_watcher_start(&vm);
    uint64_t began = ps_monotonic_ns();
    RAISE(SAMPLE);
    AWAIT(PS_READ(vm_state.samples) >= 20);
    uint64_t samples = PS_READ(vm_state.samples), elapsed = ps_monotonic_ns() - began;
    CHECK(samples <= elapsed / (PS_SAMPLE_NS - PS_SAMPLE_NS / 10) + 2); /* at most 110 a second */
    LOWER(SAMPLE);
    AWAIT(ps_watcher_wanted() == 0);
    await_looks();
    samples = PS_READ(vm_state.samples);
    await_looks();
    CHECK_EQUAL(PS_READ(vm_state.samples), samples);
    begin_again();
}

static void is_a_thread_that_nobody_notices(void)
{
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    ps_watcher_start(&vm);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    /* The application's mask stays as it was. */
    CHECK(sigismember(&before, SIGINT) == sigismember(&after, SIGINT));
    RAISE(GC__START);
    AWAIT(PS_READ(vm_state.switches) >= 1);
    CHECK(PS_READ(vm_state.blocks_signals));
#ifndef __SANITIZE_THREAD__ /* it makes stacks larger */
    CHECK(PS_READ(vm_state.stack_bytes) <= 256 * 1024);
#endif
    begin_again();
}

/* True when a thread has this name in /proc, where operators look. */
static bool is_named(const char *name)
{
    bool found = false;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks && (task = readdir(tasks)) != NULL;) {
        char path[300], line[32] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
        FILE *file = fopen(path, "re");
        if (file && fgets(line, sizeof(line), file)) found |= strncmp(line, name, strlen(name)) == 0;
        if (file) fclose(file);
    }
    if (tasks) closedir(tasks);
    return found;
}

static void has_a_name_and_ends_when_stopped(void)
{
    AWAIT(!is_named("probescope\n")); /* the thread of the test before may still be ending */
    int before = threads();
    ps_watcher_start(&vm);
    CHECK_EQUAL(ps_watcher_start(&vm), 0); /* it runs already */
    AWAIT(is_named("probescope\n"));
    CHECK_EQUAL(threads(), before + 1);
    ps_watcher_stop();
    AWAIT(threads() == before);
    ps_watcher_stop();
    for (int i = 0; i < 50; i++) {
        ps_watcher_start(&vm);
        ps_watcher_stop();
    }
    AWAIT(threads() == before);
    begin_again();
}

static ps_row *function(const char *name)
{
    const ps_site *site = ps_site_intern(name, strlen(name), "a.rb", 4, 1);
    ps_row *row = ps_table_row(&ps_function_table, (uintptr_t)site, 0, 0);
    PS_WRITE_RELEASE(row->site, site);
    return row;
}

static void flushes_a_last_time_when_stopped(void)
{
    PS_WRITE(vm_state.switch_after, 1);
    ps_watcher_start(&vm);
    RAISE(FUNCTION__STATS);
    RAISE(STATS__DONE);
    await_first_flush();
    PS_ADD(function("at_exit")->count[PS_FUNCTION_CALLS], 3);
    ps_watcher_stop();
    CHECK_EQUAL(recorder_sum(PS_PROBE_FUNCTION__STATS, "at_exit", 3), 3);
    CHECK_EQUAL(recorder_at(recorder_total() - 1).probe, PS_PROBE_STATS__DONE);
    begin_again();
}

/*
 * The hooks are in, and no flush came yet. What the hooks counted is fired, and nothing that was
 * counted before.
 */
static void tells_what_was_counted_when_stopped_before_the_first_flush(void)
{
    bool flushed = true;
    for (int tries = 0; flushed && tries < 20; tries++) {
        PS_WRITE(vm_state.switch_after, 1);
        ps_row *row = function("short_lived");
        PS_ADD(row->count[PS_FUNCTION_CALLS], 5);
        RAISE(FUNCTION__STATS);
        RAISE(STATS__DONE);
        ps_watcher_start(&vm);
        while (!PS_READ(vm_state.finished)) sched_yield();
        flushed = recorder_total() != 0; /* on a busy machine the flush may have come already */
        PS_ADD(row->count[PS_FUNCTION_CALLS], 3);
        ps_watcher_stop();
        if (!flushed) {
            CHECK_EQUAL(recorder_total(), 3);
            CHECK_EQUAL(recorder_at(0).probe, PS_PROBE_STATS__DONE);
            CHECK_EQUAL(recorder_sum(PS_PROBE_FUNCTION__STATS, "short_lived", 3), 3);
            CHECK_EQUAL(recorder_at(2).probe, PS_PROBE_STATS__DONE);
            CHECK(recorder_at(2).arg[1] > 0);
        }
        begin_again();
    }
    CHECK(!flushed);
}

/* Runs checks in a forked child, and fails when they fail. */
static void check_in_child(void (*checks)(void))
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int before = check_failures;
        checks();
        _exit(check_failures != before);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void watch_as_a_child(void)
{
    CHECK_EQUAL(probescope_info.pid, getpid());
    CHECK(probescope_info.flags & PS_INFO_WATCHER);
    CHECK_EQUAL(probescope_info.sequence % 2, 0);
    AWAIT(is_named("probescope\n"));
    await_looks();
    /* A tracer attaches to the child. */
    uint64_t asked = PS_READ(vm_state.switches);
    RAISE(GC__START);
    AWAIT(PS_READ(vm_state.switches) > asked);
    CHECK(PS_READ(vm_state.blocks_signals));
    ps_watcher_stop();
    AWAIT(!is_named("probescope\n"));
}

static void watch_as_a_child_and_fork(void)
{
    watch_as_a_child();
    ps_watcher_start(&vm);
    check_in_child(watch_as_a_child);
    ps_watcher_stop();
}

static void starts_again_in_a_forked_child(void)
{
    ps_watcher_start(&vm);
    await_looks();
    for (int i = 0; i < 5; i++) check_in_child(watch_as_a_child);
    check_in_child(watch_as_a_child_and_fork);
    CHECK_EQUAL(probescope_info.pid, getpid());
    await_looks(); /* the parent's watcher still runs */
    begin_again();
}

static uint64_t flushed_before_the_fork;

static void flush_as_a_child(void)
{
    /*
     * The child's rows count from its first call on, also if it ends while other hooks are
     * switched.
     */
    CHECK_EQUAL(recorder_count(PS_PROBE_STATS__DONE, NULL), flushed_before_the_fork + 1);
    CHECK_EQUAL(recorder_sum(PS_PROBE_FUNCTION__STATS, NULL, 3), 0);
    RAISE(GC__START);
    PS_ADD(function("f")->count[PS_FUNCTION_CALLS], 2);
    ps_watcher_stop();
    CHECK_EQUAL(recorder_sum(PS_PROBE_FUNCTION__STATS, NULL, 3), 2);
}

static void fires_what_the_parent_counted_in_the_parent_alone(void)
{
    PS_WRITE(vm_state.switch_after, 1);
    ps_watcher_start(&vm);
    RAISE(FUNCTION__STATS);
    RAISE(STATS__DONE);
    await_first_flush();
    PS_ADD(function("f")->count[PS_FUNCTION_CALLS], 1000);
    /* To the child this looks like the middle of a flush. */
    while (!ps_flush_try_lock()) {
    }
    flushed_before_the_fork = recorder_count(PS_PROBE_STATS__DONE, NULL);
    check_in_child(flush_as_a_child);
    ps_flush_unlock();
    ps_watcher_stop();
    CHECK_EQUAL(recorder_sum(PS_PROBE_FUNCTION__STATS, "f", 3), 1000);
    begin_again();
}

/*
 * Forks at any moment of a busy watcher. Its locks and its half-written info stay with the parent.
 */
static void child_of_a_busy_watcher(void)
{
    CHECK_EQUAL(probescope_info.sequence % 2, 0);
    await_looks();
    ps_watcher_stop();
}

static void survives_forks_while_it_is_busy(void)
{
    PS_WRITE(vm_state.switch_after, 1);
    ps_watcher_start(&vm);
    RAISE(FUNCTION__STATS);
    RAISE(SAMPLE__STATS);
    RAISE(SAMPLE__FRAME);
    RAISE(STATS__DONE);
    for (int i = 0; i < 2000; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%d", i);
        PS_ADD(function(name)->count[PS_FUNCTION_CALLS], 1);
    }
    for (int i = 0; i < 15; i++) check_in_child(child_of_a_busy_watcher);
    begin_again();
}

static void watch_after_a_fork_in_the_middle_of_an_uninstall(void)
{
    alarm(60);
    PS_WRITE(vm_state.switch_after, 1);
    RAISE(FUNCTION__STATS);
    RAISE(STATS__DONE);
    ps_watcher_start(&vm);
    await_first_flush();
    ps_watcher_stop();
}

/* Hooks are taken out when the watcher has ended. */
static void works_in_a_child_whose_parent_was_taking_hooks_out(void)
{
    ps_watcher_start(&vm);
    await_looks();
    ps_watcher_stop();
    CHECK(ps_flush_try_lock());
    check_in_child(watch_after_a_fork_in_the_middle_of_an_uninstall);
    ps_flush_unlock();
    begin_again();
}

static void publish_as_a_child(void)
{
    CHECK(ps_process_context_publish("child", 5));
}

/* The child does not inherit the page. */
static void publishes_a_context_in_a_child_whose_parent_was_no_longer_watched(void)
{
    ps_watcher_start(&vm);
    ps_watcher_stop();
    CHECK(ps_process_context_publish("parent", 6));
    check_in_child(publish_as_a_child);
    begin_again();
}

static uint64_t steps; /* of a VM that needs a step each ms */

static uint64_t step(uint64_t now)
{
    PS_ADD(steps, 1);
    return now + 1000000;
}

static void is_awake_when_the_vm_wants_it(void)
{
    static const ps_vm stepping = {.request = request, .step = step};
    ps_watcher_start(&stepping);
    await_looks();
    uint64_t looked = looks(), stepped = PS_READ(steps);
    AWAIT(PS_READ(steps) > stepped + 100);
    /* The time between two looks has 50 steps, or fewer when the machine was busy. */
    CHECK(looks() - looked < 50);
    begin_again();
}

static void stay_without_watcher(void)
{
    CHECK(!(probescope_info.flags & PS_INFO_WATCHER));
    CHECK(!is_named("probescope\n"));
    ps_watcher_start(&vm); /* like a worker that is told to install */
    CHECK_EQUAL(probescope_info.pid, getpid());
    CHECK(probescope_info.flags & PS_INFO_WATCHER);
    await_looks();
    ps_watcher_stop();
}

static void starts_nothing_in_the_child_of_a_process_without_it(void)
{
    check_in_child(stay_without_watcher);
}

int main(void)
{
    ps_info_start("test", "1", "0");
    ps_fork_init();
    RUN_FORKING(starts_nothing_in_the_child_of_a_process_without_it);
    RUN(asks_for_nothing_while_nobody_listens);
    RUN(asks_to_switch_until_it_is_done);
    RUN(looks_at_whether_and_not_how_many_listen);
    RUN(has_threads_look_up_their_stacks_four_times_a_second);
    RUN(has_threads_look_up_their_stacks_with_each_flush);
    RUN(asks_again_when_the_coverage_changed);
    RUN(asks_for_upkeep_only_while_somebody_listens);
    RUN(flushes_first_when_the_hooks_are_in);
    RUN(waits_for_the_hooks_however_long_the_vm_takes);
    RUN(wakes_a_vm_that_waits_while_hooks_are_to_come_in);
    RUN(wakes_once_in_a_while_what_does_not_come);
    RUN(holds_flushes_back_while_hooks_for_one_more_tracer_come_in);
    RUN(holds_flushes_back_while_a_tracer_leaves);
    RUN(says_when_hooks_were_asked_for_and_when_they_were_in);
    RUN(asks_again_when_the_coverage_changes_in_the_middle);
    RUN(flushes_first_when_no_further_probe_came_for_a_look);
    RUN(flushes_each_second_while_somebody_listens);
    RUN(begins_anew_after_a_restart);
    RUN(asks_for_samples_while_somebody_listens);
    RUN(is_awake_when_the_vm_wants_it);
    RUN(is_a_thread_that_nobody_notices);
    RUN(has_a_name_and_ends_when_stopped);
    RUN(flushes_a_last_time_when_stopped);
    RUN(tells_what_was_counted_when_stopped_before_the_first_flush);
    RUN_FORKING_BESIDE_THREADS(starts_again_in_a_forked_child);
    RUN_FORKING_BESIDE_THREADS(fires_what_the_parent_counted_in_the_parent_alone);
    RUN_FORKING_BESIDE_THREADS(survives_forks_while_it_is_busy);
    RUN_FORKING(works_in_a_child_whose_parent_was_taking_hooks_out);
    RUN_FORKING(publishes_a_context_in_a_child_whose_parent_was_no_longer_watched);
    RUN_FORKING(starts_nothing_in_the_child_of_a_process_without_it);
    return check_report("watcher");
}

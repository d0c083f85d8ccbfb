#include "table/flush.h"

#include <pthread.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fork.h"
#include "base/growth.h"
#include "table/feature.h"
#include "table/table.h"
#include "usdt/info.h"
#include "usdt/looking.h"
#include "usdt/probe.h"
#include "usdt/taken_out.h"

uint64_t ps_details_suppressed, ps_samples_missed, ps_samples_taken;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct moment {
    uint64_t ns, cpu_ns; /* CLOCK_MONOTONIC, and the process's CPU time */
};

static struct {
    uint64_t sequence;
    struct moment began;
    uint64_t dropped, suppressed, missed, taken, looking; /* their values when last fired */
    uint64_t rows;                                        /* number of rows fired since stats__done */
} flushed;

bool ps_flush_try_lock(void)
{
    return pthread_mutex_trylock(&lock) == 0;
}

void ps_flush_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* Does a tracer listen to the events that the feature fires in a flush? */
static bool has_events(const ps_feature *feature)
{
    return feature->fire_events && ps_semaphores[feature->event_probe];
}

bool ps_flush_wanted(void)
{
    for (const ps_feature *const *each = ps_features; *each; each++)
        if (((*each)->table && ps_semaphores[(*each)->row_probe]) || has_events(*each)) return true;
    return PS_ENABLED(STATS__DONE) || PS_ENABLED(STATUS);
}

static struct moment now_of_process(void)
{
    return (struct moment){.ns = ps_monotonic_ns(), .cpu_ns = ps_process_cpu_ns()};
}

void ps_flush_begin(void)
{
    pthread_mutex_lock(&lock);
    flushed.began = now_of_process();
    flushed.looking = ps_looking_ns();
    pthread_mutex_unlock(&lock);
}

uint64_t ps_row_take(ps_row *row, int counter)
{
    uint64_t cut = row->cut[counter];
    row->cut[counter] = 0;
    return cut;
}

uint64_t ps_row_take_ns(ps_row *row, int counter)
{
    return ps_ticks_to_ns(ps_row_take(row, counter));
}

const ps_site *ps_site_or_none(const ps_site *const *place)
{
    const ps_site *site = PS_READ_ACQUIRE(*place);
    return site ? site : &ps_site_none;
}

/* Events of rows that are shown under (overflow), because there was no memory for their names. */
static uint64_t nameless;

/*
 * Takes what a row grew by. A row may be taken several times before it is fired. maximum: the
 * counter that is not summed, or -1. A maximum that a hook raises at the same moment may be missed:
 * one value, once.
 */
static void cut_row(ps_row *row, int maximum)
{
    for (int i = 0; i < PS_ROW_COUNTERS; i++) {
        if (i == maximum) {
            uint64_t most = PS_READ(row->count[i]) ? PS_EXCHANGE(row->count[i], 0) : 0;
            if (most > row->cut[i]) row->cut[i] = most;
            continue;
        }
        uint64_t now = PS_READ_ACQUIRE(row->count[i]);
        row->cut[i] += now - row->sent[i];
        row->sent[i] = now;
    }
}

/* A row without a site has counted nothing yet: a hook that makes a row names it first. */
static void cut_rows(ps_table *table, int maximum)
{
    uint32_t rows = PS_READ_ACQUIRE(table->rows);
    for (uint32_t number = 0; number < rows; number++) {
        ps_row *row = ps_table_at(table, number);
        if (PS_READ_ACQUIRE(row->site)) cut_row(row, maximum);
    }
    cut_row(&table->overflow, maximum);
}

static void cut_table(ps_table *table, int maximum)
{
    cut_rows(table, maximum);
    if (table->routes) cut_rows(table->routes, maximum);
}

/*
 * The subject of a row in a table of routes. The row's site names the request. All else is in the
 * row that it was split from, if there is one.
 */
static ps_row_subject subject_of_route(const ps_table *table, const ps_row *row, const ps_site *request)
{
    const ps_row *whole = row->route.whole;
    if (!whole) return (ps_row_subject){&ps_site_overflow, &table->overflow, request};
    return (ps_row_subject){PS_READ_ACQUIRE(whole->site), whole, request};
}

/* Fires the rows that grew by at least `least`. table: the feature's own, or that of its routes. */
static uint64_t fire_rows(const ps_feature *feature, ps_table *table, uint64_t least)
{
    uint64_t fired = 0;
    uint32_t rows = PS_READ_ACQUIRE(table->rows);
    for (uint32_t number = 0; number < rows; number++) {
        ps_row *row = ps_table_at(table, number);
        const ps_site *site = PS_READ_ACQUIRE(row->site);
        /* Such a row was not cut. In a table of routes it still belongs to a request. */
        if (!site) continue;
        uint64_t grown = row->cut[feature->events];
        if (grown < least) continue;
        ps_row_subject of = table == feature->table ? (ps_row_subject){site, row, &ps_site_none}
                                                    : subject_of_route(table, row, site);
        if (of.site == &ps_site_overflow) nameless += grown;
        if (of.site) fired += feature->fire_row(row, &of);
    }
    return fired;
}

/* The maps of every tracer hold at least this many rows. */
enum { ROWS_IN_ANY_ORDER = 1024 };

/* The mean growth of the rows that grew. 0 when there are few of them. */
static uint64_t mean_growth(const ps_table *table, int events)
{
    uint64_t sum = 0, number = 0;
    uint32_t rows = PS_READ_ACQUIRE(table->rows);
    for (uint32_t i = 0; i < rows; i++) {
        const ps_row *row = ps_table_at(table, i);
        if (!PS_READ_ACQUIRE(row->site)) continue;
        uint64_t grown = row->cut[events];
        sum += grown;
        number += grown > 0;
    }
    return number > ROWS_IN_ANY_ORDER ? sum / number : 0;
}

static uint64_t fire_table(const ps_feature *feature, ps_table *table)
{
    const ps_row_subject overflow = {&ps_site_overflow, &table->overflow, &ps_site_none};
    uint64_t fired = 0, mean = mean_growth(table, feature->events);
    /* Large rows first: a tracer whose maps are too small for all rows gets the large ones. */
    if (mean > 1) fired += fire_rows(feature, table, mean);
    fired += fire_rows(feature, table, 0);
    if (PS_READ_ACQUIRE(table->overflow.site)) fired += feature->fire_row(&table->overflow, &overflow);
    return fired;
}

/*
 * False for a probe whose hooks were taken out: what is counted after its last flush is not fired.
 */
static bool is_told(const ps_feature *feature)
{
    return feature->table && ps_semaphores[feature->row_probe] &&
           !(ps_overhead_out >> feature->row_probe & 1);
}

static uint64_t fire_all_rows(void)
{
    uint64_t fired = 0;
    for (const ps_feature *const *each = ps_features; *each; each++) {
        if (!is_told(*each)) continue;
        ps_table *table = (*each)->table;
        fired += fire_table(*each, table);
        if (table->routes) fired += fire_table(*each, table->routes);
    }
    return fired;
}

static uint64_t fire_all_events(void)
{
    uint64_t fired = 0;
    for (const ps_feature *const *each = ps_features; *each; each++)
        if (has_events(*each)) fired += (*each)->fire_events();
    return fired;
}

static uint64_t all_overflowed(void)
{
    uint64_t all = nameless;
    for (const ps_feature *const *each = ps_features; *each; each++) {
        const ps_table *table = (*each)->table;
        if ((*each)->lost) all += PS_READ(*(*each)->lost);
        if (!table) continue;
        all += PS_READ(table->overflowed);
        if (table->routes) all += PS_READ(table->routes->overflowed);
    }
    return all;
}

static void fire_states(void)
{
    for (int i = 0; i < PS_PROBE_COUNT; i++) {
        const struct ps_info_probe *probe = &probescope_info.probes[i];
        if (ps_semaphores[i] && PS_READ(probe->state) >= PS_STATE_DEGRADED)
            ps_fire_status(ps_probe_names[i], probe->state, probe->reason);
    }
}

static void cut_all(void)
{
    for (const ps_feature *const *each = ps_features; *each; each++) {
        bool told = is_told(*each);
        if (told) cut_table((*each)->table, (*each)->maximum);
        if ((*each)->cut_rest && (told || has_events(*each))) (*each)->cut_rest();
    }
}

/*
 * Runs `take`, and returns the moment at which it ran. An interval begins or ends at that moment,
 * so all rows must be taken at it. On a busy machine this thread may lose its CPU in between, most
 * often at the end of a system call. Reading the CPU clock is one, so it is not done between the
 * rows and the moment. When the CPU was lost nevertheless, `take` runs again.
 */
static struct moment at_one_moment(void (*take)(void))
{
    enum { LOST_NS = 1000000, TRIES = 10 };
    struct moment moment;
    for (int i = 0; i < TRIES; i++) {
        uint64_t began_cpu = ps_clock_read(CLOCK_THREAD_CPUTIME_ID), began = ps_monotonic_ns();
        take();
        moment.ns = ps_monotonic_ns();
        moment.cpu_ns = ps_process_cpu_ns();
        uint64_t used = ps_clock_read(CLOCK_THREAD_CPUTIME_ID) - began_cpu;
        if (moment.ns - began < used + LOST_NS) break;
    }
    return moment;
}

/*
 * All rows are cut before a probe is fired. Each firing may cost this thread its CPU for long. Rows
 * that were cut as they are fired would belong to different moments, and none to that of
 * stats__done.
 */
bool ps_flush_covered(bool (*covered)(void))
{
    pthread_mutex_lock(&lock);
    struct moment end = at_one_moment(cut_all);
    uint64_t fired = flushed.rows + fire_all_rows();
    fired += fire_all_events();
    if (PS_ENABLED(STATUS)) fire_states();
    flushed.rows = fired;
    if (covered && !covered()) {
        pthread_mutex_unlock(&lock);
        return false;
    }

    struct moment began = flushed.began;
    flushed.began = end;
    uint64_t dropped = ps_growth(all_overflowed(), &flushed.dropped);
    struct ps_more_stats__done more = {
        .samples_missed = ps_growth(PS_READ(ps_samples_missed), &flushed.missed),
        .details_suppressed = ps_growth(PS_READ(ps_details_suppressed), &flushed.suppressed),
        .samples_taken = ps_growth(PS_READ(ps_samples_taken), &flushed.taken),
        .looking = ps_growth(ps_looking_ns(), &flushed.looking),
        .cut = end.ns,
    };
    ps_info_interval(end.ns, end.cpu_ns - began.cpu_ns, more.looking);
    PS_WRITE(probescope_info.rows_dropped, probescope_info.rows_dropped + dropped);
    flushed.sequence++;
    if (PS_ENABLED(STATS__DONE))
        ps_fire_stats__done(flushed.sequence, end.ns - began.ns, end.cpu_ns - began.cpu_ns, fired, dropped,
                            &more);
    flushed.rows = 0;
    /* Last: the command takes this number as a sign that the whole flush was fired. */
    PS_WRITE(probescope_info.flushes, flushed.sequence);
    pthread_mutex_unlock(&lock);
    return true;
}

void ps_flush(void)
{
    ps_flush_covered(NULL);
}

/* maximum: the counter that is not summed, or -1. */
static void forget_unsent(ps_table *table, int maximum)
{
    uint32_t rows = PS_READ_ACQUIRE(table->rows);
    for (uint32_t number = 0; number <= rows; number++) {
        ps_row *row = number < rows ? ps_table_at(table, number) : &table->overflow;
        if (maximum >= 0) PS_WRITE(row->count[maximum], 0);
        for (int i = 0; i < PS_ROW_COUNTERS; i++) row->sent[i] = PS_READ(row->count[i]);
        memset(row->cut, 0, sizeof(row->cut));
    }
    if (table->routes) forget_unsent(table->routes, maximum);
}

/* Drops what was counted so far. It is never fired. */
static void forget_all_unsent(void)
{
    for (const ps_feature *const *each = ps_features; *each; each++) {
        if ((*each)->cut_rest) (*each)->cut_rest();
        if ((*each)->table) forget_unsent((*each)->table, (*each)->maximum);
        if ((*each)->drop_cut) (*each)->drop_cut();
    }
    flushed.dropped = all_overflowed();
    flushed.suppressed = ps_details_suppressed;
    flushed.missed = ps_samples_missed;
    flushed.taken = ps_samples_taken;
    flushed.looking = ps_looking_ns();
}

void ps_flush_mark(void)
{
    flushed.began = at_one_moment(forget_all_unsent);
}

void ps_flush_after_fork(void)
{
    /* The parent's watcher may have held the lock. It does not exist in the child. */
    pthread_mutex_init(&lock, NULL);
    /* The child's interval begins now: its CPU clock began at 0. The parent's goes on in the parent. */
    ps_flush_mark();
    flushed.rows = 0;
}
PS_FORK_STEP(PS_FORK_TABLES, .in_child = ps_flush_after_fork)

void ps_flush_since_mark(void)
{
    /* A flush without rows and without duration. It begins the listener's interval. */
    const struct ps_more_stats__done none = {.cut = flushed.began.ns};
    PS_WRITE(flushed.sequence, flushed.sequence + 1);
    if (PS_ENABLED(STATS__DONE)) ps_fire_stats__done(flushed.sequence, 0, 0, 0, 0, &none);
    ps_flush();
}

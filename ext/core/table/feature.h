/*
 * A feature: what is counted and fired for one kind of event, in every language. Each file of
 * features/ that serves probes describes its feature once, in a constant. The flush, the rows of
 * each route, the limit of the overhead and the switching of hooks read these descriptions, so none
 * of them names a feature.
 *
 * A hook does not read them: it names its feature's table and functions.
 */
#ifndef PS_FEATURE_H
#define PS_FEATURE_H

#include <stdbool.h>
#include <stdint.h>

#include "table/table.h"
#include "usdt/probe_groups.h"

/* What a row that is fired is about. */
typedef struct ps_row_subject {
    const ps_site *site;
    const ps_row *places;   /* the row that has the further places */
    const ps_site *request; /* the name is method and route, the line a number for them */
} ps_row_subject;

/* What a feature does not have is 0 or NULL. */
typedef struct ps_feature {
    ps_probe_set probes;       /* that it serves: a bit for each */
    ps_probe_set with_request; /* those of them whose events tell the current request */

    /*
     * The kinds of its hooks (looking.h). PROBESCOPE_MAX_OVERHEAD takes them out together with those
     * of the features that name this one in `taken_out_with`. 0: it never takes them out.
     */
    uint32_t kinds;
    const struct ps_feature *taken_out_with;

    /* Its rows, the probe that the flush fires for a row, and its other half in fire_row(). */
    ps_table *table;
    enum ps_probe row_probe;
    int events;  /* the counter that tells how large a row is, and how much it grew */
    int maximum; /* the counter that is not summed; -1: all are */
    /*
     * Fires what the row grew by (ps_row_take()). Returns false, and fires nothing, when it did not
     * grow. Called with the lock of the flush.
     */
    bool (*fire_row)(ps_row *row, const ps_row_subject *of);
    /*
     * Adds to `cut` of rows what the hooks have counted in no row yet, or takes what fire_events() is
     * to fire. Called with the lock of the flush, right after the rows are cut, perhaps several times
     * before they are fired. May be NULL.
     */
    void (*cut_rest)(void);
    /* Drops what cut_rest() has taken besides rows and is not fired yet. May be NULL. */
    void (*drop_cut)(void);
    const uint64_t *lost; /* the number of events that no row counts, besides the table's own */

    /* What the flush fires besides rows, and its probe. Returns the number of events. */
    enum ps_probe event_probe;
    uint64_t (*fire_events)(void);

    /*
     * Called with all probes that have listeners, with the VM lock, before its hooks are switched.
     */
    void (*listen)(ps_probe_set wanted);
    /*
     * Forgets what it keeps of rows and of their names: both are freed next. Its hooks are out.
     * Called with the VM lock and the lock of the flush.
     */
    void (*forget)(void);
} ps_feature;

/* All features, in the order in which the flush fires their rows. NULL ends the list. */
extern const ps_feature *const ps_features[];

#endif

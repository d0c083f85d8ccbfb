/*
 * Functions: a row for each, by its code object, and a shadow stack for each thread, whose calls
 * are identified by their frames.
 */
#include "hooks.h"

#include "agent/overhead.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/thread_record.h"
#include "calls/suspended_calls.h"
#include "features/coverage.h"
#include "features/functions.h"
#include "features/slow_calls.h"
#include "table/flush.h"
#include "usdt/info.h"
#include "usdt/probe.h"

/* What is known about a code object, kept in it. */
struct function {
    uint32_t epoch; /* current_epoch() when the rest was found out */
    bool covered;
    const ps_site *site;
    ps_row *row; /* NULL: not called since */
};

static struct {
    Py_ssize_t index; /* of our data in code objects */
    uint32_t epoch;   /* incremented when rows or coverage change */
    bool on, everything;
    bool restart; /* the coverage changed */
} functions = {.epoch = 1};

static void free_function(void *function)
{
    ps_memory_give(function, sizeof(struct function));
}

void ps_functions_init(void)
{
    functions.index = PyUnstable_Eval_RequestCodeExtraIndex(free_function);
}

/* Changes when the rows, the coverage or the sites change. */
static uint32_t current_epoch(void)
{
    return functions.epoch + ps_sites_generation;
}

/* Called for the function that runs, so its globals are at hand. */
static void look_up(struct function *function, PyCodeObject *code)
{
    PyObject *globals = PyEval_GetGlobals();
    bool ours = ps_ours_begin();
    function->site = ps_code_site(code, globals);
    function->epoch = current_epoch();
    /* Without memory the site has neither the name nor the path. */
    function->covered =
        function->site == &ps_site_overflow
            ? ps_code_is_covered(code, globals, functions.everything)
            : ps_coverage_function(function->site->path, function->site->name, functions.everything);
    function->row = NULL;
    ps_ours_end(ours);
}

static ps_row *make_row(struct function *function)
{
    ps_row *row = ps_table_row_at(&ps_function_table, function->site);
    /* The overflow row is looked up each time: ps_table_row() counts what goes there. */
    if (!ps_row_is_overflow(&ps_function_table, row)) function->row = row;
    return row;
}

/* NULL without memory. */
static struct function *find_function(PyCodeObject *code)
{
    void *kept = NULL;
    if (PyUnstable_Code_GetExtra((PyObject *)code, functions.index, &kept) < 0) PyErr_Clear();
    struct function *function = kept;
    if (PS_LIKELY(function && function->epoch == current_epoch())) return function;
    if (!function) {
        function = ps_memory_take(sizeof(*function));
        if (!function) return NULL;
        if (PyUnstable_Code_SetExtra((PyObject *)code, functions.index, function) < 0) {
            PyErr_Clear();
            free_function(function);
            return NULL;
        }
    }
    look_up(function, code);
    return function;
}

/* Was it taken out because its hooks took too much time (overhead.h)? */
static bool is_out(const struct function *function)
{
    return PS_UNLIKELY(PS_READ(ps_overhead_functions)) && function->row &&
           PS_READ(function->row->function.excluded);
}

/* True also if there is no memory to find out. */
static bool is_covered(PyCodeObject *code)
{
    const struct function *function = find_function(code);
    return !function || (function->covered && !is_out(function));
}

const ps_site *ps_functions_site(PyCodeObject *code)
{
    const struct function *function = find_function(code);
    return function && function->covered ? function->site : NULL;
}

bool ps_functions_on(void)
{
    return functions.on;
}

/* Without a GIL an event may still arrive after the hooks were taken out. */
static bool is_late(void)
{
    return !PS_HAVE_GIL && !functions.on;
}

bool ps_functions_enter(PyCodeObject *code, ps_address frame, bool resumed)
{
    struct function *function = find_function(code);
    if (PS_UNLIKELY(!function)) {
        /* Perhaps one that is not covered. */
        PS_ADD(ps_function_table.overflowed, 1);
        return true;
    }
    if (!function->covered) return false;
    ps_stack *stack = ps_current_stack();
    if (PS_UNLIKELY(!stack) || is_late()) return true;
    ps_row *row = PS_LIKELY(function->row != NULL) ? function->row : make_row(function);
    if (is_out(function)) return false;
    ps_address owner = ps_current_owner();
    ps_frame *entered;
    if (resumed) {
        entered = ps_stack_resume_frame(stack, row, frame, owner);
    } else {
        if (PS_UNLIKELY(code->co_flags & PS_RESUMABLE)) ps_stack_bury(frame);
        entered = ps_stack_enter_frame(stack, row, frame, owner);
    }
    ps_functions_entered(row, stack, entered, NULL, resumed);
    return true;
}

bool ps_functions_leave(PyCodeObject *code, ps_address frame, int outcome, uint64_t now)
{
    /*
     * Exits may come for all functions. To find out whether a function is covered takes less time
     * than to find that its call is not open.
     */
    bool any = !PS_HAVE_MONITORING || outcome == PS_OUTCOME_RAISED || PS_READ(ps_overhead_functions);
    if (any && !is_covered(code)) return false;
    ps_stack *stack = ps_current_stack();
    if (PS_UNLIKELY(!stack) || is_late()) return true;
    ps_call call;
    ps_row *row = ps_stack_leave_frame(stack, frame, now, outcome, &call);
    if (PS_UNLIKELY(!row)) {
        /*
         * The entry was not seen: the function is not covered, or was entered before anybody
         * listened.
         */
        return is_covered(code);
    }
    ps_functions_left(row, stack, &call, outcome);
    return true;
}

/* ---- On and off ---- */

void ps_functions_restart(void)
{
    functions.restart = true;
    /*
     * While nobody listens the worker stays away: a thread state that is made while the interpreter
     * starts or ends gets in its way.
     */
    if (ps_watcher_wanted() & (ps_functions_feature.probes | PS_BIT(LINE))) ps_watcher_recheck();
}

/* The rows that code objects keep are gone. */
static void forget(void)
{
    functions.epoch++;
}

/* Lines have the coverage of functions. Code that a callback disabled may be covered now. */
static void cover(ps_probe_set wanted)
{
    bool everything = (wanted & PS_BIT(FUNCTIONS__ALL)) != 0;
    if (!(wanted & (ps_functions_feature.probes | PS_BIT(LINE)))) return;
    if (!functions.restart && everything == functions.everything) return;
    functions.everything = everything;
    functions.restart = false;
    functions.epoch++;
#if PS_HAVE_MONITORING
    ps_monitoring_restart();
#endif
}

static bool hook(ps_probe_set wanted)
{
    bool on = (wanted & ps_functions_feature.probes) != 0;
    cover(wanted);
    if (on == functions.on) return true;
    functions.on = ps_functions_hook(on);
    ps_greenlets_switch(functions.on);
    return true;
}

const ps_hooks ps_functions_hooks = {
    .feature = &ps_functions_feature,
    .hook = hook,
    .forget = forget,
};

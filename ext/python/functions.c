/*
 * Functions: a row for each, by its code object; a shadow stack for each thread, whose calls are known by their frames.
 */
#include "hooks.h"

#include "atomic.h"
#include "clock.h"
#include "coverage.h"
#include "info.h"
#include "memory.h"
#include "probe.h"
#include "slow.h"
#include "stats.h"
#include "suspended.h"

/* What is known about a code object, kept in it. */
struct function {
    uint32_t epoch; /* of `functions`, when the rest was found out */
    bool covered;
    ps_row *row;
};

static struct {
    Py_ssize_t index; /* of what we keep in code objects */
    uint32_t epoch;   /* raised when rows or coverage change */
    bool on, everything;
    bool restart;  /* the coverage changed */
    bool clearing; /* the hooks are out, but the flush was reading the rows: clear them at the next try */
} functions = {.epoch = 1};

static void free_function(void *function)
{
    ps_memory_give(function, sizeof(struct function));
}

void ps_functions_init(void)
{
    functions.index = PyUnstable_Eval_RequestCodeExtraIndex(free_function);
}

/* Of the function that runs: so its globals are those at hand. */
static void look_up(struct function *function, PyCodeObject *code)
{
    const ps_site *site = ps_code_site(code, PyEval_GetGlobals());
    function->epoch = functions.epoch;
    function->covered = ps_coverage_function(site->path, site->name, functions.everything);
    if (!function->covered) return;
    function->row = ps_table_row(&ps_functions, (uintptr_t)site, 0, 0);
    if (!function->row->site) PS_WRITE_RELEASE(function->row->site, site);
}

/* NULL when there is no memory for it. */
static struct function *find_function(PyCodeObject *code)
{
    void *kept = NULL;
    if (PyUnstable_Code_GetExtra((PyObject *)code, functions.index, &kept) < 0) PyErr_Clear();
    struct function *function = kept;
    if (PS_LIKELY(function && function->epoch == functions.epoch)) return function;
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

static void fire_entry(const ps_row *row, const ps_stack *stack, bool resumed)
{
    uint32_t depth = ps_stack_depth(stack);
    struct ps_more_function__entry more = {.path = row->site->path, .context_id = stack->id};
    ps_fire_function__entry(row->site->name, row->site->file, row->site->line, depth ? depth - 1 : 0, resumed, &more);
}

static void fire_return(const ps_row *row, const ps_stack *stack, const ps_call *call, int outcome)
{
    struct ps_more_function__return more = {.path = row->site->path,
                                            .context_id = stack->id,
                                            .depth = call->depth,
                                            .kind = call->resumed,
                                            .outcome = (uint64_t)outcome};
    ps_fire_function__return(row->site->name, row->site->file, row->site->line, ps_ticks_to_ns(call->elapsed),
                             ps_ticks_to_ns(call->self), &more);
}

static void fire_slow(const ps_row *row, ps_stack *stack, const ps_call *call, int outcome)
{
    char traceparent[PS_TRACEPARENT_BUFFER];
    ps_trace_context(traceparent, PS_SLOW_PROBES);
    ps_slow_call slow = {.site = ps_row_is_overflow(&ps_functions, row) ? &ps_site_overflow : row->site,
                         .outcome = outcome,
                         .thread_id = ps_thread_id(),
                         .traceparent = traceparent};
    ps_slow_fire(stack, call, &slow);
}

bool ps_functions_enter(PyCodeObject *code, uintptr_t frame, bool resumed)
{
    struct function *function = find_function(code);
    if (PS_UNLIKELY(!function)) return true;
    if (!function->covered) return false;
    ps_stack *stack = ps_contexts_current();
    if (PS_UNLIKELY(!stack)) return true;
    ps_row *row = function->row;
    ps_frame *entered = resumed ? ps_stack_resume_frame(stack, row, frame) : ps_stack_enter_frame(stack, row, frame);
    if (PS_ENABLED(FUNCTION__ENTRY) && row->site) fire_entry(row, stack, resumed);
    if (PS_LIKELY(entered)) entered->start = ps_ticks();
    return true;
}

bool ps_functions_leave(PyCodeObject *code, uintptr_t frame, int outcome)
{
    uint64_t now = ps_ticks();
    ps_stack *stack = ps_contexts_current();
    if (PS_UNLIKELY(!stack)) return true;
    ps_call call;
    ps_row *row = ps_stack_leave_frame(stack, frame, now, outcome, &call);
    if (PS_UNLIKELY(!row)) {
        /* Not seen entered: because it is not covered, or it was before anybody listened. */
        struct function *function = find_function(code);
        return !function || function->covered;
    }
    if (PS_ENABLED(FUNCTION__RETURN) && row->site) fire_return(row, stack, &call, outcome);
    if (outcome != PS_OUTCOME_SUSPENDED && ps_slow_reached(&call)) fire_slow(row, stack, &call, outcome);
    return true;
}

/* ---- On and off ---- */

void ps_functions_restart(void)
{
    functions.restart = true;
    ps_watcher_recheck();
}

/* Nobody asks for calls any more: what is open now will never be seen to return. */
static bool forget_calls(void)
{
    if (!ps_stats_try_lock()) return false;
    ps_stack_epoch++;
    functions.epoch++;
    ps_suspended_clear();
    ps_table_clear(&ps_functions);
    ps_stats_unlock();
    return true;
}

bool ps_functions_switch(uint32_t wanted)
{
    ps_slow_listen(wanted);
    bool on = (wanted & PS_FUNCTION_PROBES) != 0, everything = (wanted & PS_BIT(FUNCTIONS__ALL)) != 0;
    if (functions.clearing) {
        if (!forget_calls()) return false;
        functions.clearing = false;
    }
    bool covers_other = functions.restart || everything != functions.everything;
    if (on == functions.on && !(on && covers_other)) return true;
    if (functions.on && !on) {
        ps_functions_hook(false, false);
        functions.on = false;
        functions.clearing = !forget_calls();
        return !functions.clearing;
    }
    functions.everything = everything;
    functions.restart = false;
    functions.epoch++;
    functions.on = ps_functions_hook(true, covers_other);
    return true;
}

/* Generated from providers/probescope.yml by `rake generate`. Do not edit. */
#include "probes.gen.h"

#include "probe.h"

const char *const ps_probe_names[PS_PROBE_COUNT] = {
    [PS_PROBE_FUNCTION__ENTRY] = "function__entry",
    [PS_PROBE_FUNCTION__RETURN] = "function__return",
    [PS_PROBE_FUNCTION__SLOW1MS] = "function__slow1ms",
    [PS_PROBE_FUNCTION__SLOW10MS] = "function__slow10ms",
    [PS_PROBE_FUNCTION__SLOW100MS] = "function__slow100ms",
    [PS_PROBE_FUNCTION__STATS] = "function__stats",
    [PS_PROBE_FUNCTIONS__ALL] = "functions__all",
    [PS_PROBE_EXCEPTION__RAISE] = "exception__raise",
    [PS_PROBE_EXCEPTION__DETAIL] = "exception__detail",
    [PS_PROBE_EXCEPTION__RESCUE] = "exception__rescue",
    [PS_PROBE_EXCEPTION__STATS] = "exception__stats",
    [PS_PROBE_BACKTRACE__DONE] = "backtrace__done",
    [PS_PROBE_OBJECT__ALLOC] = "object__alloc",
    [PS_PROBE_OBJECT__STATS] = "object__stats",
    [PS_PROBE_GC__START] = "gc__start",
    [PS_PROBE_GC__DONE] = "gc__done",
    [PS_PROBE_SAMPLE] = "sample",
    [PS_PROBE_SAMPLE__STATS] = "sample__stats",
    [PS_PROBE_SAMPLE__FRAME] = "sample__frame",
    [PS_PROBE_LINE] = "line",
    [PS_PROBE_GVL__WAIT] = "gvl__wait",
    [PS_PROBE_REQUEST__START] = "request__start",
    [PS_PROBE_REQUEST__DONE] = "request__done",
    [PS_PROBE_STATS__BY_REQUEST] = "stats__by_request",
    [PS_PROBE_STATS__DONE] = "stats__done",
    [PS_PROBE_STATUS] = "status",
};

PS_SITE_FUNCTION void ps_fire_function__entry(const char *function, const char *file, uint64_t line, uint64_t depth, uint64_t kind, const struct ps_more_function__entry *more)
{
    PS_SITE6("function__entry", PS_PROBE_FUNCTION__ENTRY, PS_ARG(function), PS_ARG(file), PS_ARG(line), PS_ARG(depth), PS_ARG(kind), PS_ARG(more));
}

PS_SITE_FUNCTION void ps_fire_function__return(const char *function, const char *file, uint64_t line, uint64_t elapsed, uint64_t self, const struct ps_more_function__return *more)
{
    PS_SITE6("function__return", PS_PROBE_FUNCTION__RETURN, PS_ARG(function), PS_ARG(file), PS_ARG(line), PS_ARG(elapsed), PS_ARG(self), PS_ARG(more));
}

PS_SITE_FUNCTION void ps_fire_function__slow1ms(const char *function, const char *file, uint64_t line, uint64_t elapsed, uint64_t self, const struct ps_more_function__slow1ms *more)
{
    PS_SITE6("function__slow1ms", PS_PROBE_FUNCTION__SLOW1MS, PS_ARG(function), PS_ARG(file), PS_ARG(line), PS_ARG(elapsed), PS_ARG(self), PS_ARG(more));
}

PS_SITE_FUNCTION void ps_fire_function__slow10ms(const char *function, const char *file, uint64_t line, uint64_t elapsed, uint64_t self, const struct ps_more_function__slow10ms *more)
{
    PS_SITE6("function__slow10ms", PS_PROBE_FUNCTION__SLOW10MS, PS_ARG(function), PS_ARG(file), PS_ARG(line), PS_ARG(elapsed), PS_ARG(self), PS_ARG(more));
}

PS_SITE_FUNCTION void ps_fire_function__slow100ms(const char *function, const char *file, uint64_t line, uint64_t elapsed, uint64_t self, const struct ps_more_function__slow100ms *more)
{
    PS_SITE6("function__slow100ms", PS_PROBE_FUNCTION__SLOW100MS, PS_ARG(function), PS_ARG(file), PS_ARG(line), PS_ARG(elapsed), PS_ARG(self), PS_ARG(more));
}

PS_SITE_FUNCTION void ps_fire_function__stats(const char *function, const char *file, uint64_t line, uint64_t calls, uint64_t self, const struct ps_more_function__stats *more)
{
    PS_SITE6("function__stats", PS_PROBE_FUNCTION__STATS, PS_ARG(function), PS_ARG(file), PS_ARG(line), PS_ARG(calls), PS_ARG(self), PS_ARG(more));
}

PS_SITE_FUNCTION void ps_fire_functions__all(void)
{
    PS_SITE0("functions__all", PS_PROBE_FUNCTIONS__ALL);
}

PS_SITE_FUNCTION void ps_fire_exception__raise(const char *type, const char *file, uint64_t line, uint64_t depth, uint64_t backtrace_cost, const struct ps_more_exception__raise *more)
{
    PS_SITE6("exception__raise", PS_PROBE_EXCEPTION__RAISE, PS_ARG(type), PS_ARG(file), PS_ARG(line), PS_ARG(depth), PS_ARG(backtrace_cost), PS_ARG(more));
}

PS_SITE_FUNCTION void ps_fire_exception__detail(const char *type, const char *file, uint64_t line, uint64_t depth, uint64_t backtrace_cost, const struct ps_more_exception__detail *more)
{
    PS_SITE6("exception__detail", PS_PROBE_EXCEPTION__DETAIL, PS_ARG(type), PS_ARG(file), PS_ARG(line), PS_ARG(depth), PS_ARG(backtrace_cost), PS_ARG(more));
}

PS_SITE_FUNCTION void ps_fire_exception__rescue(const char *type, const char *file, uint64_t line, uint64_t elapsed, uint64_t unwound, const struct ps_more_exception__rescue *more)
{
    PS_SITE6("exception__rescue", PS_PROBE_EXCEPTION__RESCUE, PS_ARG(type), PS_ARG(file), PS_ARG(line), PS_ARG(elapsed), PS_ARG(unwound), PS_ARG(more));
}

PS_SITE_FUNCTION void ps_fire_exception__stats(const char *type, const char *file, uint64_t line, uint64_t raised, uint64_t backtrace_cost, const struct ps_more_exception__stats *more)
{
    PS_SITE6("exception__stats", PS_PROBE_EXCEPTION__STATS, PS_ARG(type), PS_ARG(file), PS_ARG(line), PS_ARG(raised), PS_ARG(backtrace_cost), PS_ARG(more));
}

PS_SITE_FUNCTION void ps_fire_backtrace__done(const char *kind, const char *file, uint64_t line, uint64_t depth, uint64_t elapsed, const struct ps_more_backtrace__done *more)
{
    PS_SITE6("backtrace__done", PS_PROBE_BACKTRACE__DONE, PS_ARG(kind), PS_ARG(file), PS_ARG(line), PS_ARG(depth), PS_ARG(elapsed), PS_ARG(more));
}

PS_SITE_FUNCTION void ps_fire_object__alloc(const char *class, const char *file, uint64_t line, uint64_t size, const struct ps_more_object__alloc *more)
{
    PS_SITE6("object__alloc", PS_PROBE_OBJECT__ALLOC, PS_ARG(class), PS_ARG(file), PS_ARG(line), PS_ARG(size), 0, PS_ARG(more));
}

PS_SITE_FUNCTION void ps_fire_object__stats(const char *class, const char *file, uint64_t line, uint64_t allocated, uint64_t bytes, const struct ps_more_object__stats *more)
{
    PS_SITE6("object__stats", PS_PROBE_OBJECT__STATS, PS_ARG(class), PS_ARG(file), PS_ARG(line), PS_ARG(allocated), PS_ARG(bytes), PS_ARG(more));
}

PS_SITE_FUNCTION void ps_fire_gc__start(const char *kind, uint64_t generation)
{
    PS_SITE2("gc__start", PS_PROBE_GC__START, PS_ARG(kind), PS_ARG(generation));
}

PS_SITE_FUNCTION void ps_fire_gc__done(const char *kind, uint64_t generation, uint64_t elapsed, uint64_t objects)
{
    PS_SITE4("gc__done", PS_PROBE_GC__DONE, PS_ARG(kind), PS_ARG(generation), PS_ARG(elapsed), PS_ARG(objects));
}

PS_SITE_FUNCTION void ps_fire_sample(const char *function, const char *file, uint64_t line, uint64_t weight, uint64_t stack_id, const struct ps_more_sample *more)
{
    PS_SITE6("sample", PS_PROBE_SAMPLE, PS_ARG(function), PS_ARG(file), PS_ARG(line), PS_ARG(weight), PS_ARG(stack_id), PS_ARG(more));
}

PS_SITE_FUNCTION void ps_fire_sample__stats(const char *function, const char *file, uint64_t line, uint64_t self, uint64_t total, const struct ps_more_sample__stats *more)
{
    PS_SITE6("sample__stats", PS_PROBE_SAMPLE__STATS, PS_ARG(function), PS_ARG(file), PS_ARG(line), PS_ARG(self), PS_ARG(total), PS_ARG(more));
}

PS_SITE_FUNCTION void ps_fire_sample__frame(const char *function, const char *file, uint64_t line, uint64_t stack_id, uint64_t index, const struct ps_more_sample__frame *more)
{
    PS_SITE6("sample__frame", PS_PROBE_SAMPLE__FRAME, PS_ARG(function), PS_ARG(file), PS_ARG(line), PS_ARG(stack_id), PS_ARG(index), PS_ARG(more));
}

PS_SITE_FUNCTION void ps_fire_line(const char *function, const char *file, uint64_t line, const struct ps_more_line *more)
{
    PS_SITE6("line", PS_PROBE_LINE, PS_ARG(function), PS_ARG(file), PS_ARG(line), 0, 0, PS_ARG(more));
}

PS_SITE_FUNCTION void ps_fire_gvl__wait(uint64_t thread_id, uint64_t elapsed)
{
    PS_SITE2("gvl__wait", PS_PROBE_GVL__WAIT, PS_ARG(thread_id), PS_ARG(elapsed));
}

PS_SITE_FUNCTION void ps_fire_request__start(const char *route, const char *method, const struct ps_more_request__start *more)
{
    PS_SITE6("request__start", PS_PROBE_REQUEST__START, PS_ARG(route), PS_ARG(method), 0, 0, 0, PS_ARG(more));
}

PS_SITE_FUNCTION void ps_fire_request__done(const char *route, const char *method, uint64_t status, uint64_t elapsed, const struct ps_more_request__done *more)
{
    PS_SITE6("request__done", PS_PROBE_REQUEST__DONE, PS_ARG(route), PS_ARG(method), PS_ARG(status), PS_ARG(elapsed), 0, PS_ARG(more));
}

PS_SITE_FUNCTION void ps_fire_stats__by_request(void)
{
    PS_SITE0("stats__by_request", PS_PROBE_STATS__BY_REQUEST);
}

PS_SITE_FUNCTION void ps_fire_stats__done(uint64_t sequence, uint64_t elapsed, uint64_t cpu, uint64_t rows, uint64_t dropped, const struct ps_more_stats__done *more)
{
    PS_SITE6("stats__done", PS_PROBE_STATS__DONE, PS_ARG(sequence), PS_ARG(elapsed), PS_ARG(cpu), PS_ARG(rows), PS_ARG(dropped), PS_ARG(more));
}

PS_SITE_FUNCTION void ps_fire_status(const char *probe, uint64_t state, const char *reason)
{
    PS_SITE3("status", PS_PROBE_STATUS, PS_ARG(probe), PS_ARG(state), PS_ARG(reason));
}

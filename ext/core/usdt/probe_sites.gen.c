/* Generated from providers/probescope.yml by `rake generate`. Do not edit. */
#include "usdt/probes.gen.h"

#include "usdt/probe.h"

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
    [PS_PROBE_FUNCTION__HERE] = "function__here",
    [PS_PROBE_WAIT__STATS] = "wait__stats",
    [PS_PROBE_STACK__FRAME] = "stack__frame",
    [PS_PROBE_STACK__CPU] = "stack__cpu",
};

PS_SITE_FUNCTION void ps_fire_function__entry(const char *function, const char *file, uint64_t line, uint64_t depth, uint64_t kind, const struct ps_more_function__entry *more)
{
    PS_REG(0, function);
    PS_REG(1, file);
    PS_REG(2, line);
    PS_REG(3, depth);
    PS_REG(4, kind);
    PS_REG(5, more);
    PS_EMIT("function__entry", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_FUNCTION__ENTRY), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_function__return(const char *function, const char *file, uint64_t line, uint64_t elapsed, uint64_t self, const struct ps_more_function__return *more)
{
    PS_REG(0, function);
    PS_REG(1, file);
    PS_REG(2, line);
    PS_REG(3, elapsed);
    PS_REG(4, self);
    PS_REG(5, more);
    PS_EMIT("function__return", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_FUNCTION__RETURN), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_function__slow1ms(const char *function, const char *file, uint64_t line, uint64_t elapsed, uint64_t self, const struct ps_more_function__slow1ms *more)
{
    PS_REG(0, function);
    PS_REG(1, file);
    PS_REG(2, line);
    PS_REG(3, elapsed);
    PS_REG(4, self);
    PS_REG(5, more);
    PS_EMIT("function__slow1ms", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_FUNCTION__SLOW1MS), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_function__slow10ms(const char *function, const char *file, uint64_t line, uint64_t elapsed, uint64_t self, const struct ps_more_function__slow10ms *more)
{
    PS_REG(0, function);
    PS_REG(1, file);
    PS_REG(2, line);
    PS_REG(3, elapsed);
    PS_REG(4, self);
    PS_REG(5, more);
    PS_EMIT("function__slow10ms", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_FUNCTION__SLOW10MS), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_function__slow100ms(const char *function, const char *file, uint64_t line, uint64_t elapsed, uint64_t self, const struct ps_more_function__slow100ms *more)
{
    PS_REG(0, function);
    PS_REG(1, file);
    PS_REG(2, line);
    PS_REG(3, elapsed);
    PS_REG(4, self);
    PS_REG(5, more);
    PS_EMIT("function__slow100ms", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_FUNCTION__SLOW100MS), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_function__stats(const char *function, const char *file, uint64_t line, uint64_t calls, uint64_t self, const struct ps_more_function__stats *more)
{
    PS_REG(0, function);
    PS_REG(1, file);
    PS_REG(2, line);
    PS_REG(3, calls);
    PS_REG(4, self);
    PS_REG(5, more);
    PS_EMIT("function__stats", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_FUNCTION__STATS), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_functions__all(void)
{
    PS_EMIT("functions__all", "",
            PS_SEMAPHORE(PS_PROBE_FUNCTIONS__ALL));
}

PS_SITE_FUNCTION void ps_fire_exception__raise(const char *type, const char *file, uint64_t line, uint64_t depth, uint64_t backtrace_cost, const struct ps_more_exception__raise *more)
{
    PS_REG(0, type);
    PS_REG(1, file);
    PS_REG(2, line);
    PS_REG(3, depth);
    PS_REG(4, backtrace_cost);
    PS_REG(5, more);
    PS_EMIT("exception__raise", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_EXCEPTION__RAISE), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_exception__detail(const char *type, const char *file, uint64_t line, uint64_t depth, uint64_t backtrace_cost, const struct ps_more_exception__detail *more)
{
    PS_REG(0, type);
    PS_REG(1, file);
    PS_REG(2, line);
    PS_REG(3, depth);
    PS_REG(4, backtrace_cost);
    PS_REG(5, more);
    PS_EMIT("exception__detail", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_EXCEPTION__DETAIL), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_exception__rescue(const char *type, const char *file, uint64_t line, uint64_t elapsed, uint64_t unwound, const struct ps_more_exception__rescue *more)
{
    PS_REG(0, type);
    PS_REG(1, file);
    PS_REG(2, line);
    PS_REG(3, elapsed);
    PS_REG(4, unwound);
    PS_REG(5, more);
    PS_EMIT("exception__rescue", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_EXCEPTION__RESCUE), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_exception__stats(const char *type, const char *file, uint64_t line, uint64_t raised, uint64_t backtrace_cost, const struct ps_more_exception__stats *more)
{
    PS_REG(0, type);
    PS_REG(1, file);
    PS_REG(2, line);
    PS_REG(3, raised);
    PS_REG(4, backtrace_cost);
    PS_REG(5, more);
    PS_EMIT("exception__stats", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_EXCEPTION__STATS), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_backtrace__done(const char *kind, const char *file, uint64_t line, uint64_t depth, uint64_t elapsed, const struct ps_more_backtrace__done *more)
{
    PS_REG(0, kind);
    PS_REG(1, file);
    PS_REG(2, line);
    PS_REG(3, depth);
    PS_REG(4, elapsed);
    PS_REG(5, more);
    PS_EMIT("backtrace__done", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_BACKTRACE__DONE), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_object__alloc(const char *class, const char *file, uint64_t line, uint64_t size, const struct ps_more_object__alloc *more)
{
    PS_REG(0, class);
    PS_REG(1, file);
    PS_REG(2, line);
    PS_REG(3, size);
    PS_REG(4, 0);
    PS_REG(5, more);
    PS_EMIT("object__alloc", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_OBJECT__ALLOC), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_object__stats(const char *class, const char *file, uint64_t line, uint64_t allocated, uint64_t bytes, const struct ps_more_object__stats *more)
{
    PS_REG(0, class);
    PS_REG(1, file);
    PS_REG(2, line);
    PS_REG(3, allocated);
    PS_REG(4, bytes);
    PS_REG(5, more);
    PS_EMIT("object__stats", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_OBJECT__STATS), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_gc__start(const char *kind, uint64_t generation)
{
    PS_REG(0, kind);
    PS_REG(1, generation);
    PS_EMIT("gc__start", PS_OPERAND(0) " " PS_OPERAND(1),
            PS_SEMAPHORE(PS_PROBE_GC__START), "r"(reg0), "r"(reg1));
}

PS_SITE_FUNCTION void ps_fire_gc__done(const char *kind, uint64_t generation, uint64_t elapsed, uint64_t objects)
{
    PS_REG(0, kind);
    PS_REG(1, generation);
    PS_REG(2, elapsed);
    PS_REG(3, objects);
    PS_EMIT("gc__done", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3),
            PS_SEMAPHORE(PS_PROBE_GC__DONE), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3));
}

PS_SITE_FUNCTION void ps_fire_sample(const char *function, const char *file, uint64_t line, uint64_t weight, uint64_t stack_id, const struct ps_more_sample *more)
{
    PS_REG(0, function);
    PS_REG(1, file);
    PS_REG(2, line);
    PS_REG(3, weight);
    PS_REG(4, stack_id);
    PS_REG(5, more);
    PS_EMIT("sample", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_SAMPLE), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_sample__stats(const char *function, const char *file, uint64_t line, uint64_t self, uint64_t total, const struct ps_more_sample__stats *more)
{
    PS_REG(0, function);
    PS_REG(1, file);
    PS_REG(2, line);
    PS_REG(3, self);
    PS_REG(4, total);
    PS_REG(5, more);
    PS_EMIT("sample__stats", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_SAMPLE__STATS), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_sample__frame(const char *function, const char *file, uint64_t line, uint64_t stack_id, uint64_t index, const struct ps_more_sample__frame *more)
{
    PS_REG(0, function);
    PS_REG(1, file);
    PS_REG(2, line);
    PS_REG(3, stack_id);
    PS_REG(4, index);
    PS_REG(5, more);
    PS_EMIT("sample__frame", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_SAMPLE__FRAME), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_line(const char *function, const char *file, uint64_t line, const struct ps_more_line *more)
{
    PS_REG(0, function);
    PS_REG(1, file);
    PS_REG(2, line);
    PS_REG(3, 0);
    PS_REG(4, 0);
    PS_REG(5, more);
    PS_EMIT("line", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_LINE), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_gvl__wait(uint64_t thread_id, uint64_t elapsed)
{
    PS_REG(0, thread_id);
    PS_REG(1, elapsed);
    PS_EMIT("gvl__wait", PS_OPERAND(0) " " PS_OPERAND(1),
            PS_SEMAPHORE(PS_PROBE_GVL__WAIT), "r"(reg0), "r"(reg1));
}

PS_SITE_FUNCTION void ps_fire_request__start(const char *route, const char *method, const struct ps_more_request__start *more)
{
    PS_REG(0, route);
    PS_REG(1, method);
    PS_REG(2, 0);
    PS_REG(3, 0);
    PS_REG(4, 0);
    PS_REG(5, more);
    PS_EMIT("request__start", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_REQUEST__START), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_request__done(const char *route, const char *method, uint64_t status, uint64_t elapsed, const struct ps_more_request__done *more)
{
    PS_REG(0, route);
    PS_REG(1, method);
    PS_REG(2, status);
    PS_REG(3, elapsed);
    PS_REG(4, 0);
    PS_REG(5, more);
    PS_EMIT("request__done", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_REQUEST__DONE), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_stats__by_request(void)
{
    PS_EMIT("stats__by_request", "",
            PS_SEMAPHORE(PS_PROBE_STATS__BY_REQUEST));
}

PS_SITE_FUNCTION void ps_fire_stats__done(uint64_t sequence, uint64_t elapsed, uint64_t cpu, uint64_t rows, uint64_t dropped, const struct ps_more_stats__done *more)
{
    PS_REG(0, sequence);
    PS_REG(1, elapsed);
    PS_REG(2, cpu);
    PS_REG(3, rows);
    PS_REG(4, dropped);
    PS_REG(5, more);
    PS_EMIT("stats__done", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_STATS__DONE), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_status(const char *probe, uint64_t state, const char *reason)
{
    PS_REG(0, probe);
    PS_REG(1, state);
    PS_REG(2, reason);
    PS_EMIT("status", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2),
            PS_SEMAPHORE(PS_PROBE_STATUS), "r"(reg0), "r"(reg1), "r"(reg2));
}

PS_SITE_FUNCTION void ps_fire_function__here(const struct ps_more_function__here *more)
{
    PS_REG(0, 0);
    PS_REG(1, 0);
    PS_REG(2, 0);
    PS_REG(3, 0);
    PS_REG(4, 0);
    PS_REG(5, more);
    PS_EMIT("function__here", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_FUNCTION__HERE), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_wait__stats(const char *what, const char *file, uint64_t line, uint64_t waits, uint64_t blocked, const struct ps_more_wait__stats *more)
{
    PS_REG(0, what);
    PS_REG(1, file);
    PS_REG(2, line);
    PS_REG(3, waits);
    PS_REG(4, blocked);
    PS_REG(5, more);
    PS_EMIT("wait__stats", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_WAIT__STATS), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_stack__frame(const char *function, const char *file, uint64_t line, uint64_t id, uint64_t parent, const struct ps_more_stack__frame *more)
{
    PS_REG(0, function);
    PS_REG(1, file);
    PS_REG(2, line);
    PS_REG(3, id);
    PS_REG(4, parent);
    PS_REG(5, more);
    PS_EMIT("stack__frame", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_STACK__FRAME), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

PS_SITE_FUNCTION void ps_fire_stack__cpu(uint64_t stack_id, uint64_t thread_id, uint64_t count, uint64_t weight, uint64_t looked, const struct ps_more_stack__cpu *more)
{
    PS_REG(0, stack_id);
    PS_REG(1, thread_id);
    PS_REG(2, count);
    PS_REG(3, weight);
    PS_REG(4, looked);
    PS_REG(5, more);
    PS_EMIT("stack__cpu", PS_OPERAND(0) " " PS_OPERAND(1) " " PS_OPERAND(2) " " PS_OPERAND(3) " " PS_OPERAND(4) " " PS_OPERAND(5),
            PS_SEMAPHORE(PS_PROBE_STACK__CPU), "r"(reg0), "r"(reg1), "r"(reg2), "r"(reg3), "r"(reg4), "r"(reg5));
}

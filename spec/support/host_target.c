/*
 * A process with the probes and the probescope_info of ABI 1 but without a virtual machine, for the
 * specs of the host side. It fires exactly what a spec needs (hostile names, many rows, an older
 * library), several times faster than once a second.
 *
 *   host_target [--period MS] [--rows N] [--burst N] [--flushes N] [--hostile] [--strings]
 *               [--abi N] [--state N] [--old] [--old-ruby] [--number N] [--without PROBE] [--waits]
 *               [--locks] [--unread PART] [--lines] [--fewer N] [--moving N]
 *
 * Like the library, it flushes under a tracer: first when no semaphore has changed for a period,
 * then once a period. A flush is one event for each row and each kind of statistics, then
 * stats__done, which always reports one second with half a second of CPU. Under a tracer of
 * function__here, a thread of its own makes the same system calls in each flush.
 *
 * --burst N: N flushes after the first one, then silence until a new tracer comes. So a spec
 *   can compute the sums.
 * --flushes N: ends after these flushes.
 * --strings: its backtraces became strings.
 * --without PROBE: its runtime does not serve this probe.
 * --waits: the thread that makes system calls sleeps in each row, too, and waits for a pipe.
 * --locks: that thread waits in each row for a VM lock, for 1 ms, and for a lock that the main thread
 *   unlocks in the function of row 0.
 * --lines: function__here tells how to find lines, as in CPython. The calls of a row are at the three
 *   lines behind that of its function, but access has an instruction that the line table lacks.
 * --fewer N: announces all probes but the last N, like an older library.
 * --moving N: the ids of its call paths are others after N flushes each.
 * --number N: its ids are those of process N, so that a spec can compute them before.
 * --unread PART: the record of the thread that makes system calls, or its epoch, stack, frames or
 *   names, are on a page that is not in memory. "late": the names come into memory later.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PROBES(X)                                                                                            \
    X(function__stats)                                                                                       \
    X(functions__all)                                                                                        \
    X(exception__detail)                                                                                     \
    X(exception__stats)                                                                                      \
    X(object__stats)                                                                                         \
    X(sample__stats)                                                                                         \
    X(stats__done)                                                                                           \
    X(stats__by_request)                                                                                     \
    X(function__entry)                                                                                       \
    X(function__return)                                                                                      \
    X(sample)                                                                                                \
    X(gc__done)                                                                                              \
    X(gvl__wait)                                                                                             \
    X(request__done)                                                                                         \
    X(wait__stats)                                                                                           \
    X(function__slow1ms)                                                                                     \
    X(function__slow10ms)                                                                                    \
    X(function__slow100ms)                                                                                   \
    X(exception__rescue) X(backtrace__done) X(function__here) X(stack__frame) X(stack__cpu)

/*
 * Each function is in assembly: at its first instruction, the arguments are where the note
 * describes them.
 */
#define PROBE(name)                                                                                          \
    __attribute__((section(".probes"), used,                                                                 \
                   visibility("default"))) volatile uint16_t probescope_##name##_semaphore;                  \
    void fire_##name(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, const uint64_t *more);      \
    __asm__(".pushsection .text\n.type fire_" #name ", @function\nfire_" #name ":\n"                         \
            "990: nop\nret\n.size fire_" #name ", .-fire_" #name "\n.popsection\n"                           \
            ".pushsection .note.stapsdt,\"\",\"note\"\n.balign 4\n.4byte 992f-991f, 994f-993f, 3\n"          \
            "991: .asciz \"stapsdt\"\n992: .balign 4\n"                                                      \
            "993: .8byte 990b, _.stapsdt.base, probescope_" #name "_semaphore\n"                             \
            ".asciz \"probescope\"\n.asciz \"" #name "\"\n"                                                  \
            ".asciz \"8@%rdi 8@%rsi 8@%rdx 8@%rcx 8@%r8 8@%r9\"\n994: .balign 4\n.popsection\n");
__asm__(".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n.weak _.stapsdt.base\n"
        ".hidden _.stapsdt.base\n_.stapsdt.base: .space 1\n.size _.stapsdt.base, 1\n.popsection\n");
PROBES(PROBE)

struct info_probe {
    char name[24];
    uint32_t state, enabled;
    uint64_t semaphore;
    char reason[120];
};

#define COUNT(name) +1
enum { PROBE_COUNT = 0 PROBES(COUNT) };

/*
 * The same layout as in the library. `--old` announces only the first three probes, like an older
 * library.
 */
__attribute__((visibility("default"))) struct {
    char magic[8];
    uint32_t size, abi, sequence, probe_count, probe_size, probes_offset;
    char runtime[16], runtime_version[32], library_version[16];
    int32_t pid;
    uint32_t flags;
    uint64_t memory_limit, memory_used, rows_dropped, flushes, switches, watcher_ticks;
    char note[128];
    uint64_t asked_ns, hooks_in_ns, looking_ns, looked_cpu_ns;
    uint64_t overhead_limit, cut, ticked_ran_ns, ticked_met_ns, ticked_met;
    struct info_probe probes[PROBE_COUNT];
} probescope_info = {.magic = "PSCOPE1",
                     .size = sizeof probescope_info,
                     .abi = 1,
                     .probe_count = PROBE_COUNT,
                     .probe_size = sizeof(struct info_probe),
                     .runtime = "ruby",
                     .runtime_version = "3.1.2",
                     .library_version = "0.1.0",
                     .flags = 19, /* `--mute`: nothing reports requests */
                     .memory_limit = 32 << 20,
                     .memory_used = 4096};

static volatile uint16_t *semaphores[] = {
#define SEMAPHORE(name) &probescope_##name##_semaphore,
    PROBES(SEMAPHORE)};

static uint64_t p(const char *text)
{
    return (uint64_t)text;
}

/* Of 1,000 ns of CPU time the ticks meet so many. 0: the process counts no ticks. */
static uint64_t met;

/* Each process has its own requests. */
static uint64_t number;

static uint64_t request_id(int row)
{
    return 100000u * number + 70 + row;
}

/*
 * Fires the slow calls of a flush. Row 0 takes 4 ms and is called by row 1, which takes 8 ms, and
 * so on. The last row has no caller, and raises.
 */
static void slow_call(int row, int rows, const char *function, const char *file, int hostile)
{
    static uint64_t ids;
    const char *traceparent = hostile   ? "\x1b[31m\n"
                              : row & 1 ? "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
                                        : "";
    int outer = row + 1 == rows;
    uint64_t id = (number << 32 | ++ids) * 0x9e3779b97f4a7c15u, elapsed = 4000000u * (row + 1);
    uint64_t caller = (number << 32 | (ids + 1)) * 0x9e3779b97f4a7c15u;
    const uint64_t request = row == 0 ? 0 : request_id(row);
    const uint64_t more[] = {p(file), 100 + row, outer, p(traceparent), id, outer ? 0 : caller, request};
    if (probescope_function__slow1ms_semaphore)
        fire_function__slow1ms(p(function), p(file), 10 + row, elapsed, 4000000, more);
    if (probescope_function__slow10ms_semaphore && elapsed >= 10000000)
        fire_function__slow10ms(p(function), p(file), 10 + row, elapsed, 4000000, more);
    if (probescope_function__slow100ms_semaphore && elapsed >= 100000000)
        fire_function__slow100ms(p(function), p(file), 10 + row, elapsed, 4000000, more);
}

/*
 * The function of the row, which is the application's, calls one of a library. In row 0, the library
 * also works for nobody of the application. Of a hostile process, that function calls itself for ever.
 */
static uint64_t moved, idle_parent;

static void fire_paths(int row, const char *function, const char *file, uint64_t weight)
{
    const char *library = "/gems/library-1.2/lib/work.rb", *work = row & 1 ? "Library#read" : "Library#work";
    const uint64_t id = 20 + 2 * (uint64_t)row + moved, outer = 19 + 2 * (uint64_t)row + moved;
    const uint64_t own[] = {p(file), 281474976710100, 10 + row, 1};
    const uint64_t others[] = {p(library), 281474976710101, 4, 0}, none[] = {p(""), 0};
    if (probescope_stack__frame_semaphore) {
        fire_stack__frame(p(function), p(file), 11 + row, outer, 0, own);
        fire_stack__frame(p(work), p(library), 5, id, outer, others);
        if (row == 0) fire_stack__frame(p("Library#idle"), p(library), 7, 1, idle_parent, others);
    }
    if (!probescope_stack__cpu_semaphore) return;
    fire_stack__cpu(id, 100 + row, 2 * weight, 1000000 * weight, 2 * weight, none);
    if (row == 0) fire_stack__cpu(1, 100, 1, 500000, 1, none);
}

static int strings;

static void flush_row(int row, int rows, int hostile)
{
    char *type = NULL, *file = NULL, *function = NULL;
    if (hostile) {
        static char hostile_type[10240], hostile_file[64];
        strcpy(hostile_type, "Bad\"\n\x1b[31m,\\ \xff\xc3\xa9,Name");
        memset(hostile_type + strlen(hostile_type), 'x', sizeof hostile_type - 1 - strlen(hostile_type));
        strcpy(hostile_file, "/tmp/a,b\"\n\x1b]0;title\x07\xe9.rb");
        type = hostile_type, file = hostile_file, function = "odd,name\t#<call>";
    } else {
        /* Leaked on purpose: names must stay valid while the process lives. */
        if (asprintf(&type, "Error%d", row) < 0 || asprintf(&function, "Parser#step%d", row) < 0) abort();
        file = "/app/lib/parser.rb";
    }
    uint64_t line = 10 + row, weight = row + 1;
    /* Row 0 is in no request. The other rows belong to two requests. */
    const int tells = probescope_stats__by_request_semaphore && row;
    const uint64_t request = p(!tells    ? ""
                               : hostile ? "GET /\x1b[31m\n,\xff\""
                               : row & 1 ? "GET /orders/:id"
                                         : "JOB Mail");
    const uint64_t number = tells ? 281474976710000 + row % 2 : 0;
    if (probescope_exception__stats_semaphore) {
        const int by_gem = row & 1;
        const uint64_t more[] = {p(file),
                                 p(function),
                                 100 * weight,
                                 120,
                                 strings ? 2500000 * weight : 0,
                                 weight,
                                 p("/app/lib/rescue.rb"),
                                 77,
                                 p(strings ? "/app/lib/report.rb" : ""),
                                 strings ? 5 : 0,
                                 p(by_gem ? "/app/shop.rb" : file),
                                 by_gem ? 3 : line,
                                 weight - by_gem,
                                 request,
                                 number};
        fire_exception__stats(p(type), p(file), line, weight, 10000000 * weight, more);
    }
    if (probescope_exception__detail_semaphore) {
        const uint64_t more[] = {p(file), p(function), 1, p("a message"), p(""), p(file), line};
        fire_exception__detail(p(type), p(file), line, 100, 1000, more);
    }
    if (probescope_backtrace__done_semaphore) {
        const uint64_t more[] = {p(file), p(function), p(type), p("/app/lib/raise.rb"), 7};
        fire_backtrace__done(p(row & 1 ? "caller" : "backtrace"), p(file), line, 10 * weight,
                             1000000 * weight, more);
    }
    if (probescope_function__stats_semaphore) {
        const uint64_t more[] = {p(file), 3000 * weight, 2000, row & 1, 0, 0};
        fire_function__stats(p(hostile ? type : function), p(file), line, weight, 1000 * weight, more);
    }
    slow_call(row, rows, hostile ? type : function, file, hostile);
    if (probescope_object__stats_semaphore) {
        const uint64_t more[] = {p(file), request, number};
        fire_object__stats(p(type), p(file), line, weight, 40 * weight, more);
    }
    if (probescope_sample_semaphore) {
        const uint64_t more[] = {p(file), 1};
        fire_sample(p(hostile ? type : function), p(file), line, 1000000 * weight, row, more);
    }
    if (probescope_gc__done_semaphore && row < 2)
        fire_gc__done(p(hostile ? type : row ? "major" : "minor"), 1, 1000000 * weight, 12345, 0, NULL);
    /* Each row waited for row 0, once for each of its weight, and once for nobody. */
    if (probescope_wait__stats_semaphore) {
        const uint64_t ended[] = {p(file),
                                  p(hostile ? type : function),
                                  1000 * weight,
                                  3000000,
                                  p("Parser#step0"),
                                  p(file),
                                  10,
                                  140088153141000,
                                  request,
                                  number};
        const uint64_t alone[] = {
            p(file), p(hostile ? type : function), 0, 2000000, p(""), p(""), 0, 0, request, number};
        const char *what = hostile ? type : row & 1 ? "Thread::Queue#pop" : "Thread::Mutex#synchronize";
        fire_wait__stats(p(what), p(file), line, weight, 3000000 * weight, ended);
        fire_wait__stats(p(what), p(file), line, 1, 2000000, alone);
    }
    if (probescope_gvl__wait_semaphore) fire_gvl__wait(100 + row, 1000000 * weight, 0, 0, 0, NULL);
    /*
     * Each row has one request of 1 ms times its weight, and one that fails and takes ten times as
     * long.
     */
    if (probescope_request__done_semaphore) {
        const char *route = hostile ? type : row & 1 ? "/orders/:id, [odd]" : "/orders";
        const uint64_t more[] = {1, p(""), row == 1 ? request_id(row) : 2, 0, p(route), p(route)};
        fire_request__done(p(route), p(row > 1 ? "POST" : "GET"), 200, 1000000 * weight, 0, more);
        fire_request__done(p(route), p(row > 1 ? "POST" : "GET"), 503, 10000000 * weight, 0, more);
    }
    if (probescope_sample__stats_semaphore) {
        const uint64_t more[] = {p(file), weight, 2 * weight, request, number};
        fire_sample__stats(p(hostile ? type : function), p(file), line, 1000000 * weight, 1500000 * weight,
                           more);
    }
    fire_paths(row, hostile ? type : function, file, weight);
}

/* Calls of functions: row 0 calls row 1, and so on. */
static void call_row(int row, int rows, int hostile)
{
    char *name = "odd,name\t\x1b[31m\xff#<call>", *file = "/app/lib/parser.rb";
    if (!hostile && asprintf(&name, "Parser#step%d", row) < 0) abort();
    uint64_t line = 10 + row, context = 1;
    const uint64_t entry[] = {p(file), context}, leave[] = {p(file), context, row, 0, row & 1};
    if (probescope_function__entry_semaphore) fire_function__entry(p(name), p(file), line, row, 0, entry);
    if (row + 1 < rows) call_row(row + 1, rows, hostile);
    if (probescope_function__return_semaphore)
        fire_function__return(p(name), p(file), line, 2000, 1000, leave);
}

/*
 * What function__here tells: the record of a thread, its stack, and the site of each row. They are at
 * the same addresses in every process, as in processes that were forked.
 */
enum { MOST_SITES = 64 };
static struct here {
    struct {
        const void *stack;
        uint64_t layout;
        const uint32_t *epoch;
        uint64_t lock, vm, flags, names, requests;
    } record;
    struct {
        struct frame {
            const struct row {
                uint64_t numbers[3];
                const struct site {
                    const char *name, *file, *path;
                    uint64_t line;
                } * site;
            } * row;
            struct vm_frame *vm;
            uint64_t rest[8];
        } * frames;
        uint32_t depth, epoch, capacity, round;
        const struct site *request;
        const uint64_t *where;
        uint64_t version;
    } stack;
    uint32_t epoch;
    struct frame frames[2];
    struct row rows[MOST_SITES];
    struct site sites[MOST_SITES], requests[2];
    /* What CPython has for each call and each function. An instruction has two bytes. */
    struct vm_frame {
        uint64_t code, instruction;
    } vm_frames[2];
    struct vm_code {
        const struct vm_lines *lines;
        uint32_t first;
        unsigned char instructions[20];
    } codes[MOST_SITES];
    struct vm_lines {
        uint64_t size;
        unsigned char bytes[64];
    } lines;
    uint32_t gil, lock;
} * here, *main_here; /* of the thread that makes system calls, and of the main thread */
static int tells_lines;
static int asked[2], null_device, calling_rows, waits, locks;
static volatile int answered;
static volatile uint64_t waiting_since;
static const char *unread = "";
static char *absent; /* a page that was never touched: an address that no program of a tracer can read */

static void fire_here(const struct here *of, uint64_t thread)
{
    const void *record = strcmp(unread, "record") ? (void *)&of->record : absent;
    const uint64_t gil = locks ? (uint64_t)&here->gil : 0;
    const uint64_t code = offsetof(struct vm_frame, code) | offsetof(struct vm_frame, instruction) << 16 |
                          offsetof(struct vm_code, instructions) << 32;
    const uint64_t lines = offsetof(struct vm_code, lines) | offsetof(struct vm_code, first) << 16 |
                           offsetof(struct vm_lines, size) << 32 | offsetof(struct vm_lines, bytes) << 48;
    const uint64_t more[] = {(uint64_t)record,
                             of->record.layout,
                             (uint64_t)&here->epoch,
                             thread,
                             gil,
                             locks ? sizeof here->gil : 0,
                             0,
                             tells_lines ? code : 0,
                             0,
                             tells_lines ? lines : 0,
                             0};
    fire_function__here(0, 0, 0, 0, 0, more);
}

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Both locks are always 0. A FUTEX_WAKE is for one thread, and returns whether there was one. */
static long futex(uint32_t *lock, int operation, const struct timespec *longest)
{
    return syscall(SYS_futex, lock, operation, operation == FUTEX_WAKE_PRIVATE, longest, NULL, 0);
}

/*
 * Unlocks when the other thread has waited for 1 ms. Then a tracer has seen that it left its CPU. The
 * main thread is in the function of row 0 only for the time of the call.
 */
static void unlock(void)
{
    const uint64_t since = waiting_since;
    if (!since || monotonic_ns() - since < 1000000) return;
    main_here->stack.depth = 1;
    futex(&here->lock, FUTEX_WAKE_PRIVATE, NULL);
    main_here->stack.depth = 0;
}

/* The innermost call is at this instruction of its function. */
static void at(int row, int instruction)
{
    here->vm_frames[row ? 1 : 0] = (struct vm_frame){
        (uint64_t)&here->codes[row], (uint64_t)&here->codes[row].instructions[2 * instruction]};
}

#define IN_STACK(field) (offsetof(struct here, stack.field) - offsetof(struct here, stack))
#define IN_REQUESTS                                                                                          \
    (IN_STACK(request) << 32 | IN_STACK(where) << 40 | IN_STACK(version) << 48 | IN_STACK(round) << 56)

/*
 * In each flush and each row: getppid as often as its weight, an access that fails, 4 bytes. The
 * function of row 0 calls the others.
 */
static void *call_the_system(void *unused)
{
    const uint64_t thread = (uint64_t)gettid();
    int traced = 0;
    for (char byte; read(asked[0], &byte, 1) == 1; answered = 1) {
        if (probescope_function__here_semaphore) fire_here(here, thread);
        /* A tracer attaches stats__done last. The interval has begun, and the names were not read. */
        if (probescope_stats__done_semaphore && ++traced == 5 && !strcmp(unread, "late"))
            strcpy(absent, "Parser#late");
        here->record.requests = probescope_stats__by_request_semaphore ? IN_REQUESTS | here->stack.round : 0;
        for (int row = 0; row < calling_rows; row++) {
            here->stack.request = row ? &here->requests[row & 1] : NULL;
            here->frames[0].row = &here->rows[0];
            here->frames[row ? 1 : 0].row = &here->rows[row];
            here->stack.depth = row ? 2 : 1;
            at(row, 0);
            for (int i = 0; i <= row; i++) syscall(SYS_getppid);
            at(row, 9);
            syscall(SYS_access, "/nowhere/at/all", F_OK);
            at(row, 2);
            if (syscall(SYS_write, null_device, "four", 4) != 4) abort();
            if (waits) {
                nanosleep(&(struct timespec){0, 1000000}, NULL);
                poll(&(struct pollfd){asked[0], POLLIN, 0}, 1, 1);
            }
            if (locks) {
                futex(&here->gil, FUTEX_WAIT_PRIVATE, &(struct timespec){0, 1000000});
                waiting_since = monotonic_ns();
                futex(&here->lock, FUTEX_WAIT_PRIVATE, NULL);
                waiting_since = 0;
            }
            here->stack.depth = 0;
        }
    }
    return unused;
}

static void start_calling(int rows, int hostile)
{
    here = mmap((void *)0x7e0000000000, 2 * sizeof *here, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    absent = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (here == MAP_FAILED || absent == MAP_FAILED) abort();
    here->epoch = here->stack.epoch = 5;
    here->stack.frames = here->frames;
    here->stack.round = here->stack.version = 1;
    here->stack.where = &here->stack.version;
    here->requests[0] = (struct site){"JOB Mail", "", "", 281474976710000};
    here->requests[1] =
        (struct site){hostile ? "GET /\x1b[31m\n,\xff\"" : "GET /orders/*", "", "", 281474976710001};
    here->record.stack = &here->stack;
    here->record.epoch = &here->epoch;
    here->record.layout = IN_STACK(frames) | IN_STACK(depth) << 8 | IN_STACK(epoch) << 16 |
                          sizeof(struct frame) << 24 | offsetof(struct frame, row) << 32 |
                          offsetof(struct frame, vm) << 40 | offsetof(struct row, site) << 48;
    here->record.names = offsetof(struct site, name) | offsetof(struct site, file) << 8 |
                         offsetof(struct site, line) << 16 | offsetof(struct site, path) << 24;
    /* Three instructions without columns, each one line behind the one before. */
    here->lines = (struct vm_lines){6, {0xe8, 2, 0xe8, 2, 0xe8, 2}};
    for (int i = 0; i < 2; i++) here->frames[i].vm = &here->vm_frames[i];
    calling_rows = rows < MOST_SITES ? rows : MOST_SITES;
    for (int row = 0; row < calling_rows; row++) {
        char *name = "odd,name\t\x1b[31m\xff#<call>", *file = "/tmp/a,b\"\n\x1b]0;title\x07\xe9.rb";
        if (!hostile && asprintf(&name, "Parser#step%d", row) < 0) abort();
        if (!hostile) file = "/app/lib/parser.rb";
        here->sites[row] = (struct site){name, file, file, 10 + row};
        here->rows[row].site = &here->sites[row];
        here->codes[row] = (struct vm_code){.lines = &here->lines, .first = 10 + (uint32_t)row};
        if (!strcmp(unread, "name") || !strcmp(unread, "late")) here->sites[row].name = absent;
    }
    if (!strcmp(unread, "epoch")) here->record.epoch = (uint32_t *)absent;
    if (!strcmp(unread, "stack")) here->record.stack = absent;
    if (!strcmp(unread, "frames")) here->stack.frames = (struct frame *)absent;
    main_here = here + 1;
    main_here->record = here->record;
    main_here->record.stack = &main_here->stack;
    main_here->stack = here->stack;
    main_here->stack.frames = main_here->frames;
    main_here->frames[0].row = &here->rows[0];
    null_device = open("/dev/null", O_WRONLY | O_CLOEXEC);
    pthread_t thread;
    if (null_device < 0 || pipe(asked) || pthread_create(&thread, NULL, call_the_system, NULL)) abort();
}

static void make_calls(int rows, int hostile)
{
    if (!here) start_calling(rows, hostile);
    answered = 0;
    if (locks) fire_here(main_here, (uint64_t)gettid());
    if (write(asked[1], "", 1) != 1) abort();
    for (; !answered; nanosleep(&(struct timespec){0, 100000}, NULL))
        if (locks) unlock();
}

static uint32_t listeners(void)
{
    uint32_t mask = 0;
    for (int i = 0; i < PROBE_COUNT; i++) mask |= (uint32_t)(*semaphores[i] != 0) << i;
    return mask;
}

static void flush(uint64_t sequence, int rows, int hostile)
{
    for (int row = 0; row < rows; row++) flush_row(row, rows, hostile);
    if (rows && probescope_function__entry_semaphore) call_row(0, rows, hostile);
    if (rows && probescope_function__here_semaphore) make_calls(rows, hostile);
    probescope_info.cut = monotonic_ns();
    const uint64_t more[] = {5, 7, 45, 25000000, probescope_info.cut};
    probescope_info.looking_ns += 25000000;
    probescope_info.looked_cpu_ns += 500000000;
    if (met) {
        probescope_info.ticked_ran_ns += 500000000;
        probescope_info.ticked_met_ns += 500000 * met;
        probescope_info.ticked_met += 50;
    }
    if (probescope_stats__done_semaphore) fire_stats__done(sequence, 1000000000, 500000000, rows, 2, more);
    __atomic_store_n(&probescope_info.flushes, sequence, __ATOMIC_RELEASE);
}

static void hooks_asked(void)
{
    probescope_info.asked_ns = monotonic_ns();
    probescope_info.hooks_in_ns = 0;
}

int main(int argc, char **argv)
{
    int period = 50, rows = 3, hostile = 0, no_rescues = 0, state = 1, burst = -1, flushes = -1, moving = 0;
    const char *without = "";
    for (int i = 1; i < argc; i++) {
        int value = i + 1 < argc ? atoi(argv[i + 1]) : 0;
        if (!strcmp(argv[i], "--period")) period = value;
        else if (!strcmp(argv[i], "--rows")) rows = value;
        else if (!strcmp(argv[i], "--burst")) burst = value;
        else if (!strcmp(argv[i], "--flushes")) flushes = value;
        else if (!strcmp(argv[i], "--hostile")) hostile = 1, idle_parent = 1;
        else if (!strcmp(argv[i], "--mute")) probescope_info.flags = 3;
        else if (!strcmp(argv[i], "--strings")) strings = 1;
        else if (!strcmp(argv[i], "--waits")) waits = 1;
        else if (!strcmp(argv[i], "--locks")) locks = 1;
        else if (!strcmp(argv[i], "--lines")) strcpy(probescope_info.runtime, "python"), tells_lines = 1;
        else if (!strcmp(argv[i], "--without")) without = argv[i + 1];
        else if (!strcmp(argv[i], "--unread")) unread = argv[i + 1];
        else if (!strcmp(argv[i], "--number")) number = value;
        else if (!strcmp(argv[i], "--abi")) probescope_info.abi = value;
        else if (!strcmp(argv[i], "--state")) state = value;
        else if (!strcmp(argv[i], "--old-ruby")) no_rescues = 1;
        else if (!strcmp(argv[i], "--met")) strcpy(probescope_info.runtime, "python"), met = (uint64_t)value;
        else if (!strcmp(argv[i], "--fewer")) probescope_info.probe_count -= (uint32_t)value;
        else if (!strcmp(argv[i], "--moving")) moving = value;
        /* without the later probes */
        else if (!strcmp(argv[i], "--old")) probescope_info.probe_count = 3;
    }
    probescope_info.pid = getpid();
    if (!number) number = (uint64_t)getpid();
    probescope_info.probes_offset = (uint32_t)((char *)probescope_info.probes - (char *)&probescope_info);
#define NAME(name) #name,
    static const char *const names[] = {PROBES(NAME)};
    for (int i = 0; i < PROBE_COUNT; i++) {
        strcpy(probescope_info.probes[i].name, names[i]);
        probescope_info.probes[i].semaphore = (uint64_t)semaphores[i];
        if (!strcmp(names[i], without)) {
            probescope_info.probes[i].state = 4;
            strcpy(probescope_info.probes[i].reason, "not with this runtime");
        }
        if (no_rescues && !strcmp(names[i], "exception__rescue")) probescope_info.probes[i].state = 4;
        if (state > 1) {
            probescope_info.probes[i].state = state;
            strcpy(probescope_info.probes[i].reason, "as the spec asked");
        }
    }
    puts("ready");
    fflush(stdout);

    struct timespec pause = {period / 1000, period % 1000 * 1000000L};
    uint32_t before = 0;
    uint64_t sequence = 0;
    /*
     * A tracer raises the semaphore well before its program runs, and earlier still on a busy
     * machine. A burst comes only once, so it waits for longer.
     */
    int quiet = 0, settled = burst >= 0 ? 20 : 1;
    for (int since_attach = -1;; nanosleep(&pause, NULL)) {
        uint32_t now = listeners();
        for (int i = 0; i < PROBE_COUNT; i++) {
            probescope_info.probes[i].enabled = *semaphores[i];
            if (state <= 1 && probescope_info.probes[i].state <= 1)
                probescope_info.probes[i].state = *semaphores[i] ? 1 : 0;
        }
        if (now & ~before) since_attach = -1;
        quiet = now != before ? 0 : quiet + 1;
        if (now != before) hooks_asked();
        before = now;
        if (!now || quiet < settled || (burst >= 0 && since_attach == burst)) continue;
        if (!probescope_info.hooks_in_ns) probescope_info.hooks_in_ns = monotonic_ns();
        if (moving) moved = sequence / (uint64_t)moving * 2 * (uint64_t)rows;
        flush(++sequence, rows, hostile);
        if (++since_attach == flushes) return 0;
    }
}

/* The records by which a tracer's program finds the open call of a thread. */
#include "calls/here.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fork.h"
#include "base/memory.h"
#include "usdt/info.h"
#include "check.h"
#include "recorder.h"

enum { FUNCTIONS = 4 };

static const ps_site sites[FUNCTIONS] = {
    {"first", "a.rb", "/app/a.rb", 1},
    {"second", "a.rb", "/app/a.rb", 2},
    {"third", "a.rb", "/app/a.rb", 3},
    {"fourth", "a.rb", "/app/a.rb", 4},
};

static ps_row *function(int number)
{
    return ps_table_row_at(&ps_function_table, &sites[number]);
}

/* ---- As a tracer's program reads ---- */

typedef struct reader {
    bool (*read)(uint64_t address, void *to, size_t size);
} reader;

static bool read_here(uint64_t address, void *to, size_t size)
{
    memcpy(to, (const void *)(uintptr_t)address, size);
    return true;
}

static uint64_t word(reader reads, uint64_t address)
{
    uint64_t value = 0;
    return address && reads.read(address, &value, sizeof(value)) ? value : 0;
}

static uint64_t half(reader reads, uint64_t address)
{
    uint32_t value = 0;
    return address && reads.read(address, &value, sizeof(value)) ? value : 0;
}

static uint64_t offset(uint64_t layout, int place)
{
    return layout >> (8 * place) & 255;
}

/* The site of the innermost open call, or 0. */
static uint64_t find_site(reader reads, uint64_t record)
{
    uint64_t stack = word(reads, record), layout = word(reads, record + 8);
    uint64_t epoch = half(reads, word(reads, record + 16));
    if (offset(layout, 7) && word(reads, word(reads, record + 24)) != word(reads, record + 32)) return 0;
    if (!stack || half(reads, stack + offset(layout, 2)) != epoch) return 0;
    uint64_t depth = half(reads, stack + offset(layout, 1));
    if (!depth) return 0;
    uint64_t frames = word(reads, stack + offset(layout, 0));
    uint64_t row = word(reads, frames + (depth - 1) * offset(layout, 3) + offset(layout, 4));
    return word(reads, row + offset(layout, 6));
}

static const reader here = {read_here};

/* The site of the current request, or 0. */
static uint64_t find_request(uint64_t record)
{
    uint64_t stack = word(here, record), told = word(here, record + 56);
    uint64_t round = half(here, stack + offset(told, 7));
    if (!stack || !round || round != (told & 0xffffffff)) return 0;
    uint64_t where = word(here, stack + offset(told, 5));
    return word(here, where) == word(here, stack + offset(told, 6)) ? word(here, stack + offset(told, 4)) : 0;
}

/* ---- What threads tell ---- */

static struct ps_more_function__here last_told(void)
{
    return recorder_last(PS_PROBE_FUNCTION__HERE, NULL).more.here;
}

static size_t times_told(void)
{
    return recorder_count(PS_PROBE_FUNCTION__HERE, NULL);
}

static const ps_stack *named_by(uint64_t record)
{
    return ((const ps_here *)(uintptr_t)record)->stack;
}

static void begin(void)
{
    recorder_forget();
    RAISE(FUNCTION__HERE);
    ps_here_listen(true);
}

static void end(void)
{
    ps_here_set(NULL);
    LOWER(FUNCTION__HERE);
    ps_here_listen(false);
    ps_stack_epoch++;
    ps_table_clear(&ps_function_table);
}

/* Another thread runs on a stack, until it is told to end. */
struct runner {
    pthread_t thread;
    ps_stack *stack;
    uint64_t record;
    bool marks; /* its record named the library when that worked */
    int state;  /* 1: it runs; 2: it is to end */
};

static void *run_on(void *of)
{
    struct runner *runner = of;
    ps_here_set(runner->stack);
    runner->record = last_told().record;
    runner->marks = ps_ours_begin();
    ps_ours_end(runner->marks);
    PS_WRITE_RELEASE(runner->state, 1);
    while (PS_READ_ACQUIRE(runner->state) == 1) check_sleep_ms(1);
    return NULL;
}

static void start(struct runner *runner, ps_stack *stack)
{
    *runner = (struct runner){.stack = stack};
    pthread_create(&runner->thread, NULL, run_on, runner);
    AWAIT(PS_READ_ACQUIRE(runner->state) == 1);
}

static void finish(struct runner *runner)
{
    PS_WRITE_RELEASE(runner->state, 2);
    pthread_join(runner->thread, NULL);
}

/* ---- The tests ---- */

/* First: no thread has a record yet. */
static void counts_threads_for_whose_records_there_is_no_memory(void)
{
    begin();
    ps_stack *stack = ps_stack_new();
    ps_memory_set_limit(ps_memory_used() + 100);
    ps_here_set(stack);
    ps_here_set(stack); /* it is tried once a round */
    CHECK_EQUAL(times_told(), 0);
    CHECK_EQUAL(ps_here_untold, 1);
    CHECK_EQUAL(ps_info_state_of(PS_PROBE_FUNCTION__HERE), PS_STATE_DEGRADED);
    ps_memory_set_limit(0);
    ps_here_tell_again();
    ps_here_set(stack);
    CHECK_EQUAL(times_told(), 1);
    CHECK_EQUAL(ps_here_untold, 1);
    ps_stack_free(stack);
    end();
}

static void leads_to_the_innermost_open_call(void)
{
    begin();
    ps_stack *stack = ps_stack_new();
    ps_call call;
    ps_here_set(stack);
    struct ps_more_function__here told = last_told();
    CHECK_EQUAL(told.thread_id, syscall(SYS_gettid));
    CHECK_EQUAL(told.layout, word(here, told.record + 8));
    CHECK_EQUAL(told.epoch, (uintptr_t)&ps_stack_epoch);
    CHECK_EQUAL(find_site(here, told.record), 0);
    for (int i = 0; i < FUNCTIONS; i++) {
        CHECK(ps_stack_enter(stack, function(i), NULL) != NULL);
        CHECK_EQUAL(find_site(here, told.record), (uintptr_t)&sites[i]);
    }
    for (int i = FUNCTIONS; i-- > 0;) {
        CHECK_EQUAL(find_site(here, told.record), (uintptr_t)&sites[i]);
        CHECK(ps_stack_leave(stack, function(i), 1, PS_OUTCOME_RETURNED, &call));
    }
    CHECK_EQUAL(find_site(here, told.record), 0);
    ps_stack_enter(stack, function(0), NULL);
    ps_stack_epoch++;
    CHECK_EQUAL(find_site(here, told.record), 0);
    ps_stack_free(stack);
    end();
}

/* A program takes 0 for memory that it could not read. */
static void is_never_zero_where_a_program_reads(void)
{
    begin();
    ps_stack *stack = ps_stack_new();
    ps_here_set(stack);
    struct ps_more_function__here told = last_told();
    CHECK(word(here, told.record + 8) != 0);
    CHECK(half(here, told.epoch) != 0);
    CHECK(word(here, told.record + 48) == PS_HERE_NAMES);
    uint64_t open = word(here, word(here, told.record) + offset(told.layout, 1));
    CHECK_EQUAL(open, (uint64_t)ps_stack_epoch << 32); /* no call is open yet */
    ps_stack_enter(stack, function(0), NULL);
    open = word(here, word(here, told.record) + offset(told.layout, 1));
    CHECK_EQUAL(open, (uint64_t)ps_stack_epoch << 32 | 1);
    ps_stack_free(stack);
    end();
}

static void tells_where_things_are(void)
{
    CHECK_EQUAL(offset(PS_HERE_LAYOUT, 0), offsetof(ps_stack, frames));
    CHECK_EQUAL(offset(PS_HERE_LAYOUT, 1), offsetof(ps_stack, depth));
    CHECK_EQUAL(offset(PS_HERE_LAYOUT, 2), offsetof(ps_stack, epoch));
    CHECK_EQUAL(offset(PS_HERE_LAYOUT, 3), sizeof(ps_frame));
    CHECK_EQUAL(offset(PS_HERE_LAYOUT, 4), offsetof(ps_frame, row));
    CHECK_EQUAL(offset(PS_HERE_LAYOUT, 5), offsetof(ps_frame, frame));
    CHECK_EQUAL(offset(PS_HERE_LAYOUT, 6), offsetof(ps_row, site));
    CHECK_EQUAL(offset(PS_HERE_LAYOUT, 7), 0);
    CHECK_EQUAL(offset(PS_HERE_NAMES, 0), offsetof(ps_site, name));
    CHECK_EQUAL(offset(PS_HERE_NAMES, 1), offsetof(ps_site, file));
    CHECK_EQUAL(offset(PS_HERE_NAMES, 2), offsetof(ps_site, line));
    CHECK_EQUAL(offset(PS_HERE_NAMES, 3), offsetof(ps_site, path));
}

static void tells_once_a_round(void)
{
    begin();
    ps_stack *stack = ps_stack_new();
    for (int i = 0; i < 3; i++) ps_here_set(stack);
    CHECK_EQUAL(times_told(), 1);
    uint64_t looks = ps_stack_looks;
    ps_here_tell_again();
    CHECK(ps_stack_looks != looks);
    for (int i = 0; i < 3; i++) ps_here_set(stack);
    CHECK_EQUAL(times_told(), 2);
    CHECK_EQUAL(recorder_at(0).more.here.record, recorder_at(1).more.here.record);
    ps_stack_free(stack);
    end();
}

/* What is not followed while nobody listens must not be named. */
static void names_nothing_while_nobody_listens(void)
{
    begin();
    ps_stack *stack = ps_stack_new();
    ps_here_set(stack);
    uint64_t record = last_told().record;
    CHECK(named_by(record) == stack);
    ps_here_listen(false);
    CHECK(!named_by(record));
    ps_here_listen(true);
    CHECK(!named_by(record));
    ps_here_set(stack);
    CHECK(named_by(record) == stack);
    CHECK_EQUAL(times_told(), 2);
    ps_stack_free(stack);
    end();
}

static void names_no_freed_stack_whoever_frees_it(void)
{
    begin();
    struct runner runner;
    ps_stack *stack = ps_stack_new(), *own = ps_stack_new();
    ps_here_set(own);
    uint64_t mine = last_told().record;
    start(&runner, stack);
    CHECK(runner.record != mine);
    CHECK(runner.marks);
    CHECK(named_by(runner.record) == stack);
    ps_stack_free(stack);
    CHECK(!named_by(runner.record));
    CHECK(named_by(mine) == own);
    finish(&runner);
    ps_stack_free(own);
    CHECK(!named_by(mine));
    end();
}

/* A fiber that is resumed on another thread. */
static void names_a_stack_on_the_last_thread_that_ran_it(void)
{
    begin();
    struct runner runner;
    ps_stack *stack = ps_stack_new(), *other = ps_stack_new();
    start(&runner, stack);
    ps_here_set(stack);
    uint64_t mine = last_told().record;
    CHECK(named_by(mine) == stack);
    CHECK(!named_by(runner.record));
    ps_here_set(other);
    CHECK(named_by(mine) == other);
    ps_stack_free(stack);
    CHECK(named_by(mine) == other);
    finish(&runner);
    ps_stack_free(other);
    end();
}

/* Returns the address of its record. */
static void *tell_and_end(void *stack)
{
    ps_here_set(stack);
    return (void *)(uintptr_t)last_told().record;
}

static void gives_records_back_and_keeps_their_addresses(void)
{
    enum { THREADS = 1000 };
    begin();
    ps_stack *own = ps_stack_new(), *stack = ps_stack_new();
    ps_here_set(own);
    uint64_t mine = last_told().record;
    size_t used = ps_memory_used(), still_named = 0, wrong = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        void *record;
        pthread_create(&thread, NULL, tell_and_end, stack);
        pthread_join(thread, &record);
        wrong += !record || (uintptr_t)record == mine;
        still_named += record && named_by((uintptr_t)record);
        recorder_forget();
    }
    CHECK_EQUAL(wrong, 0);
    CHECK_EQUAL(still_named, 0);
    /* A chunk at most: what a thread gave back is taken again. */
    CHECK(ps_memory_used() - used < 10000);
    CHECK(named_by(mine) == own);
    ps_stack_free(stack);
    ps_stack_free(own);
    end();
}

static void has_a_record_for_each_of_many_threads(void)
{
    enum { THREADS = 300 }; /* more than a chunk has */
    begin();
    static struct runner runners[THREADS];
    for (int i = 0; i < THREADS; i++) start(&runners[i], ps_stack_new());
    for (int i = 0; i < THREADS; i++) {
        CHECK(named_by(runners[i].record) == runners[i].stack);
        CHECK_EQUAL(runners[i].record % 64, 0);
    }
    for (int i = 0; i < THREADS; i++) {
        finish(&runners[i]);
        CHECK(!named_by(runners[i].record));
        ps_stack_free(runners[i].stack);
    }
    end();
}

static void leaves_the_child_its_own_record_only(void)
{
    begin();
    struct runner runner;
    ps_stack *own = ps_stack_new(), *stack = ps_stack_new();
    start(&runner, stack);
    ps_here_set(own);
    uint64_t mine = last_told().record;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int before = check_failures;
        size_t told = times_told();
        CHECK(named_by(mine) == own);
        CHECK(!named_by(runner.record));
        ps_here_set(own);
        CHECK_EQUAL(times_told(), told + 1);
        CHECK_EQUAL(last_told().record, mine);
        CHECK_EQUAL(last_told().thread_id, syscall(SYS_gettid));
        /* The stack of a thread that is not in the child. */
        ps_stack_free(stack);
        CHECK(named_by(mine) == own);
        ps_stack_free(own);
        CHECK(!named_by(mine));
        _exit(check_failures != before);
    }
    int status = -1;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    CHECK(named_by(runner.record) == stack);
    finish(&runner);
    ps_stack_free(own);
    ps_stack_free(stack);
    end();
}

/* ---- While the library works ---- */

static uint64_t site_of_ours(void)
{
    return (uintptr_t)ps_stack_ours.frames->row->site;
}

static void names_the_library_while_it_works(void)
{
    begin();
    ps_stack *stack = ps_stack_new();
    ps_here_set(stack);
    uint64_t record = last_told().record, names = word(here, record + 48);
    ps_stack_enter(stack, function(0), NULL);
    bool ours = ps_ours_begin();
    CHECK(ours);
    CHECK_EQUAL(find_site(here, record), site_of_ours());
    CHECK_STRING((const char *)(uintptr_t)word(here, site_of_ours() + offset(names, 0)), "(probescope)");
    CHECK_STRING((const char *)(uintptr_t)word(here, site_of_ours() + offset(names, 1)), "");
    /* Within that work. */
    bool again = ps_ours_begin();
    ps_ours_end(again);
    CHECK_EQUAL(find_site(here, record), site_of_ours());
    ps_stack_epoch++; /* its call stays open */
    CHECK_EQUAL(find_site(here, record), site_of_ours());
    ps_here_clear();
    CHECK_EQUAL(find_site(here, record), site_of_ours());
    ps_ours_end(ours);
    CHECK(!named_by(record));
    ps_here_set(stack);
    ps_stack_enter(stack, function(1), NULL);
    ours = ps_ours_begin();
    ps_ours_end(ours);
    CHECK_EQUAL(find_site(here, record), (uintptr_t)&sites[1]);
    ps_stack_free(stack);
    end();
}

/* Code of the application runs within the work, and enters a traced function. */
static void names_the_application_where_it_runs_within_the_work(void)
{
    begin();
    ps_stack *stack = ps_stack_new();
    ps_here_set(stack);
    uint64_t record = last_told().record;
    bool ours = ps_ours_begin();
    ps_here_set(stack);
    ps_stack_enter(stack, function(2), NULL);
    CHECK_EQUAL(find_site(here, record), (uintptr_t)&sites[2]);
    ps_ours_end(ours);
    CHECK_EQUAL(find_site(here, record), (uintptr_t)&sites[2]);
    ps_stack_free(stack);
    end();
}

static void *free_it(void *stack)
{
    ps_stack_free(stack);
    return NULL;
}

static void names_no_stack_that_was_freed_during_the_work(void)
{
    begin();
    ps_stack *stack = ps_stack_new();
    ps_here_set(stack);
    uint64_t record = last_told().record;
    bool ours = ps_ours_begin();
    pthread_t thread;
    pthread_create(&thread, NULL, free_it, stack);
    pthread_join(thread, NULL);
    CHECK_EQUAL(find_site(here, record), site_of_ours());
    ps_ours_end(ours);
    CHECK(!named_by(record));
    end();
}

static void names_the_library_only_while_a_tracer_listens(void)
{
    CHECK(!ps_ours_begin());
    begin();
    ps_stack *stack = ps_stack_new();
    ps_here_set(stack);
    uint64_t record = last_told().record;
    bool ours = ps_ours_begin();
    CHECK(ours);
    ps_here_listen(false);
    CHECK(!named_by(record));
    ps_ours_end(ours);
    CHECK(!named_by(record));
    ps_stack_free(stack);
    end();
}

static const ps_site orders = {"GET /orders", "", "", 7}, labels = {"GET /labels", "", "", 8};

static void tells_the_request_of_the_stack_that_runs(void)
{
    begin();
    ps_here_listen_to_requests(true);
    ps_stack *one = ps_stack_new(), *other = ps_stack_new();
    ps_here_set(one);
    uint64_t record = last_told().record;
    CHECK_EQUAL(find_request(record), 0);
    ps_here_request(one, &orders, NULL);
    CHECK_EQUAL(find_request(record), (uintptr_t)&orders);
    ps_here_set(other);
    CHECK_EQUAL(find_request(record), 0);
    ps_here_request(other, &labels, NULL);
    CHECK_EQUAL(find_request(record), (uintptr_t)&labels);
    ps_here_set(one);
    CHECK_EQUAL(find_request(record), (uintptr_t)&orders);
    bool ours = ps_ours_begin();
    CHECK_EQUAL(find_request(record), 0);
    ps_ours_end(ours);
    ps_here_request(one, NULL, NULL);
    CHECK_EQUAL(find_request(record), 0);
    ps_stack_free(one);
    ps_stack_free(other);
    end();
    ps_here_listen_to_requests(false);
}

/* As with the contexts of asyncio's tasks, which share a thread. */
static void does_not_know_the_request_of_other_code_on_the_stack(void)
{
    begin();
    ps_here_listen_to_requests(true);
    ps_stack *stack = ps_stack_new();
    ps_here_set(stack);
    uint64_t record = last_told().record, version = 3;
    ps_here_request(stack, &orders, &version);
    CHECK_EQUAL(find_request(record), (uintptr_t)&orders);
    version++;
    CHECK_EQUAL(find_request(record), 0);
    ps_here_request(stack, &labels, &version);
    CHECK_EQUAL(find_request(record), (uintptr_t)&labels);
    ps_stack_free(stack);
    end();
    ps_here_listen_to_requests(false);
}

/* What was told to an earlier tracer may not be true any more. */
static void tells_requests_anew_to_each_tracer_of_requests(void)
{
    ps_here_listen_to_requests(true);
    CHECK(!ps_here_requests); /* nobody listens to function__here */
    begin();
    ps_stack *stack = ps_stack_new();
    ps_here_set(stack);
    uint64_t record = last_told().record, looks = ps_stack_looks;
    ps_here_listen_to_requests(true);
    CHECK(ps_here_requests);
    CHECK(ps_stack_looks != looks);
    ps_here_request(stack, &orders, NULL);
    CHECK_EQUAL(find_request(record), (uintptr_t)&orders);
    ps_here_listen_to_requests(true);
    CHECK_EQUAL(find_request(record), (uintptr_t)&orders);
    ps_here_listen_to_requests(false);
    CHECK_EQUAL(word(here, record + 56), 0);
    CHECK_EQUAL(find_request(record), 0);
    ps_here_listen_to_requests(true);
    CHECK_EQUAL(find_request(record), 0);
    struct runner runner;
    ps_stack *other = ps_stack_new();
    ps_here_request(other, &labels, NULL);
    start(&runner, other);
    CHECK_EQUAL(find_request(runner.record), (uintptr_t)&labels); /* of a thread that came later */
    finish(&runner);
    ps_stack_free(stack);
    ps_stack_free(other);
    end();
    ps_here_listen_to_requests(false);
    CHECK(!ps_here_requests);
}

static struct {
    uint64_t record, within, nested;
} handled;

static void works_in_handler(int signal)
{
    (void)signal;
    bool ours = ps_ours_begin();
    handled.within = find_site(here, handled.record);
    ps_ours_end(ours);
    handled.nested = find_site(here, handled.record);
}

static void returns_from_a_signal_handler_to_what_was_named(void)
{
    begin();
    ps_stack *stack = ps_stack_new();
    ps_here_set(stack);
    handled.record = last_told().record;
    ps_stack_enter(stack, function(3), NULL);
    signal(SIGUSR1, works_in_handler);
    raise(SIGUSR1);
    CHECK_EQUAL(handled.within, site_of_ours());
    CHECK_EQUAL(handled.nested, (uintptr_t)&sites[3]);
    bool ours = ps_ours_begin();
    raise(SIGUSR1);
    CHECK_EQUAL(handled.within, site_of_ours());
    CHECK_EQUAL(handled.nested, site_of_ours());
    ps_ours_end(ours);
    CHECK_EQUAL(find_site(here, handled.record), (uintptr_t)&sites[3]);
    signal(SIGUSR1, SIG_DFL);
    ps_stack_free(stack);
    end();
}

static struct {
    uint64_t record, before, in_parent, in_child;
} forked;

static void look_before(void)
{
    forked.before = find_site(here, forked.record);
}

static void look_in_parent(void)
{
    forked.in_parent = find_site(here, forked.record);
}

static void look_in_child(void)
{
    forked.in_child = find_site(here, forked.record);
}

static void names_the_library_during_its_handlers_of_a_fork(void)
{
    begin();
    ps_stack *stack = ps_stack_new();
    ps_here_set(stack);
    forked.record = last_told().record;
    ps_stack_enter(stack, function(1), NULL);
    ps_fork_at(PS_FORK_INSTALL, (ps_fork){look_before, look_in_parent, look_in_child});
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int before = check_failures;
        CHECK_EQUAL(forked.in_child, site_of_ours());
        CHECK_EQUAL(find_site(here, forked.record), (uintptr_t)&sites[1]);
        _exit(check_failures != before);
    }
    int status = -1;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    CHECK_EQUAL(forked.before, site_of_ours());
    CHECK_EQUAL(forked.in_parent, site_of_ours());
    CHECK_EQUAL(find_site(here, forked.record), (uintptr_t)&sites[1]);
    ps_fork_at(PS_FORK_INSTALL, (ps_fork){NULL, NULL, NULL});
    ps_stack_free(stack);
    end();
}

/* ---- Between any two instructions ---- */

/*
 * What the program may find, shared with the child that is stepped. 0: no open call. ours: also the
 * library, which may take or give memory.
 */
static struct {
    uint64_t before, after, ours;
    uint64_t record;
} * may;
static pid_t stepped;

static bool read_there(uint64_t address, void *to, size_t size)
{
    struct iovec local = {to, size}, remote = {(void *)(uintptr_t)address, size};
    return process_vm_readv(stepped, &local, 1, &remote, 1, 0) == (ssize_t)size;
}

enum { OURS = FUNCTIONS };

static uint64_t site_of(int number)
{
    if (number == OURS) return site_of_ours();
    return number < 0 ? 0 : (uintptr_t)&sites[number];
}

/* The next step changes the innermost call from `before` to `after`; -1: none; OURS: the library. */
static void expect(int before, int after)
{
    PS_WRITE(may->before, site_of(before));
    PS_WRITE(may->after, site_of(after));
    PS_SIGNAL_FENCE();
}

/* On a stack with `open` calls. */
static void enter_and_leave(ps_stack *stack, int open, int depth)
{
    ps_call call;
    int top = (open - 1) % FUNCTIONS;
    for (int i = open; i < depth; i++) {
        expect(top, i % FUNCTIONS);
        top = i % FUNCTIONS;
        ps_stack_enter(stack, function(top), NULL);
        expect(top, top);
    }
    for (int i = depth; i-- > open;) {
        int below = (i - 1) % FUNCTIONS;
        expect(top, below);
        ps_stack_leave(stack, function(top), 1, PS_OUTCOME_RETURNED, &call);
        top = below;
        expect(top, top);
    }
}

/* As CPython calls, with the exit of a call below another greenlet's. */
static void enter_and_leave_frames(ps_stack *stack)
{
    ps_call call;
    for (int i = 0; i < FUNCTIONS; i++) {
        expect(i - 1, i);
        ps_stack_enter_frame(stack, function(i), PS_ADDRESS(100 + i), PS_ADDRESS(1000 + i));
    }
    expect(3, 3);
    ps_stack_leave_frame(stack, PS_ADDRESS(101), 1, PS_OUTCOME_RETURNED, &call);
    expect(3, 2);
    ps_stack_leave_frame(stack, PS_ADDRESS(103), 1, PS_OUTCOME_RETURNED, &call);
    expect(2, 2);
    ps_stack_leave_frame(stack, PS_ADDRESS(100), 1, PS_OUTCOME_RETURNED, &call);
    expect(2, -1);
    ps_stack_leave_frame(stack, PS_ADDRESS(102), 1, PS_OUTCOME_RETURNED, &call);
    expect(-1, -1);
}

/* Runs in the child. Each step costs two switches of processes, so most calls are entered before. */
static void run_stepped(void)
{
    enum { OPEN = 31, FULL = 32 };
    ps_stack *stack = ps_stack_new(), *other = ps_stack_new();
    for (int i = 0; i < FUNCTIONS; i++) function(i);
    ps_here_set(stack);
    may->record = last_told().record;
    for (int i = 0; i < OPEN; i++) ps_stack_enter(stack, function(i % FUNCTIONS), NULL);
    expect((OPEN - 1) % FUNCTIONS, (OPEN - 1) % FUNCTIONS);
    mallopt(M_PERTURB, 0x5a); /* what is freed is overwritten */
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
    PS_WRITE(may->ours, site_of_ours());
    enter_and_leave(stack, OPEN, FULL + 1); /* it grows */
    PS_WRITE(may->ours, 0);
    expect((OPEN - 1) % FUNCTIONS, -1);
    ps_stack_epoch++;
    expect(-1, -1);
    enter_and_leave_frames(stack);
    expect(-1, 1);
    ps_stack_enter(stack, function(1), NULL);
    expect(1, -1);
    ps_stack_epoch++; /* the calls are forgotten, and the next one begins anew */
    expect(-1, 2);
    ps_stack_enter(stack, function(2), NULL);
    expect(2, -1);
    ps_here_set(other);
    expect(-1, 3);
    PS_WRITE(may->ours, site_of_ours()); /* its first frames */
    ps_stack_enter(other, function(3), NULL);
    PS_WRITE(may->ours, 0);
    expect(3, 2);
    ps_here_set(stack);
    expect(2, OURS);
    bool ours = ps_ours_begin();
    expect(OURS, 2);
    ps_ours_end(ours);
    expect(2, -1);
    PS_WRITE(may->ours, site_of_ours());
    ps_stack_free(stack);
    ps_stack_free(other);
    _exit(0);
}

/* Runs a function in a child, step by step. least: of all steps; in_ours: of those in the library. */
static void step_through(void (*run)(void), uint64_t least, uint64_t in_ours)
{
    const reader there = {read_there};
    may = mmap(NULL, sizeof(*may), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fflush(stdout);
    stepped = fork();
    if (stepped == 0) run();
    int status = 0;
    uint64_t steps = 0, calls = 0, wrong = 0, in_library = 0;
    CHECK_EQUAL(waitpid(stepped, &status, 0), stepped);
    while (WIFSTOPPED(status)) {
        uint64_t site = find_site(there, may->record);
        uint64_t before = PS_READ(may->before), after = PS_READ(may->after);
        steps++;
        calls += site != 0;
        in_library += site == site_of_ours();
        if (site != before && site != after && (!site || site != PS_READ(may->ours)) && wrong++ < 5)
            fprintf(stderr, "step %" PRIu64 ": %#" PRIx64 ", not %#" PRIx64 " or %#" PRIx64 "\n", steps, site,
                    before, after);
        if (ptrace(PTRACE_SINGLESTEP, stepped, NULL, NULL) != 0 || waitpid(stepped, &status, 0) != stepped)
            break;
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK_EQUAL(wrong, 0);
    CHECK(steps > least);
    CHECK(calls > steps / 4);
    CHECK(in_library > in_ours);
    munmap(may, sizeof(*may));
}

static void names_a_right_call_between_any_two_instructions(void)
{
    begin();
    step_through(run_stepped, 500, 100); /* ours: mostly in calloc() and free() */
    end();
}

/* ---- Threads that share native ones ---- */

/* Runs in the child. The VM stores in each of the two words on which native thread a thread runs. */
static void run_shared(void)
{
    enum { NONE, HERE, ELSEWHERE };
    static uint64_t runs[2];
    ps_here_share_threads(true);
    ps_stack *stacks[] = {ps_stack_new(), ps_stack_new()};
    for (int i = 0; i < 2; i++) ps_stack_enter(stacks[i], function(i), NULL);
    PS_WRITE(runs[0], HERE);
    ps_here_set_shared(stacks[0], &runs[0]);
    may->record = last_told().record;
    expect(0, 0);
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
    for (int i = 0; i < 3; i++) {
        expect(0, -1);
        PS_WRITE(runs[0], NONE); /* it waits */
        PS_WRITE(runs[1], HERE); /* another thread goes on here */
        expect(-1, 1);
        ps_here_set_shared(stacks[1], &runs[1]);
        expect(1, -1);
        PS_WRITE(runs[1], NONE);
        PS_WRITE(runs[1], ELSEWHERE);
        expect(-1, 0);
        PS_WRITE(runs[0], HERE);
        ps_here_set_shared(stacks[0], &runs[0]);
        expect(0, 0);
        ps_here_set_shared(stacks[0], &runs[0]); /* a traced call looks once more */
        expect(0, OURS);
        bool ours = ps_ours_begin();
        expect(OURS, -1);
        PS_WRITE(runs[0], NONE);
        expect(-1, OURS);
        PS_WRITE(runs[0], HERE);
        expect(OURS, 0);
        ps_ours_end(ours);
    }
    expect(0, -1);
    ps_here_set_shared(NULL, &runs[0]); /* it ends */
    PS_WRITE(runs[0], NONE);
    PS_WRITE(runs[0], HERE); /* the word is freed, and used again */
    expect(-1, OURS);
    ps_stack_free(stacks[0]);
    ps_stack_free(stacks[1]);
    _exit(check_failures != 0);
}

/* First: no thread has a record yet. */
static void names_a_stack_only_where_its_thread_runs(void)
{
    begin();
    step_through(run_shared, 200, 10);
    end();
}

/* Last: it cannot be undone. */
static void names_nothing_where_it_is_not_known_which_thread_runs(void)
{
    struct runner runner;
    ps_here_share_threads(false);
    ps_info_state(PS_PROBE_FUNCTION__HERE, PS_STATE_ON, "");
    begin();
    ps_stack *stack = ps_stack_new();
    start(&runner, stack);
    CHECK_EQUAL(word(here, runner.record), 0);
    CHECK(!runner.marks);
    CHECK_EQUAL(ps_info_state_of(PS_PROBE_FUNCTION__HERE), PS_STATE_DEGRADED);
    finish(&runner);
    ps_stack_free(stack);
    end();
}

int main(void)
{
    ps_info_start("test", "1", "0");
    ps_fork_init();
    RUN_FORKING(names_a_stack_only_where_its_thread_runs);
    RUN(counts_threads_for_whose_records_there_is_no_memory);
    RUN(is_never_zero_where_a_program_reads);
    RUN(tells_where_things_are);
    RUN(leads_to_the_innermost_open_call);
    RUN(tells_once_a_round);
    RUN(tells_the_request_of_the_stack_that_runs);
    RUN(does_not_know_the_request_of_other_code_on_the_stack);
    RUN(tells_requests_anew_to_each_tracer_of_requests);
    RUN(names_nothing_while_nobody_listens);
    RUN(names_no_freed_stack_whoever_frees_it);
    RUN(names_a_stack_on_the_last_thread_that_ran_it);
    RUN(gives_records_back_and_keeps_their_addresses);
    RUN(has_a_record_for_each_of_many_threads);
    RUN_FORKING_BESIDE_THREADS(leaves_the_child_its_own_record_only);
    RUN(names_the_library_while_it_works);
    RUN(names_the_application_where_it_runs_within_the_work);
    RUN(names_no_stack_that_was_freed_during_the_work);
    RUN(names_the_library_only_while_a_tracer_listens);
    RUN(returns_from_a_signal_handler_to_what_was_named);
    RUN_FORKING(names_the_library_during_its_handlers_of_a_fork);
    RUN_FORKING(names_a_right_call_between_any_two_instructions);
    RUN(names_nothing_where_it_is_not_known_which_thread_runs);
    return check_report("here");
}

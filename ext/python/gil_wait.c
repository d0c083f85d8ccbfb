#include "gil_wait.h"

#if PS_HAVE_GIL

#include <link.h>
#include <pthread.h>
#include <sys/prctl.h>

#include "agent/watcher.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "calls/here.h"
#include "eval_breaker.h"
#include "hooks.h"

/*
 * The search for the GIL's state ends after so many bytes. The state is in the first 100 KB of the
 * runtime's.
 */
#define RUNTIME_BYTES (1024 * 1024)
/* When a pending call asks it to, the main thread releases the GIL for so long at most. */
#define YIELD_NS 5000000u

/* The runtime's state, of which only the name is public; NULL if it is absent. */
extern char _PyRuntime[] __attribute__((weak));

/*
 * struct _gil_runtime_state (Include/internal/pycore_gil.h). Its beginning is the same from 3.11 to
 * 3.15, the rest from 3.11 to 3.14 (PS_GIL_SIZE_IS_KNOWN). The size tells which futexes are the
 * GIL's.
 */
struct gil {
    unsigned long interval; /* us */
    uintptr_t last_holder;
    int locked;
    unsigned long switch_number;
    pthread_cond_t is_free;
    pthread_mutex_t mutex;
    pthread_cond_t switched;
    pthread_mutex_t switch_mutex;
};

enum kind { NOT_WAITING, UPKEEP, SAMPLE, SWITCH };
/* REST: the default of 5 ms, or the application's interval if that is shorter. */
enum phase { NONE, SHORT, LONGER, REST, PHASES };

static const uint64_t phase_ns[PHASES] = {[REST] = 30000000, [SHORT] = 1000000, [LONGER] = 10000000};
static const enum phase phase_after[PHASES] = {[REST] = SHORT, [SHORT] = LONGER, [LONGER] = REST};
/*
 * Samples come 99 times a second. With LONGER first, the worker took 2 % of the CPU time among four
 * busy threads, instead of 1 %.
 */
static const enum phase first_phase[] = {[UPKEEP] = REST, [SAMPLE] = REST, [SWITCH] = SHORT};

/*
 * Intervals of ours, in us. Each row stands for one value of the application's, for ever. Values of
 * the application's up to LONG_US are left alone. Each of ours is the same again after a conversion
 * to seconds in a float and back.
 */
enum { ROWS = 4, LONG_US = 1000 };
static const unsigned long ours[ROWS][PHASES] = {
    {[SHORT] = 7, [LONGER] = 503, [REST] = 5003},
    {[SHORT] = 11, [LONGER] = 509, [REST] = 5009},
    {[SHORT] = 13, [LONGER] = 521, [REST] = 5011},
    {[SHORT] = 17, [LONGER] = 523, [REST] = 5023},
};

static struct {
    /* Immutable once it is found. */
    struct gil *gil;
    /* Written by the worker. */
    unsigned long applications[ROWS]; /* what a row of ours stands for; 0: nothing yet */
    /* Shared. */
    int kind;          /* enum kind: of the requests that the worker waits with */
    uint64_t since_ns; /* when `kind` was set */
    int asked;         /* the main thread has a pending call to make */
    /* The watcher's own. */
    uint64_t seen_ns, phase_since_ns;
    enum phase phase;
} wait;

/* The segment of the program or library that contains an address. */
struct segment {
    uintptr_t address, end;
};

static int find_segment(struct dl_phdr_info *object, size_t size, void *data)
{
    struct segment *wanted = data;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        uintptr_t start = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr,
                  end = start + object->dlpi_phdr[i].p_memsz;
        if (object->dlpi_phdr[i].p_type != PT_LOAD || wanted->address < start || wanted->address >= end)
            continue;
        wanted->end = end;
        return 1;
    }
    return 0;
}

/* sys.getswitchinterval() in us, or 0. */
static unsigned long get_interval(void)
{
    PyObject *function = PySys_GetObject("getswitchinterval"); /* borrowed */
    PyObject *result = function ? PyObject_CallObject(function, NULL) : NULL;
    double seconds = result ? PyFloat_AsDouble(result) : 0;
    Py_XDECREF(result);
    if (PyErr_Occurred()) PyErr_Clear();
    return seconds > 0 && seconds < 1e6 ? (unsigned long)(seconds * 1e6 + 0.5) : 0;
}

static bool is_gil(const struct gil *at, unsigned long interval)
{
    return at->interval == interval && at->last_holder == (uintptr_t)ps_thread_state() && at->locked == 1;
}

/*
 * The place of the GIL's state differs between releases. Its contents are known now: the interval,
 * this thread, and that the GIL is taken.
 */
static struct gil *find_gil(unsigned long interval)
{
    struct segment segment = {.address = (uintptr_t)_PyRuntime};
    if (!interval || !segment.address || !dl_iterate_phdr(find_segment, &segment)) return NULL;
    if (segment.end > segment.address + RUNTIME_BYTES) segment.end = segment.address + RUNTIME_BYTES;
    for (uintptr_t at = segment.address; at + sizeof(struct gil) <= segment.end; at += sizeof(unsigned long))
        if (is_gil((struct gil *)at, interval)) return (struct gil *)at;
    return NULL;
}

void ps_gil_wait_init(void)
{
    if (wait.gil) return;
    wait.gil = find_gil(get_interval());
    if (wait.gil && PS_GIL_SIZE_IS_KNOWN) ps_here_lock_is(wait.gil, sizeof(*wait.gil));
    ps_pending_check();
}

/* The application's value, when this interval is set. */
static unsigned long applications(unsigned long interval)
{
    for (int i = 0; i < ROWS; i++)
        for (int phase = SHORT; wait.applications[i] && phase < PHASES; phase++)
            if (interval == ours[i][phase]) return wait.applications[i];
    return interval;
}

/* The interval that stands for the application's value in this phase; without a row, the value. */
static unsigned long of_phase(unsigned long interval, enum phase phase)
{
    for (int i = 0; phase != NONE && i < ROWS; i++)
        if (wait.applications[i] == interval) return ours[i][phase] < interval ? ours[i][phase] : interval;
    return interval;
}

/* Any thread. sys.setswitchinterval() may write at any time, on a thread that has the GIL. */
static void set_phase(enum phase phase)
{
    unsigned long seen = PS_READ(wait.gil->interval), wanted;
    do wanted = of_phase(applications(seen), phase);
    while (wanted != seen && !PS_REPLACE(wait.gil->interval, seen, wanted));
}

static void reserve_row(void)
{
    unsigned long interval = applications(PS_READ(wait.gil->interval));
    if (interval <= LONG_US) return;
    for (int i = 0; i < ROWS; i++) {
        if (wait.applications[i] == interval) return;
        if (wait.applications[i]) continue;
        PS_WRITE_RELEASE(wait.applications[i], interval);
        return;
    }
}

/*
 * A pending call: runs on the main thread, with the GIL. It helps against a call that releases the
 * GIL more often than every 57 us, which wakes the worker before its shortest interval has passed.
 * The worker is then awake only some of the times before the GIL is taken again; on a busy machine,
 * few.
 */
static int yield(void *unused)
{
    PS_WRITE(wait.asked, 0);
    if (!PS_READ(wait.kind)) return 0;
    PyThreadState *state = PyEval_SaveThread();
    uint64_t end = ps_monotonic_ns() + YIELD_NS;
    while (PS_READ_ACQUIRE(wait.kind) && ps_monotonic_ns() < end)
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    PyEval_RestoreThread(state);
    return 0;
}

static void ask_main_thread(void)
{
    if (ps_os_fork_under_way()) return;
    if (!__atomic_exchange_n(&wait.asked, 1, __ATOMIC_SEQ_CST) && !ps_pending_add(yield, NULL))
        PS_WRITE(wait.asked, 0);
}

static void become(enum kind kind)
{
    PS_WRITE(wait.since_ns, ps_monotonic_ns());
    __atomic_store_n(&wait.kind, kind, __ATOMIC_SEQ_CST);
}

static enum kind kind_of(unsigned requests)
{
    return requests & PS_REQUEST_SWITCH ? SWITCH : requests & PS_REQUEST_SAMPLE ? SAMPLE : UPKEEP;
}

/*
 * The GIL goes to the thread whose last wait began first, and each interval that passes begins a
 * new wait. An interval ends late by the timer slack, 50 us by default. With more slack than the
 * other threads have, the worker is in front of them as a rule. With less (1 us) it was behind
 * them: among four threads in calls of C it waited for up to 3.7 s instead of 0.2 s, on a busy
 * machine.
 */
void ps_gil_wait_prepare(void)
{
    prctl(PR_SET_TIMERSLACK, 100000, 0, 0, 0);
}

void ps_gil_wait_begin(unsigned requests)
{
    enum kind kind = kind_of(requests);
    become(kind);
    if (!wait.gil) return;
    reserve_row();
    set_phase(first_phase[kind]);
}

void ps_gil_wait_end(void)
{
    __atomic_store_n(&wait.kind, NOT_WAITING, __ATOMIC_SEQ_CST);
    if (wait.gil) set_phase(NONE);
}

void ps_gil_wait_hurry(unsigned requests)
{
    int kind = PS_READ(wait.kind), wanted = kind_of(requests);
    if (!kind || kind >= wanted) return;
    PS_WRITE(wait.since_ns, ps_monotonic_ns());
    __atomic_compare_exchange_n(&wait.kind, &kind, wanted, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* The phase at this moment; *end: when the next phase begins. */
static enum phase phase_at(uint64_t now, int kind, uint64_t *end)
{
    uint64_t since = PS_READ(wait.since_ns);
    if (since != wait.seen_ns) {
        wait.seen_ns = wait.phase_since_ns = since;
        wait.phase = first_phase[kind];
    }
    if (now > wait.phase_since_ns && now - wait.phase_since_ns >= phase_ns[wait.phase]) {
        if (wait.phase == SHORT) ask_main_thread();
        wait.phase = phase_after[wait.phase];
        wait.phase_since_ns = now;
    }
    *end = wait.phase_since_ns + phase_ns[wait.phase];
    return wait.phase;
}

uint64_t ps_gil_wait_step(uint64_t now)
{
    int kind = PS_READ_ACQUIRE(wait.kind);
    uint64_t next = 0;
    enum phase phase = kind ? phase_at(now, kind, &next) : NONE;
    if (!wait.gil) return next;
    set_phase(phase);
    /*
     * The worker may have got the GIL meanwhile, and restored the interval before this one was set.
     */
    if (!__atomic_load_n(&wait.kind, __ATOMIC_SEQ_CST)) set_phase(NONE);
    return next;
}

uintptr_t ps_gil_last_holder(void)
{
    return wait.gil ? PS_READ_ACQUIRE(wait.gil->last_holder) : 0;
}

bool ps_gil_is_held(void)
{
    return wait.gil && PS_READ_ACQUIRE(wait.gil->locked);
}

void ps_gil_wait_abandon(void)
{
    ps_gil_wait_end();
    PS_WRITE(wait.asked, 0);
}

#endif

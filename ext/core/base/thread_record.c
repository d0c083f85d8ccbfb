#include "base/thread_record.h"

#include <pthread.h>
#include <stddef.h>

_Static_assert(offsetof(ps_here, runs) == 64, "programs read one cache line");

bool ps_here_on;

static struct {
    bool has_key;
    /*
     * Not a thread-local variable: a signal handler reads it, and the first access to one of those
     * may allocate.
     */
    pthread_key_t key;
    struct ps_stack *ours;
} records;

bool ps_record_prepare(struct ps_stack *ours, void (*at_end)(void *record))
{
    if (records.has_key) return true;
    records.ours = ours;
    if (pthread_key_create(&records.key, at_end) != 0) return false;
    PS_WRITE_RELEASE(records.has_key, true);
    return true;
}

ps_here *ps_record(void)
{
    return PS_READ_ACQUIRE(records.has_key) ? pthread_getspecific(records.key) : NULL;
}

bool ps_record_keep(ps_here *here)
{
    return pthread_setspecific(records.key, here) == 0;
}

void ps_record_set(ps_here *here, struct ps_stack *stack)
{
    PS_WRITE(here->runs, stack);
    PS_SIGNAL_FENCE();
    PS_WRITE(here->stack, stack);
}

void ps_record_of(ps_here *here, const uint64_t *where)
{
    uint64_t native = PS_READ(*where);
    if (here->native_where == where && here->native == native) return;
    ps_record_set(here, NULL);
    PS_SIGNAL_FENCE();
    PS_WRITE(here->native_where, where);
    PS_WRITE(here->native, native);
    PS_SIGNAL_FENCE();
}

/*
 * Sequentially consistent, like the end of ps_ours_ends(): either that sees that `runs` has changed,
 * or this sees the stack that it has stored.
 */
void ps_record_forget(ps_here *here, const struct ps_stack *stack)
{
    if (__atomic_load_n(&here->runs, __ATOMIC_SEQ_CST) == stack)
        __atomic_store_n(&here->runs, NULL, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&here->stack, __ATOMIC_SEQ_CST) == stack)
        __atomic_store_n(&here->stack, NULL, __ATOMIC_SEQ_CST);
}

void ps_record_clear(ps_here *here, bool ours_too)
{
    __atomic_store_n(&here->runs, NULL, __ATOMIC_SEQ_CST);
    const struct ps_stack *stack = __atomic_load_n(&here->stack, __ATOMIC_SEQ_CST);
    if (ours_too || stack != records.ours) __atomic_store_n(&here->stack, NULL, __ATOMIC_SEQ_CST);
}

bool ps_ours_begins(void)
{
    ps_here *here = ps_record();
    if (!here || here->flags & PS_HERE_UNKNOWN || PS_READ(here->stack) == records.ours) return false;
    PS_WRITE(here->stack, records.ours);
    return true;
}

void ps_ours_ends(void)
{
    ps_here *here = ps_record();
    if (!here || PS_READ(here->stack) != records.ours) return;
    struct ps_stack *stack;
    do {
        stack = PS_READ(here->runs);
        __atomic_store_n(&here->stack, stack, __ATOMIC_SEQ_CST);
    } while (__atomic_load_n(&here->runs, __ATOMIC_SEQ_CST) != stack);
}

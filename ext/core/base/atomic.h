/*
 * Relaxed reads and writes of words that one thread writes and another reads, and names for the
 * compiler builtins in use.
 */
#ifndef PS_ATOMIC_H
#define PS_ATOMIC_H

#define PS_READ(place)             __atomic_load_n(&(place), __ATOMIC_RELAXED)
#define PS_WRITE(place, value)     __atomic_store_n(&(place), (value), __ATOMIC_RELAXED)
#define PS_READ_ACQUIRE(place)     __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#define PS_WRITE_RELEASE(place, v) __atomic_store_n(&(place), (v), __ATOMIC_RELEASE)
#define PS_EXCHANGE(place, value)  __atomic_exchange_n(&(place), (value), __ATOMIC_ACQ_REL)
/*
 * Returns false when the place held another value than `before`: then `before` becomes that value.
 */
#define PS_REPLACE(place, before, value)                                                                     \
    __atomic_compare_exchange_n(&(place), &(before), (value), 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)
#define PS_FETCH_OR(place, value)  __atomic_fetch_or(&(place), (value), __ATOMIC_ACQ_REL)
#define PS_FETCH_ADD(place, value) __atomic_fetch_add(&(place), (value), __ATOMIC_RELAXED)

/*
 * For a counter with a single writer: a plain addition. A reader on another thread never sees a
 * torn value.
 */
#define PS_ADD(place, value) PS_WRITE(place, PS_READ(place) + (value))

/*
 * For the counter of a row that shows that there is something to fire. It is added to last: a
 * reader that sees its new value also sees those of the other counters.
 */
#define PS_ADD_LAST(place, value) PS_WRITE_RELEASE(place, PS_READ(place) + (value))

/*
 * Keeps the compiler from moving reads and writes across it. No instruction: it orders nothing for
 * another CPU. For memory that is read on the writing thread itself, between two instructions: by a
 * signal handler, or by a tracer's program.
 */
#define PS_SIGNAL_FENCE() __atomic_signal_fence(__ATOMIC_SEQ_CST)

#define PS_LIKELY(x)   __builtin_expect(!!(x), 1)
#define PS_UNLIKELY(x) __builtin_expect(!!(x), 0)
/*
 * For a function that is called rarely. Its buffers and registers would otherwise slow every run of
 * the function that calls it.
 */
#define PS_APART __attribute__((noinline))

#endif

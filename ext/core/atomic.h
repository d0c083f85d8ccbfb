/*
 * Relaxed reads and writes of words that one thread writes and another reads; names for the
 * builtins in use.
 */
#ifndef PS_ATOMIC_H
#define PS_ATOMIC_H

#define PS_READ(place)             __atomic_load_n(&(place), __ATOMIC_RELAXED)
#define PS_WRITE(place, value)     __atomic_store_n(&(place), (value), __ATOMIC_RELAXED)
#define PS_READ_ACQUIRE(place)     __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#define PS_WRITE_RELEASE(place, v) __atomic_store_n(&(place), (v), __ATOMIC_RELEASE)
#define PS_EXCHANGE(place, value)  __atomic_exchange_n(&(place), (value), __ATOMIC_ACQ_REL)
/* False, and `before` is what is there, where that was another value. */
#define PS_REPLACE(place, before, value)                                                                     \
    __atomic_compare_exchange_n(&(place), &(before), (value), 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)
#define PS_FETCH_OR(place, value)  __atomic_fetch_or(&(place), (value), __ATOMIC_ACQ_REL)
#define PS_FETCH_ADD(place, value) __atomic_fetch_add(&(place), (value), __ATOMIC_RELAXED)

/*
 * For a counter with a single writer: a plain addition that a reader on another thread never sees
 * torn.
 */
#define PS_ADD(place, value) PS_WRITE(place, PS_READ(place) + (value))

/*
 * The counter of a row that says there is something to fire: added to last, so that the reader who
 * sees it sees the others.
 */
#define PS_ADD_LAST(place, value) PS_WRITE_RELEASE(place, PS_READ(place) + (value))

#define PS_LIKELY(x)   __builtin_expect(!!(x), 1)
#define PS_UNLIKELY(x) __builtin_expect(!!(x), 0)
/*
 * A function whose buffers and registers would cost each run of the function that calls it now and
 * then.
 */
#define PS_APART __attribute__((noinline))

#endif

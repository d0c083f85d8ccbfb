/*
 * Keeps the worker's wait for the GIL short.
 *
 * A thread that waits for the GIL requests it when the switch interval (5 ms) has passed and the
 * GIL was not released meanwhile. A main thread that releases the GIL for short calls more often
 * than that wakes the waiter each time and takes the GIL back first. The main thread never sees a
 * request, and the waiter starves. So while the worker waits, the switch interval is 7 us (57 us
 * with a thread's timer slack). Then the interpreter itself makes the request, for a thread that
 * does wait. Nothing here makes a request: a request for which no thread waits stops the thread
 * that answers it for ever.
 *
 *   worker    begin() -> the interpreter's wait -> end(): the interval is the application's again
 *   watcher   step(), whenever it is awake: the interval is 7 us for 1 ms, 503 us for 10 ms, at
 *             most 5 ms for 30 ms, and so on: a thread may keep the GIL for long, and each interval
 *             that passes wakes every waiter. After the 1 ms a pending call also asks the main
 *             thread to release the GIL
 *
 * The application wins: step() and end() replace the application's value and ours, and no value
 * that it sets meanwhile. During a wait sys.getswitchinterval() returns one of ours. If the
 * application later sets that value, step() restores the value for which it stood.
 */
#ifndef PS_PYTHON_GIL_WAIT_H
#define PS_PYTHON_GIL_WAIT_H

#include "compat.h"

#if PS_HAVE_GIL
/*
 * With the GIL, on a thread of the main interpreter: finds the interval in memory. If it is not
 * found, only the pending calls remain.
 */
void ps_gil_wait_init(void);
/* On the worker, at its start. */
void ps_gil_wait_prepare(void);
/*
 * On the worker: right before it asks for the GIL, and when it has the GIL. requests: PS_REQUEST_*;
 * switching hooks is urgent.
 */
void ps_gil_wait_begin(unsigned requests);
void ps_gil_wait_end(void);
/* On the watcher: these requests are added, and the worker may be waiting already. */
void ps_gil_wait_hurry(unsigned requests);
/* The function for ps_vm.step. */
uint64_t ps_gil_wait_step(uint64_t now);
/*
 * Any thread: the address of the state of the thread that has the GIL, or had it last; 0 if the GIL
 * was not found in memory.
 */
uintptr_t ps_gil_last_holder(void);
/* Any thread: does that thread have the GIL now? */
bool ps_gil_is_held(void);
/*
 * Called when the waiting thread is gone: in the child after a fork, and at the end of the
 * interpreter.
 */
void ps_gil_wait_abandon(void);
#else
static inline void ps_gil_wait_init(void) {}
static inline void ps_gil_wait_prepare(void) {}
static inline void ps_gil_wait_begin(unsigned requests) {}
static inline void ps_gil_wait_end(void) {}
static inline void ps_gil_wait_hurry(unsigned requests) {}
static inline uint64_t ps_gil_wait_step(uint64_t now)
{
    return 0;
}
static inline void ps_gil_wait_abandon(void) {}
#endif

#endif

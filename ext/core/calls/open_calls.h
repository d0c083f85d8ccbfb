/*
 * The open calls of latency probes on one stack, for a VM that does not tell which of its frames an
 * entry and an exit belong to.
 *
 * As in shadow_stack.h, entries and exits do not always come in pairs. An exit without a known
 * entry is ignored. An exit that is not on top drops all calls above its own. A stack that
 * overflowed is unwound without exit events. So where hundreds of calls are open, the VM is asked
 * whether it has as many frames.
 */
#ifndef PS_OPEN_CALLS_H
#define PS_OPEN_CALLS_H

#include <stdbool.h>
#include <stdint.h>

enum { PS_OPEN_CALLS_MAX = 1 << 16, PS_OPEN_CALLS_SUSPECT = 512 };

typedef struct ps_open_call {
    uint64_t key; /* of the method that was entered; hooking it again gives it a new key */
    uint64_t start_ns;
    uint32_t raises; /* `raises` of the stack at the entry */
    bool unwinding;  /* it was called, from an ensure, while an exception propagated */
} ps_open_call;

typedef struct ps_open_calls {
    ps_open_call *list;
    uint32_t depth, capacity;
    uint32_t untimed; /* open calls above these that there was no memory for */
    uint32_t raises;  /* exceptions raised on the stack */
    bool unwinding;   /* an exception propagates, as far as the VM tells */
    bool deepening;   /* the last event was an entry */
} ps_open_calls;

/* Returns NULL when there is no memory. */
ps_open_calls *ps_open_calls_new(void);
/* NULL is allowed. */
void ps_open_calls_free(ps_open_calls *calls);

/*
 * Opens a call. The caller sets its start as the last thing it does. Returns NULL when there is no
 * memory to time the call.
 */
ps_open_call *ps_open_calls_enter(ps_open_calls *calls, uint64_t key);
/*
 * Closes the innermost open call of that key, and copies it to *left. Returns false, and does
 * nothing, when no such call is open. real_depth returns the VM's number of frames.
 */
bool ps_open_calls_leave(ps_open_calls *calls, uint64_t key, uint32_t (*real_depth)(void),
                         ps_open_call *left);

#endif

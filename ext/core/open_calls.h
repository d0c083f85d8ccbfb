/*
 * The calls of latency probes that are open on one stack, where the VM does not tell which of its
 * frames an entry and an exit belong to.
 *
 * Entries and exits do not always come in pairs, as in stack.h: exits of calls that nobody saw
 * entered are ignored; an exit that is not on top drops all calls above its own; and where hundreds
 * are open the VM is asked whether it has as many frames, because a stack that was unwound for want
 * of room tells of no exit.
 */
#ifndef PS_OPEN_CALLS_H
#define PS_OPEN_CALLS_H

#include <stdbool.h>
#include <stdint.h>

enum { PS_OPEN_CALLS_MAX = 1 << 16, PS_OPEN_CALLS_SUSPECT = 512 };

typedef struct ps_open_call {
    uint64_t key; /* of what was entered: another one each time that it is hooked */
    uint64_t start_ns;
    uint32_t raises; /* of the stack, at the entry */
    bool unwinding;  /* it was called while an exception was on its way: from an ensure */
} ps_open_call;

typedef struct ps_open_calls {
    ps_open_call *list;
    uint32_t depth, capacity;
    uint32_t untimed; /* above these, that there was no memory for */
    uint32_t raises;  /* exceptions raised on it */
    bool unwinding;   /* an exception is on its way, as far as the VM tells */
    bool deepening;   /* the last event was an entry */
} ps_open_calls;

/* NULL when there is no memory. */
ps_open_calls *ps_open_calls_new(void);
/* NULL is fine. */
void ps_open_calls_free(ps_open_calls *calls);

/*
 * Opens a call; the caller sets its start as the last thing it does. NULL when there is no memory
 * to time it.
 */
ps_open_call *ps_open_calls_enter(ps_open_calls *calls, uint64_t key);
/*
 * Closes the innermost open call of that key, and copies it. False, and nothing done, when none is
 * open. real_depth: the VM's frames.
 */
bool ps_open_calls_leave(ps_open_calls *calls, uint64_t key, uint32_t (*real_depth)(void),
                         ps_open_call *left);

#endif

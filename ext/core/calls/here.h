/*
 * Which shadow stack each native thread runs on, where a tracer's program finds it. The program
 * learns the address of a thread's record from function__here. At any later event of that thread,
 * such as a system call, it follows the record to the innermost open call:
 *
 *   record -> stack -> frames[depth - 1] -> row -> site -> name, file, line
 *
 * if `epoch` of the stack is the current one. It reads on the thread itself, between any two
 * instructions, so what is reachable is whole at each moment. The offsets of these fields are in
 * the record.
 *
 * A record is neither freed nor moved while the process lives, because a program may read it late.
 * At the end of a thread it is given back, and another thread takes it. It names no freed stack,
 * whoever frees the stack and whether or not the VM tells of a thread's end: each stack knows the
 * record that names it (ps_stack.here), and ps_stack_free() clears that.
 *
 * While the library itself works on the thread, the record names another stack (base/thread_record.h).
 */
#ifndef PS_HERE_H
#define PS_HERE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/thread_record.h"
#include "calls/shadow_stack.h"

#define PS_OFFSET(type, field, place) ((uint64_t)offsetof(type, field) << (8 * (place)))
#define PS_HERE_LAYOUT                                                                                       \
    (PS_OFFSET(ps_stack, frames, 0) | PS_OFFSET(ps_stack, depth, 1) | PS_OFFSET(ps_stack, epoch, 2) |        \
     (uint64_t)sizeof(ps_frame) << 24 | PS_OFFSET(ps_frame, row, 4) | PS_OFFSET(ps_frame, frame, 5) |        \
     PS_OFFSET(ps_row, site, 6))
/* Added to the layout: the stack counts only while *native_where is `native`. */
#define PS_HERE_CHECKED ((uint64_t)1 << 56)
#define PS_HERE_NAMES                                                                                        \
    (PS_OFFSET(ps_site, name, 0) | PS_OFFSET(ps_site, file, 1) | PS_OFFSET(ps_site, line, 2) |               \
     PS_OFFSET(ps_site, path, 3))

/* Offsets for `requests` of a record, without the round in its lower half. */
#define PS_HERE_REQUESTS                                                                                     \
    (PS_OFFSET(ps_stack, request, 4) | PS_OFFSET(ps_stack, request_where, 5) |                               \
     PS_OFFSET(ps_stack, request_version, 6) | PS_OFFSET(ps_stack, request_round, 7))

/* The function that the library's own work on a thread of the application belongs to. */
#define PS_HERE_OURS "(probescope)"

enum {
    PS_HERE_RECORDS = 32768,
    PS_HERE_ROUND_NS = 250000000,
};

/* How often a thread got no record: there was no memory, or all are taken. */
extern uint64_t ps_here_untold;

/*
 * The calling thread runs on this stack from now on; NULL: on none that is known. Fires
 * function__here if the thread has not done so in this round. Called with the VM lock. With NULL also
 * without.
 */
void ps_here_set(ps_stack *stack);

/*
 * Called with the VM lock. listen: when function__here gets its first listener or loses the last
 * one. clear: what runs on each thread is not known until it looks up its stack.
 */
void ps_here_listen(bool on);
void ps_here_clear(void);
/* Begins a round: each thread tells once more where its record is. Any thread. */
void ps_here_tell_again(void);

/*
 * True while tracers listen to function__here and to stats__by_request, as last applied. Code that finds
 * the stack of the calling thread, or changes the current request, then calls ps_here_request().
 */
extern bool ps_here_requests;
/* Called with the VM lock, after ps_here_listen(). Each thread looks up its stack and request anew. */
void ps_here_listen_to_requests(bool on);
/*
 * The code that runs on this stack belongs to this request from now on. request: a site whose name is
 * method and path; NULL: to none. version: a number of the calling thread's that changes when other
 * code runs on the stack, whose request is not known then. NULL: there is no such code. Called with the
 * VM lock, on the thread that runs on the stack.
 */
void ps_here_request(ps_stack *stack, const ps_site *request, const uint64_t *version);

/*
 * The VM's threads share native threads. Called before any thread has a record. known: the VM's code
 * calls ps_here_set_shared() instead of ps_here_set(). Otherwise records never name a stack.
 */
void ps_here_share_threads(bool known);
/* where: of the VM's thread that runs on the calling thread (ps_record_of()). */
void ps_here_set_shared(ps_stack *stack, const uint64_t *where);
/* Where the VM lock's data is, in which its futexes are. */
void ps_here_lock_is(const void *address, size_t bytes);
/*
 * How a program finds the line at which a frame is: vm_code, vm_lines and vm_object of
 * function__here. The first two have four offsets each, from the lowest 16 bits on.
 */
void ps_here_lines_are(uint64_t code, uint64_t lines, uint64_t object);

#endif

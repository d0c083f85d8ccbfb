#include "exceptions_hooks.h"

#if !PS_HAVE_MONITORING

#include <string.h>

#include "base/clock.h"

/*
 * Before 3.12 an exception is reported when it dies (exceptions_slots.c). By then another span may
 * be current, or another request. So the span is noted when an exception is made. That is on the
 * thread that raises it and, unlike its end, at a moment at which Python may allocate. A note
 * counts if the exception was raised where it was made: in the function that made it, or in that
 * function's caller (for a function that makes exceptions for others). The call that handled it
 * must still run. An exception that was kept for a while, or raised a second time elsewhere, has no
 * span.
 *
 * A place gets no more notes than it may have events (ps_exceptions_detail_due). All of this is with the
 * GIL, in the main interpreter.
 */
enum { NOTES_BITS = 8, NOTES = 1 << NOTES_BITS, PLACES = 256, MAKERS = 2 };

static struct note {
    ps_address exception;
    ps_address makers[MAKERS]; /* the code that made it, and the caller of that */
    uint64_t thread_id;
    ps_span span;
} notes[NOTES];

/*
 * Places where exceptions are made: the type and the instruction. Two places that share an entry
 * displace each other.
 */
static struct place {
    uintptr_t key;
    uint32_t second, noted;
} places[PLACES];

static struct note *note_of(PyObject *exception)
{
    return &notes[ps_address_hash(PS_ADDRESS(exception), NOTES_BITS)];
}

static bool is_allowed(PyTypeObject *type, PyCodeObject *code, int instruction)
{
    uintptr_t key = ((uintptr_t)type >> 4) ^ ((uintptr_t)code >> 3) ^ ((uintptr_t)(unsigned)instruction << 5);
    struct place *place = &places[key % PLACES];
    uint32_t second = (uint32_t)(ps_monotonic_ns() / 1000000000u);
    if (place->key != key || place->second != second) *place = (struct place){key, second, 0};
    return place->noted++ < PS_DETAILS_PER_SECOND;
}

void ps_exceptions_forget_span(PyObject *exception)
{
    struct note *note = note_of(exception);
    if (ps_address_equal(note->exception, PS_ADDRESS(exception))) note->exception = PS_NO_ADDRESS;
}

void ps_exceptions_note_span(PyObject *exception)
{
    /* The look-up of the span may make an exception. */
    static __thread bool busy;
    ps_exceptions_forget_span(exception); /* of an earlier one at its address */
    struct ps_walked_frame *frame = ps_walk_from(ps_thread_state());
    ps_address makers[MAKERS] = {PS_NO_ADDRESS};
    for (int i = 0; frame && i < MAKERS; i++, frame = ps_walk_on(frame)) {
        PyCodeObject *code = ps_walked_code(frame);
        makers[i] = PS_ADDRESS(code);
        if (!i && !is_allowed(Py_TYPE(exception), code, ps_walked_instruction(frame))) return;
    }
    if (busy || !ps_address_known(makers[0])) return;
    ps_span span;
    busy = true;
    ps_span_current(&span, PS_BIT(EXCEPTION__DETAIL));
    busy = false;
    if (!span.known) return;
    struct note *note = note_of(exception);
    note->exception = PS_ADDRESS(exception);
    note->thread_id = ps_thread_id();
    memcpy(note->makers, makers, sizeof(makers));
    note->span = span;
}

void ps_exceptions_forget_spans(void)
{
    memset(notes, 0, sizeof(notes));
}

static bool was_made_in(const struct note *note, PyTracebackObject *first, uint32_t depth)
{
    bool found = false;
    for (uint32_t i = 0; !found && i < depth && first; i++, first = first->tb_next) {
        PyCodeObject *code = PyFrame_GetCode(first->tb_frame);
        for (int maker = 0; maker < MAKERS; maker++)
            found |= ps_address_equal(PS_ADDRESS(code), note->makers[maker]);
        Py_DECREF(code);
    }
    return found;
}

void ps_exceptions_span(ps_span *span, PyObject *exception, PyTracebackObject *first, uint32_t depth)
{
    const struct note *note = note_of(exception);
    *span = (ps_span){.known = false};
    if (!ps_address_equal(note->exception, PS_ADDRESS(exception)) || note->thread_id != ps_thread_id())
        return;
    if (ps_frame_is_running(first->tb_frame) && was_made_in(note, first, depth)) *span = note->span;
}

#endif

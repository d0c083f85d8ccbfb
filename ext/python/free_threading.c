#include "hooks.h"

#include <string.h>

#if !PS_HAVE_GIL

/* Not an object of Python's: only its lock is used. */
static PyObject place;

static unsigned under_way;    /* turns that have begun and not ended, of all threads */
static __thread unsigned own; /* of this thread */

/*
 * When the interpreter ends, one of the threads that are left behind may hold the turn. So the last
 * thread takes none.
 */
void ps_turn_begin(ps_turn *turn)
{
    turn->taken = !Py_IsFinalizing();
    if (turn->taken) ps_section_begin(&turn->section, &place);
    under_way++;
    own++;
}

void ps_turn_end(ps_turn *turn)
{
    under_way--;
    own--;
    if (turn->taken) ps_section_end(&turn->section);
}

bool ps_no_other_turn(void)
{
    return under_way == own;
}

/*
 * Turns of other threads do not end in the child, and one of these may have been given the next
 * turn.
 */
void ps_turns_after_fork(void)
{
    under_way = own;
    if (!own) memset(&place, 0, sizeof(place));
}

#endif

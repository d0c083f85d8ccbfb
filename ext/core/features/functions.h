/*
 * Fires function__entry and function__return, for the hooks of every language. The row has its
 * site.
 */
#ifndef PS_FUNCTIONS_H
#define PS_FUNCTIONS_H

#include <stdbool.h>

#include "calls/shadow_stack.h"

/* For a call that was just entered or resumed. */
void ps_functions_fire_entry(const ps_row *row, const ps_stack *stack, bool resumed);
/* For a call that has just left this stack. */
void ps_functions_fire_return(const ps_row *row, const ps_stack *stack, const ps_call *call, int outcome);

#endif

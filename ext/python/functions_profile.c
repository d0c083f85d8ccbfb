#include "hooks.h"

#if !PS_HAVE_MONITORING

#include "base/clock.h"

/*
 * Calls by the profile hook, on 3.11: an entry for each start and resumption, an exit for each
 * return, yield and exception. The frame shows which of them it is, but not which exception. A
 * generator that is left by an exception that was thrown into it, and does not handle it, is taken
 * for closed. Nearly all such generators are, most of them by a loop that ended early.
 */
static unsigned users; /* of enum ps_profile_user */

static bool is_resumable(const PyCodeObject *code)
{
    return (code->co_flags & PS_RESUMABLE) != 0;
}

static void enter(PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    bool resumed = is_resumable(code) && ps_frame_is_resumed(frame, code);
    if (users & PS_PROFILE_FUNCTIONS) ps_functions_enter(code, PS_ADDRESS(frame), resumed);
    if (users & PS_PROFILE_LATENCY) ps_latency_enter(code, PS_ADDRESS(frame), resumed);
    Py_DECREF(code);
}

static void leave(PyFrameObject *frame, PyObject *result)
{
    uint64_t now = ps_ticks();
    PyCodeObject *code = PyFrame_GetCode(frame);
    int outcome = PS_OUTCOME_RETURNED;
    bool raised = !result;
    bool closed = raised && (code->co_flags & CO_GENERATOR) && ps_frame_was_thrown_into(frame, code);
    if (raised && !closed) outcome = PS_OUTCOME_RAISED;
    else if (raised) outcome = PS_OUTCOME_RETURNED;
    else if (is_resumable(code) && ps_frame_is_suspended(frame, code)) outcome = PS_OUTCOME_SUSPENDED;
    if (users & PS_PROFILE_LATENCY) ps_latency_leave(code, PS_ADDRESS(frame), outcome);
    if (users & PS_PROFILE_FUNCTIONS) ps_functions_leave(code, PS_ADDRESS(frame), outcome, now);
    Py_DECREF(code);
}

static void look_at(PyFrameObject *frame, int what, PyObject *argument)
{
    ps_look look = ps_look_begin(PS_LOOK_FUNCTION);
    if (what == PyTrace_CALL) enter(frame);
    else if (what == PyTrace_RETURN) leave(frame, argument);
    ps_look_end(look);
}

/* Called by the VM on the application's threads. The VM has put aside an exception that is set. */
static int on_event(PyObject *object, PyFrameObject *frame, int what, PyObject *argument)
{
    if (what == PyTrace_C_RETURN) ps_thread_hooks_mind_thread(argument);
    if (users != PS_PROFILE_BIRTHS) look_at(frame, what, argument);
    int passed = ps_thread_hooks_pass_on(PS_HOOK_PROFILE, object, frame, what, argument);
    if (what == PyTrace_C_CALL && passed == 0) ps_thread_hooks_mind_setprofile(argument);
    return passed;
}

void ps_profile(enum ps_profile_user user, bool on)
{
    bool was_on = users != 0;
    users = on ? users | user : users & ~user;
    if (on && !was_on) ps_thread_hooks_put(PS_HOOK_PROFILE, on_event);
    if (!users) ps_thread_hooks_take_out(PS_HOOK_PROFILE);
}

bool ps_functions_hook(bool on)
{
    ps_profile(PS_PROFILE_FUNCTIONS, on);
    return on;
}

#endif

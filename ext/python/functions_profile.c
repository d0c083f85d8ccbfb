#include "hooks.h"

#if !PS_HAVE_MONITORING

#include "clock.h"

/*
 * What the profile hook tells of calls, on 3.8 to 3.11: an entry for each start and resumption, an exit for each return, yield and
 * exception. Which of them it is stands in the frame; which exception it was does not. Generators that are left by one that was
 * thrown into them, without a word of their own, are taken for closed: nearly all are, most of them by a loop that ended early.
 */
static bool is_resumable(const PyCodeObject *code)
{
    return (code->co_flags & PS_RESUMABLE) != 0;
}

static void enter(PyFrameObject *frame)
{
    PyCodeObject *code = ps_frame_code(frame);
    bool resumed = is_resumable(code) && ps_frame_is_resumed(frame, code);
    ps_functions_enter(code, (uintptr_t)frame, resumed);
    Py_DECREF(code);
}

static void leave(PyFrameObject *frame, PyObject *result)
{
    uint64_t now = ps_ticks();
    PyCodeObject *code = ps_frame_code(frame);
    int outcome = PS_OUTCOME_RETURNED;
    bool closed = !result && (code->co_flags & CO_GENERATOR) && ps_frame_was_thrown_into(frame, code);
    if (!result && !closed) outcome = PS_OUTCOME_RAISED;
    else if (!result) outcome = PS_OUTCOME_RETURNED;
    else if (is_resumable(code) && ps_frame_is_suspended(frame, code)) outcome = PS_OUTCOME_SUSPENDED;
    ps_functions_leave(code, (uintptr_t)frame, outcome, now);
    Py_DECREF(code);
}

/* Called by the VM on the application's threads. What is raised at the moment was put away by it. */
static int on_event(PyObject *object, PyFrameObject *frame, int what, PyObject *argument)
{
    if (what == PyTrace_CALL) enter(frame);
    else if (what == PyTrace_RETURN) leave(frame, argument);
    else if (what == PyTrace_C_RETURN && ps_thread_hooks_starts_one(argument)) ps_thread_hooks_upkeep();
    int passed = ps_thread_hooks_pass_on(PS_HOOK_PROFILE, object, frame, what, argument);
    if (what == PyTrace_C_CALL && passed == 0) ps_thread_hooks_mind_setprofile(argument);
    return passed;
}

bool ps_functions_hook(bool on)
{
    if (on) ps_thread_hooks_put(PS_HOOK_PROFILE, on_event);
    else ps_thread_hooks_take_out(PS_HOOK_PROFILE);
    return on;
}

#endif

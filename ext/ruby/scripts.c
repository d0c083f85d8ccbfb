/*
 * Hides the object that Ruby makes for :script_compiled. For an eval, the object is an Array of the
 * text and the ISeq itself, which is not an object for Ruby code. ObjectSpace.each_object(Array)
 * returns the Array to the application, and inspecting it crashes (3.1 to 3.4; on some it raises
 * NotImplementedError). Ruby makes the Array for each eval while anybody listens to the event, so
 * the hook hides it at once.
 *
 * No public function returns the Array. It is the last value in Ruby's struct of an event. The
 * fields before it are checked: if they do not hold what they should, nothing is touched.
 */
#include <ruby/ruby.h>
#include <ruby/debug.h>

#include <string.h>

#include "hooks.h"

/* struct rb_trace_arg_struct of vm_core.h, 3.1 to 3.4, up to `data`. */
struct told {
    rb_event_flag_t event;
    void *execution_context;
    const void *control_frame;
    VALUE self, id, called_id, klass;
    VALUE data;
};

bool ps_script_hide(VALUE tracepoint)
{
    const rb_trace_arg_t *arg = rb_tracearg_from_tracepoint(tracepoint);
    struct told told;
    memcpy(&told, arg, sizeof(told));
    bool known = told.event == RUBY_EVENT_SCRIPT_COMPILED &&
                 told.self == rb_tracearg_self((rb_trace_arg_t *)arg) && !told.id && !told.called_id &&
                 !told.klass;
    if (!known || RB_SPECIAL_CONST_P(told.data) || told.data % sizeof(VALUE) != 0) return false;
    if (RB_BUILTIN_TYPE(told.data) == RUBY_T_IMEMO) return true; /* a file's ISeq, not an Array */
    if (RB_BUILTIN_TYPE(told.data) != RUBY_T_ARRAY || RARRAY_LEN(told.data) != 2) return false;
    rb_obj_hide(told.data);
    return true;
}

/* Differences between Ruby versions, as small functions that are named after what they do. */
#ifndef PS_RUBY_COMPAT_H
#define PS_RUBY_COMPAT_H

#include <ruby/ruby.h>
#include <ruby/debug.h>

#include <stdbool.h>

/*
 * RUBY_EVENT_RESCUE exists from 3.3 on. Before, no public event reports a rescue at an acceptable
 * cost.
 */
#ifdef RUBY_EVENT_RESCUE
#define PS_HAVE_RESCUE_EVENT 1
#define PS_RAISE_EVENTS      (RUBY_EVENT_RAISE | RUBY_EVENT_RESCUE)
#else
#define PS_HAVE_RESCUE_EVENT 0
#define PS_RAISE_EVENTS      RUBY_EVENT_RAISE
#endif

/* The object whose singleton class this is. */
static inline VALUE ps_attached_object(VALUE singleton)
{
#ifdef HAVE_RB_CLASS_ATTACHED_OBJECT
    return rb_class_attached_object(singleton);
#else
    return rb_attr_get(singleton, rb_intern("__attached__"));
#endif
}

/* Is the data of this T_DATA inside the object's own slot? (3.3 and later.) */
static inline bool ps_data_embedded(VALUE data)
{
#ifdef HAVE_RTYPEDDATA_EMBEDDED_P
    return RTYPEDDATA_EMBEDDED_P(data);
#else
    (void)data;
    return false;
#endif
}

/* The data of a T_DATA, wherever it is. */
static inline void *ps_typed_data(VALUE data)
{
#ifdef HAVE_RTYPEDDATA_EMBEDDED_P
    return RTYPEDDATA_GET_DATA(data);
#else
    return RTYPEDDATA_DATA(data);
#endif
}

#endif

/*
 * What hooks do to the code of a JIT: is a call as fast as before once the hooks are out? Decision
 * 037 has the measurements.
 *
 *                    targeted call and line hooks  raise hook     allocations, collections, samples
 *   YJIT of 3.1      slow for good                 slow for good  as before
 *   YJIT of 3.2-4.0  as before, after a kick       as before      as before
 *   ZJIT of 4.0      slow for good                 as before      as before
 *
 * Hooks that leave a process slow for good are refused. So are call and line hooks on a JIT that
 * nobody measured.
 */
#include <ruby/ruby.h>
#include <ruby/version.h>

#include <stdlib.h>
#include <string.h>

#include "hooks.h"
#include "methods.h"

static VALUE yjit = Qnil, zjit = Qnil;
PS_KEPT(PS_HELD(yjit), PS_HELD(zjit))
static ID id_is_enabled;

static VALUE find(const char *name)
{
    VALUE vm = rb_const_get(rb_cObject, rb_intern("RubyVM"));
    return rb_const_defined(vm, rb_intern(name)) ? rb_const_get(vm, rb_intern(name)) : Qnil;
}

void ps_jit_init(void)
{
    id_is_enabled = rb_intern("enabled?");
    PS_KEEP(yjit, find("YJIT"));
    PS_KEEP(zjit, find("ZJIT"));
}

static VALUE is_enabled(VALUE jit)
{
    return rb_funcall(jit, id_is_enabled, 0);
}

/* `enabled?` is a Ruby method, and the core calls ps_hooks.refused() in the job. */
static bool is_on(VALUE jit)
{
    return !NIL_P(jit) && RTEST(ps_hold_vm_lock(is_enabled, jit));
}

/* A JIT can be switched on while the process runs, so this is read each time. */
bool ps_jit_is_on(void)
{
    return is_on(yjit) || is_on(zjit);
}

/*
 * Called when the process ends: no code is compiled any more. `enabled?` is a method written in
 * Ruby, which a TracePoint of the application would see, and in which it could raise.
 */
void ps_jit_forget(void)
{
    yjit = zjit = Qnil;
}

static bool is_ruby(const char *series)
{
    return strncmp(ruby_version, series, strlen(series)) == 0;
}

bool ps_jit_may_come(void)
{
    return !NIL_P(yjit) && !is_ruby("3.1.");
}

static bool is_forced(void)
{
    const char *force = getenv("PROBESCOPE_FORCE");
    return force && strcmp(force, "1") == 0;
}

const char *ps_jit_refuses_calls(void)
{
    if (is_forced() || !ps_jit_is_on()) return NULL;
    if (is_on(zjit)) return "ZJIT never recovers from call hooks; set PROBESCOPE_FORCE=1 to accept that";
    if (is_ruby("3.1."))
        return "YJIT of Ruby 3.1 never recovers from call hooks; set PROBESCOPE_FORCE=1 to accept that";
    if (is_ruby("3.2.") || is_ruby("3.3.") || is_ruby("3.4.") || is_ruby("4.0.")) return NULL;
    return "nobody measured that YJIT of this Ruby recovers from call hooks; set PROBESCOPE_FORCE=1 to try";
}

/*
 * While a raise hook is in, Ruby 3.1 discards all compiled code at each change of any hook, and it
 * compiles a method three times at most.
 */
const char *ps_jit_refuses_raises(void)
{
    if (is_forced() || !is_ruby("3.1.") || !is_on(yjit)) return NULL;
    return "YJIT of Ruby 3.1 does not recover from raise hooks; set PROBESCOPE_FORCE=1 to accept that";
}

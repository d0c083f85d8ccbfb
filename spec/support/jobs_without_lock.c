/*
 * Preloaded by jobs_from_threads_spec.rb. Counts calls of rb_postponed_job_register_one() on
 * threads that are not Ruby's, and prints the count at the end. NO_ATFORK=1: there is no memory for
 * fork handlers.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static int calls;

int rb_postponed_job_register_one(unsigned flags, void (*function)(void *), void *argument)
{
    static int (*real)(unsigned, void (*)(void *), void *);
    static int (*is_rubys)(void);
    if (!real)
        real = (int (*)(unsigned, void (*)(void *), void *))dlsym(RTLD_NEXT, "rb_postponed_job_register_one");
    if (!is_rubys) is_rubys = (int (*)(void))dlsym(RTLD_DEFAULT, "ruby_native_thread_p");
    if (!is_rubys()) __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    return real(flags, function, argument);
}

int __register_atfork(void (*before)(void), void (*after)(void), void (*in_child)(void), void *library)
{
    static int (*real)(void (*)(void), void (*)(void), void (*)(void), void *);
    if (getenv("NO_ATFORK")) return 12; /* ENOMEM */
    if (!real)
        real = (int (*)(void (*)(void), void (*)(void), void (*)(void), void *))dlsym(RTLD_NEXT,
                                                                                      "__register_atfork");
    return real(before, after, in_child, library);
}

__attribute__((destructor)) static void say(void)
{
    printf("without the lock: %d\n", calls);
}

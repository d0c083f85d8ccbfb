/*
 * Where Ruby 3.1 to 3.4 have what no function tells. Whoever reads such a word first looks whether
 * the others are what they should be.
 */
#ifndef PS_RUBY_VM_WORDS_H
#define PS_RUBY_VM_WORDS_H

#include <ruby/version.h>

/* The words of rb_thread_t. */
enum { THREAD_SELF = 2, THREAD_RACTOR, THREAD_VM, THREAD_EC = RUBY_API_VERSION_CODE < 30200 ? 5 : 6 };
/*
 * Those of rb_execution_context_t, whose word EC_FLAG is the interrupts that have come and those
 * that are masked.
 */
enum { EC_STACK, EC_STACK_SIZE, EC_FRAME, EC_FLAG = 4, EC_THREAD = 6 };

#endif

/*
 * Positions of words in the VM's structs, Ruby 3.1 to 3.4, which no function returns. Before code
 * reads such a word, it checks that the words around it hold what they should.
 */
#ifndef PS_RUBY_VM_WORDS_H
#define PS_RUBY_VM_WORDS_H

#include <ruby/version.h>

/* Words of rb_thread_t. */
enum { THREAD_SELF = 2, THREAD_RACTOR, THREAD_VM, THREAD_EC = RUBY_API_VERSION_CODE < 30200 ? 5 : 6 };
/* From 3.3 on: the native thread that the thread runs on, or NULL. */
enum { THREAD_NATIVE = 5 };
/* Words of rb_native_thread, from 3.3 on. */
enum { NATIVE_VM = 1, NATIVE_ID };
/*
 * Words of rb_execution_context_t. EC_FLAG is two numbers: the pending interrupts, and those that
 * are masked.
 */
enum { EC_STACK, EC_STACK_SIZE, EC_FRAME, EC_FLAG = 4, EC_THREAD = 6 };

#endif

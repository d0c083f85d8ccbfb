/*
 * Takes the place of a VM: what context/vm.h declares. A test sets what the functions return.
 */
#ifndef PS_TEST_VM_H
#define PS_TEST_VM_H

#include "context/vm.h"

extern struct test_vm {
    enum ps_span_found found; /* of the application's current span */
    ps_span span;             /* if it is PS_A_SPAN */
    bool sends_spans;
    struct ps_request *request;
} test_vm;

/* Sets the application's current span to that of a header; NULL: no span. */
void test_vm_set_span(const char *header);

#endif

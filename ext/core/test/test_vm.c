#include "test_vm.h"

#include <stdlib.h>
#include <string.h>

struct test_vm test_vm;

void test_vm_set_span(const char *header)
{
    test_vm.found = header ? PS_A_SPAN : PS_NO_SPAN;
    if (header && !ps_span_of_header(&test_vm.span, header, strlen(header))) abort();
}

enum ps_span_found ps_vm_span(ps_span *span)
{
    *span = test_vm.found == PS_A_SPAN ? test_vm.span : (ps_span){.known = false};
    return test_vm.found;
}

bool ps_vm_sends_spans(void)
{
    return test_vm.sends_spans;
}

struct ps_request *ps_vm_request(void)
{
    return test_vm.request;
}

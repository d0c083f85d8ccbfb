/*
 * What the core asks a VM about the context that code runs in. ext/ruby and ext/python each
 * implement these functions, and ext/core/test/test_vm.c does so for the C tests.
 *
 * They are called with the VM lock or the GIL, in hooks too. They run none of the application's
 * code, and leave an exception that is set as it is.
 */
#ifndef PS_CONTEXT_VM_H
#define PS_CONTEXT_VM_H

#include <stdbool.h>

#include "context/span.h"

enum ps_span_found { PS_NO_SPAN, PS_A_SPAN, PS_SPAN_UNKNOWN };

/*
 * Reads the application's current OpenTelemetry span. PS_NO_SPAN also when OpenTelemetry is not
 * loaded; PS_SPAN_UNKNOWN when it is, and keeps its context in a way that is not known. Unless it
 * is PS_A_SPAN, *span is all zeros.
 */
enum ps_span_found ps_vm_span(ps_span *span);
/* Does the application send spans of its own? */
bool ps_vm_sends_spans(void);
/*
 * The current request of this fiber or context, or NULL. It lasts until the application's code runs
 * again.
 */
struct ps_request *ps_vm_request(void);

#endif

/*
 * What samples need of a code object, copied without the GIL: names, file and line table. The code
 * object itself is neither kept alive nor read again, so it may be freed at any moment, and another
 * may get its address.
 *
 * Only the watcher uses this, except the fields of the worker.
 */
#ifndef PS_PYTHON_COPIED_CODE_H
#define PS_PYTHON_COPIED_CODE_H

#include "compat.h"

#include <stdbool.h>
#include <stdint.h>

#include "table/row_ref.h"

typedef struct ps_copied_code {
    uintptr_t address;
    uintptr_t qualname, filename, lines; /* of the originals: those of another code object differ */
    int first_line;
    bool suspends;               /* code of a generator or coroutine, which has a caller when it runs */
    uint64_t checked_ns;         /* when the original was last found unchanged */
    char *name, *path;           /* with NUL */
    size_t name_size, path_size; /* without it */
    uint8_t *line_table;         /* NULL: it could not be copied */
    size_t line_table_size;
    struct ps_copied_code *next; /* the next one that was replaced */
    uint64_t replaced_at;        /* from this sample on none has it */
    ps_row_ref row;              /* the worker's; of ps_sample_table */
} ps_copied_code;

/*
 * The copy of the code object at this address, whose function has these globals. check: the
 * original is compared with the copy. NULL: there is no code object.
 */
ps_copied_code *ps_copied_code_at(uintptr_t address, uintptr_t globals, bool check, uint64_t now);
/*
 * The line of the instruction at this offset, in bytes from the beginning of the code; 0: it has
 * none.
 */
uint32_t ps_copied_code_line(const ps_copied_code *code, long offset);
/*
 * Called at the end of a tick. The next sample gets the number `next`, and those up to `done` are
 * over: frees copies that were replaced before.
 */
void ps_copied_code_sampled(uint64_t next, uint64_t done);
/* Frees all copies: no sample has one any more. */
void ps_copied_code_forget(void);

#endif

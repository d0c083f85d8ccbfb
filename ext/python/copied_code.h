/*
 * What samples need to know of a code object, copied without the GIL: names, file and line table.
 * The code object itself is neither kept alive nor looked at again, so it may be freed at any
 * moment, and another may take its address.
 *
 * The watcher's, but for `row`.
 */
#ifndef PS_PYTHON_COPIED_CODE_H
#define PS_PYTHON_COPIED_CODE_H

#include "compat.h"

#include <stdbool.h>
#include <stdint.h>

#include "rows.h"

typedef struct ps_copied_code {
    uintptr_t address;
    uintptr_t qualname, filename, lines; /* where the originals are: another code object has others */
    int first_line;
    /* a generator's or a coroutine's, which has a caller whenever it runs */
    bool suspends;
    uint64_t checked_ns;         /* when the original was last found unchanged */
    char *name, *path;           /* with NUL */
    size_t name_size, path_size; /* without it */
    uint8_t *line_table;         /* NULL: it could not be copied */
    size_t line_table_size;
    struct ps_copied_code *next; /* that was replaced */
    uint64_t replaced_at;        /* the sample from which on none has this */
    /* The worker's: its row, and which names that is of. */
    ps_row *row;
    uint32_t names, cleared;
} ps_copied_code;

/*
 * What is known of the code object at this address, whose function has these globals. check: the
 * original is compared. NULL: no code is there.
 */
ps_copied_code *ps_copied_code_at(uintptr_t address, uintptr_t globals, bool check, uint64_t now);
/*
 * The line of the instruction that many bytes behind the beginning of the code; 0 where there is
 * none.
 */
uint32_t ps_copied_code_line(const ps_copied_code *code, long offset);
/*
 * The next sample has this number, and those up to `done` are over: gives back what was replaced
 * before.
 */
void ps_copied_code_sampled(uint64_t next, uint64_t done);
/* No sample has any more of it. */
void ps_copied_code_forget(void);

#endif

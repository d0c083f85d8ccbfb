#include "copied_code.h"

#if PS_HAVE_GIL

#include <string.h>

#include "base/copy.h"
#include "base/hash.h"
#include "base/memory.h"
#include "hooks.h"

/*
 * Open addressing. Half of the places stay empty: when the others are in use, all copies are
 * dropped, and made again as their code is met.
 */
enum { PLACES = 8192, MOST = PLACES / 2 };
/* A sample of the tick under way may have the copy. Which is the last one is known after the tick. */
#define THIS_TICK UINT64_MAX
enum { LINE_TABLE_MOST = 64 * 1024, CHECK_AGAIN_NS = 100000000 };

static struct {
    ps_copied_code **at; /* NULL: nothing is known */
    uint32_t count;
    ps_copied_code *replaced;
} copies;

static void free_copy(ps_copied_code *code)
{
    ps_memory_give(code->name, code->name_size + 1);
    ps_memory_give(code->path, code->path_size + 1);
    ps_memory_give(code->line_table, code->line_table_size);
    ps_memory_give(code, sizeof(*code));
}

static void replace(ps_copied_code *code)
{
    code->replaced_at = THIS_TICK;
    code->next = copies.replaced;
    copies.replaced = code;
}

static void replace_all(void)
{
    for (uint32_t i = 0; copies.at && i < PLACES; i++) {
        if (copies.at[i]) replace(copies.at[i]);
        copies.at[i] = NULL;
    }
    copies.count = 0;
}

void ps_copied_code_sampled(uint64_t next, uint64_t done)
{
    for (ps_copied_code **at = &copies.replaced; *at;) {
        ps_copied_code *code = *at;
        if (code->replaced_at == THIS_TICK) code->replaced_at = next;
        if (code->replaced_at > done) {
            at = &code->next;
            continue;
        }
        *at = code->next;
        free_copy(code);
    }
}

void ps_copied_code_forget(void)
{
    replace_all();
    ps_copied_code_sampled(0, UINT64_MAX);
    ps_memory_give(copies.at, PLACES * sizeof(*copies.at));
    copies.at = NULL;
}

static ps_copied_code **place_of(uintptr_t address)
{
    uint32_t i = ps_address_hash((ps_address){address}, 13);
    while (copies.at[i] && copies.at[i]->address != address) i = (i + 1) % PLACES;
    return &copies.at[i];
}

static char *keep(const char *text, size_t size)
{
    char *kept = ps_memory_take(size + 1);
    if (kept) memcpy(kept, text, size);
    return kept;
}

static void copy_line_table(ps_copied_code *code)
{
    PyVarObject head;
    if (!ps_copy(&head, (void *)code->lines, sizeof(head)) || head.ob_base.ob_type != &PyBytes_Type) return;
    if (head.ob_size <= 0 || head.ob_size > LINE_TABLE_MOST) return;
    code->line_table_size = (size_t)head.ob_size;
    code->line_table = ps_memory_take(code->line_table_size);
    if (!code->line_table) return;
    if (ps_copy(code->line_table, (char *)code->lines + offsetof(PyBytesObject, ob_sval),
                code->line_table_size))
        return;
    ps_memory_give(code->line_table, code->line_table_size);
    code->line_table = NULL;
}

static ps_copied_code *copy_code(uintptr_t address, const PyCodeObject *head, uintptr_t globals)
{
    char name[PS_NAME_MAX + 1], path[PS_NAME_MAX + 1];
    size_t name_size = ps_copied_name(name, (uintptr_t)head->co_qualname, globals);
    size_t path_size = ps_copied_string(path, (uintptr_t)head->co_filename);
    if (!name_size) return NULL;
    ps_copied_code *code = ps_memory_take(sizeof(*code));
    if (!code) return NULL;
    *code = (ps_copied_code){.address = address,
                             .qualname = (uintptr_t)head->co_qualname,
                             .filename = (uintptr_t)head->co_filename,
                             .lines = (uintptr_t)head->co_linetable,
                             .first_line = head->co_firstlineno,
                             .suspends =
                                 (head->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0,
                             .name_size = name_size,
                             .path_size = path_size,
                             .name = keep(name, name_size),
                             .path = keep(path, path_size)};
    if (!code->name || !code->path) {
        free_copy(code);
        return NULL;
    }
    copy_line_table(code);
    return code;
}

static bool is_copy_of(const ps_copied_code *code, const PyCodeObject *head)
{
    return code->qualname == (uintptr_t)head->co_qualname && code->filename == (uintptr_t)head->co_filename &&
           code->lines == (uintptr_t)head->co_linetable && code->first_line == head->co_firstlineno;
}

ps_copied_code *ps_copied_code_at(uintptr_t address, uintptr_t globals, bool check, uint64_t now)
{
    if (!copies.at && !(copies.at = ps_memory_take(PLACES * sizeof(*copies.at)))) return NULL;
    ps_copied_code **place = place_of(address);
    if (*place && !check && now - (*place)->checked_ns < CHECK_AGAIN_NS) return *place;
    union {
        PyCodeObject code;
        char bytes[offsetof(PyCodeObject, co_code_adaptive)];
    } head;
    if (!ps_copy(&head, (void *)address, sizeof(head.bytes)) ||
        head.code.ob_base.ob_base.ob_type != &PyCode_Type)
        return NULL;
    if (*place && is_copy_of(*place, &head.code)) {
        (*place)->checked_ns = now;
        return *place;
    }
    ps_copied_code *code = copy_code(address, &head.code, globals);
    if (!code) return NULL;
    if (*place) {
        replace(*place);
    } else if (++copies.count > MOST) {
        replace_all();
        copies.count = 1;
        place = place_of(address);
    }
    code->checked_ns = now;
    return *place = code;
}

/* A number of 6 bits in each byte, the lowest first. Bit 6: more bytes follow. */
static uint32_t number(const uint8_t **at, const uint8_t *end)
{
    uint32_t value = 0;
    for (int shift = 0; *at < end && shift < 30; shift += 6) {
        uint8_t byte = *(*at)++;
        value |= (uint32_t)(byte & 63) << shift;
        if (!(byte & 64)) break;
    }
    return value;
}

static int signed_number(const uint8_t **at, const uint8_t *end)
{
    uint32_t value = number(at, end);
    return value & 1 ? -(int)(value >> 1) : (int)(value >> 1);
}

/*
 * The table is a list of entries, each for 1 to 8 instructions of 2 bytes. An entry begins with a
 * byte that has the highest bit set, the kind in 4 bits and the length less one in 3. What follows
 * about lines depends on the kind (Objects/locations.md of CPython).
 */
uint32_t ps_copied_code_line(const ps_copied_code *code, long offset)
{
    enum { ONE_LINE_0 = 10, NO_COLUMNS = 13, LONG = 14, NONE = 15 };
    const uint8_t *at = code->line_table, *end = at + code->line_table_size;
    if (!at || offset < 0) return 0;
    int line = code->first_line;
    for (long begin = 0; at < end;) {
        uint8_t first = *at++;
        int kind = first >> 3 & 15;
        begin += 2 * ((first & 7) + 1);
        if (kind == NO_COLUMNS || kind == LONG) line += signed_number(&at, end);
        else if (kind >= ONE_LINE_0 && kind < NO_COLUMNS) line += kind - ONE_LINE_0;
        if (offset < begin) return kind == NONE || line <= 0 ? 0 : (uint32_t)line;
        while (at < end && !(*at & 128)) at++;
    }
    return 0;
}

#endif

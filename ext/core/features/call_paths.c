#include "features/call_paths.h"

#include <string.h>

#include "base/atomic.h"
#include "base/hash.h"
#include "base/memory.h"
#include "features/coverage.h"
#include "table/flush.h"
#include "usdt/probe.h"
#include "usdt/probe_groups.h"

enum { CELLS_PER_CHUNK = 256, CHUNKS = PS_PATH_CELLS_MAX / CELLS_PER_CHUNK };
enum { DEPTH_MAX = 512 };
enum { OWN = 1, WHAT = 2 }; /* flags of stack__frame */

struct ps_path {
    uint64_t id;     /* never 0 */
    ps_path *parent; /* NULL: outermost */
    const ps_site *site;
    uint64_t file_number;
    uint64_t fired; /* number of the last flush that fired it; the watcher's */
    uint32_t line;
    uint16_t depth; /* number of parents */
    uint8_t flags;
    /* While others are forgotten: a cell that stays needs it, and the next one of these. */
    bool kept;
    ps_path *next_kept;
};

/* As in a row (table.h): a hook adds to `count` of COUNT last. */
enum { COUNT, WEIGHT, LOOKED, COUNTERS };
typedef struct cell {
    ps_path *path;
    const ps_site *request;
    uint64_t thread_id;
    enum ps_path_kind kind;
    uint64_t count[COUNTERS];
    uint64_t sent[COUNTERS]; /* the part of count that the watcher has taken */
    uint64_t cut[COUNTERS];  /* what the watcher has taken and not fired yet */
} cell;

static ps_path overflow = {.id = 1, .site = &ps_site_overflow, .flags = WHAT};
static cell overflow_cells[PS_PATH_KINDS];

/*
 * The VM's threads write, one at a time, and cells are published with a release store. The watcher
 * reads cells and, through them, paths. Neither moves, and none is freed, but with the VM lock and
 * the lock of the flush.
 */
static struct {
    bool on;
    ps_path **paths; /* open addressing */
    uint32_t capacity, used;
    cell *chunk[CHUNKS];
    uint32_t cells;
    uint32_t *index; /* of a cell: its number + 1, or 0 */
    uint32_t index_capacity;
    uint64_t flushes;   /* the watcher's */
    uint64_t forgot_at; /* `flushes` when paths were last forgotten */
    uint64_t dropped;   /* figures without a path of their own */
    bool is_overflowed; /* some of overflow_cells may have figures */
    bool is_refused;    /* there was no memory for a path or a cell since paths were last forgotten */
} call_paths;

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0xbf58476d1ce4e5b9u;
    return hash ^ (hash >> 29);
}

/* ---- Paths ---- */

static uint64_t place_of(const ps_path *parent, const ps_site *site, uint32_t line)
{
    return mix(mix(mix(0x9e3779b97f4a7c15u, (uintptr_t)parent), (uintptr_t)site), line);
}

/* Returns the place of this path, or the free one where it would go. */
static ps_path **find(ps_path **paths, uint32_t capacity, const ps_path *parent, const ps_site *site,
                      uint32_t line)
{
    uint64_t i = place_of(parent, site, line);
    for (;; i++) {
        ps_path **place = &paths[i & (capacity - 1)];
        if (!*place || ((*place)->parent == parent && (*place)->site == site && (*place)->line == line))
            return place;
    }
}

static void *take_memory(size_t size)
{
    void *memory = ps_memory_take(size);
    if (!memory) PS_WRITE(call_paths.is_refused, true);
    return memory;
}

static bool grow_paths(void)
{
    uint32_t capacity = call_paths.capacity ? call_paths.capacity * 2 : 1024;
    ps_path **paths = take_memory(capacity * sizeof(*paths));
    if (!paths) return false;
    for (uint32_t i = 0; i < call_paths.capacity; i++) {
        ps_path *path = call_paths.paths[i];
        if (path) *find(paths, capacity, path->parent, path->site, path->line) = path;
    }
    ps_memory_give(call_paths.paths, call_paths.capacity * sizeof(*paths));
    call_paths.paths = paths;
    call_paths.capacity = capacity;
    return true;
}

static uint64_t number_of(const char *text)
{
    return ps_number_of_text(text, strlen(text));
}

static ps_path *make_path(ps_path *parent, const ps_site *site, uint32_t line, bool what)
{
    ps_path *path = take_memory(sizeof(*path));
    if (!path) return NULL;
    path->parent = parent;
    path->site = site;
    path->line = line;
    path->depth = parent ? parent->depth + 1 : 0;
    path->file_number = number_of(site->path);
    if (what) path->flags |= WHAT;
    else if (ps_coverage_is_own(site->path)) path->flags |= OWN;
    /* 63 bits: versions of bpftrace print larger numbers as negative ones. */
    path->id = mix(mix(mix(parent ? parent->id : 0, number_of(site->name)), path->file_number), line) >> 1;
    if (path->id <= overflow.id) path->id += 2; /* 0 is none */
    return path;
}

static ps_path *add_path(ps_path *parent, const ps_site *site, uint32_t line, bool what)
{
    bool full = (uint64_t)call_paths.used * 4 >= (uint64_t)call_paths.capacity * 3;
    if (call_paths.used == PS_PATHS_MAX || (parent && parent->depth == DEPTH_MAX - 1)) return NULL;
    if (full && !grow_paths()) return NULL;
    ps_path *path = make_path(parent, site, line, what);
    if (!path) return NULL;
    *find(call_paths.paths, call_paths.capacity, parent, site, line) = path;
    PS_ADD(call_paths.used, 1);
    return path;
}

/* A path that is known is found even when there is no memory for another one. */
ps_path *ps_path_child(ps_path *parent, const ps_site *site, uint32_t line, bool what)
{
    if (parent == &overflow || site == &ps_site_overflow) return &overflow;
    ps_path *path = NULL;
    if (call_paths.paths) path = *find(call_paths.paths, call_paths.capacity, parent, site, line);
    if (PS_UNLIKELY(!path)) path = add_path(parent, site, line, what);
    return path ? path : &overflow;
}

/* ---- Cells ---- */

static cell *cell_at(uint32_t number)
{
    return &PS_READ(call_paths.chunk[number / CELLS_PER_CHUNK])[number % CELLS_PER_CHUNK];
}

/* Returns the place in the index that has the number of this cell, or the free one for it. */
static uint32_t *find_cell(uint32_t *index, uint32_t capacity, const cell *key)
{
    uint64_t i = mix(mix(mix((uintptr_t)key->path, key->thread_id), (uintptr_t)key->request), key->kind);
    for (;; i++) {
        uint32_t *place = &index[i & (capacity - 1)];
        if (!*place) return place;
        const cell *other = cell_at(*place - 1);
        if (other->path == key->path && other->thread_id == key->thread_id &&
            other->request == key->request && other->kind == key->kind)
            return place;
    }
}

static void fill_index(void)
{
    for (uint32_t i = 0; i < call_paths.cells; i++)
        *find_cell(call_paths.index, call_paths.index_capacity, cell_at(i)) = i + 1;
}

static bool grow_index(void)
{
    uint32_t capacity = call_paths.index_capacity ? call_paths.index_capacity * 2 : 512;
    uint32_t *index = take_memory(capacity * sizeof(*index));
    if (!index) return false;
    ps_memory_give(call_paths.index, call_paths.index_capacity * sizeof(*index));
    call_paths.index = index;
    call_paths.index_capacity = capacity;
    fill_index();
    return true;
}

static cell *add_cell(const cell *key)
{
    uint32_t number = call_paths.cells;
    bool full = (uint64_t)number * 4 >= (uint64_t)call_paths.index_capacity * 3;
    if (number == PS_PATH_CELLS_MAX || (full && !grow_index())) return NULL;
    if (!call_paths.chunk[number / CELLS_PER_CHUNK]) {
        cell *chunk = take_memory(CELLS_PER_CHUNK * sizeof(*chunk));
        if (!chunk) return NULL;
        PS_WRITE_RELEASE(call_paths.chunk[number / CELLS_PER_CHUNK], chunk);
    }
    *cell_at(number) = *key;
    *find_cell(call_paths.index, call_paths.index_capacity, key) = number + 1;
    PS_WRITE_RELEASE(call_paths.cells, number + 1);
    return cell_at(number);
}

/* NULL: there is no room for it. */
static cell *cell_of(const cell *key)
{
    if (key->path == &overflow) return NULL;
    uint32_t number = 0;
    if (call_paths.index) number = *find_cell(call_paths.index, call_paths.index_capacity, key);
    return PS_LIKELY(number) ? cell_at(number - 1) : add_cell(key);
}

void ps_paths_add(enum ps_path_kind kind, ps_path *path, uint64_t thread_id, const ps_site *request,
                  uint64_t count, uint64_t weight, uint64_t looked)
{
    const cell key = {.path = path, .request = request, .thread_id = thread_id, .kind = kind};
    cell *cell = cell_of(&key);
    if (!cell) {
        cell = &overflow_cells[kind];
        PS_ADD(call_paths.dropped, count);
        PS_WRITE(call_paths.is_overflowed, true);
    }
    PS_ADD(cell->count[WEIGHT], weight);
    PS_ADD(cell->count[LOOKED], looked);
    PS_ADD_LAST(cell->count[COUNT], count);
}

/* ---- The flush ---- */

static void cut_cell(cell *cell)
{
    for (int i = 0; i < COUNTERS; i++) {
        uint64_t now = PS_READ_ACQUIRE(cell->count[i]);
        cell->cut[i] += now - cell->sent[i];
        cell->sent[i] = now;
    }
}

static void cut_cells(void)
{
    uint32_t cells = PS_READ_ACQUIRE(call_paths.cells);
    for (uint32_t i = 0; i < cells; i++) cut_cell(cell_at(i));
    for (int kind = 0; kind < PS_PATH_KINDS; kind++) cut_cell(&overflow_cells[kind]);
}

static void drop_cut(void)
{
    uint32_t cells = PS_READ_ACQUIRE(call_paths.cells);
    for (uint32_t i = 0; i < cells; i++) memset(cell_at(i)->cut, 0, sizeof(cell_at(i)->cut));
    for (int kind = 0; kind < PS_PATH_KINDS; kind++)
        memset(overflow_cells[kind].cut, 0, sizeof(overflow_cells[kind].cut));
}

static bool grew(const cell *cell)
{
    return cell->cut[COUNT] || cell->cut[WEIGHT];
}

static void fire_frame(ps_path *path)
{
    const ps_site *site = path->site;
    const struct ps_more_stack__frame more = {
        .path = site->path,
        .file_number = path->file_number,
        .defined = site->line,
        .flags = path->flags,
    };
    path->fired = call_paths.flushes;
    ps_fire_stack__frame(site->name, site->file, path->line, path->id, path->parent ? path->parent->id : 0,
                         &more);
}

/* Fires the frames of a path that this flush has not fired yet, the outermost one first. */
static uint64_t fire_path(ps_path *path)
{
    ps_path *frames[DEPTH_MAX];
    uint32_t count = 0;
    for (; path && path->fired != call_paths.flushes; path = path->parent) frames[count++] = path;
    for (uint32_t i = count; i-- > 0;) fire_frame(frames[i]);
    return count;
}

static uint64_t fire_cell(cell *cell, ps_path *path)
{
    static const enum ps_probe probes[PS_PATH_KINDS] = {[PS_PATH_CPU] = PS_PROBE_STACK__CPU};
    const ps_site *request = ps_site_or_none(&cell->request);
    uint64_t id = path->id, count = cell->cut[COUNT], weight = cell->cut[WEIGHT], looked = cell->cut[LOOKED];
    if (!grew(cell)) return 0;
    memset(cell->cut, 0, sizeof(cell->cut));
    if (!ps_semaphores[probes[cell->kind]]) return 0;
    uint64_t fired = fire_path(path) + 1;
    switch (cell->kind) {
    case PS_PATH_CPU: {
        const struct ps_more_stack__cpu more = {.request = request->name, .request_number = request->line};
        ps_fire_stack__cpu(id, cell->thread_id, count, weight, looked, &more);
        break;
    }
    case PS_PATH_KINDS: break;
    }
    return fired;
}

static uint64_t fire_cells(void)
{
    uint32_t cells = PS_READ_ACQUIRE(call_paths.cells);
    uint64_t fired = 0;
    PS_WRITE(call_paths.flushes, call_paths.flushes + 1);
    for (uint32_t i = 0; i < cells; i++) fired += fire_cell(cell_at(i), cell_at(i)->path);
    for (int kind = 0; kind < PS_PATH_KINDS && PS_READ(call_paths.is_overflowed); kind++) {
        overflow_cells[kind].kind = (enum ps_path_kind)kind;
        fired += fire_cell(&overflow_cells[kind], &overflow);
    }
    return fired;
}

/* ---- Coming and going ---- */

static void free_paths(void)
{
    for (uint32_t i = 0; i < call_paths.capacity; i++) ps_memory_give(call_paths.paths[i], sizeof(ps_path));
    ps_memory_give(call_paths.paths, call_paths.capacity * sizeof(*call_paths.paths));
    call_paths.paths = NULL;
    PS_WRITE(call_paths.used, 0);
    call_paths.capacity = 0;
}

static void forget(void)
{
    for (uint32_t i = 0; i < CHUNKS; i++) ps_memory_give(call_paths.chunk[i], CELLS_PER_CHUNK * sizeof(cell));
    ps_memory_give(call_paths.index, call_paths.index_capacity * sizeof(*call_paths.index));
    memset(call_paths.chunk, 0, sizeof(call_paths.chunk));
    memset(overflow_cells, 0, sizeof(overflow_cells));
    call_paths.index = NULL;
    call_paths.index_capacity = 0;
    PS_WRITE(call_paths.cells, 0);
    call_paths.is_overflowed = false;
    PS_WRITE(call_paths.is_refused, false);
    free_paths();
}

static void listen(ps_probe_set wanted)
{
    call_paths.on = (wanted & PS_BIT(STACK__FRAME)) != 0;
}

bool ps_paths_are_on(void)
{
    return call_paths.on;
}

/* Until the next flush all figures that could be forgotten are forgotten. */
bool ps_paths_need_upkeep(void)
{
    if (PS_READ(call_paths.forgot_at) == PS_READ(call_paths.flushes)) return false;
    return PS_READ(call_paths.is_refused) || PS_READ(call_paths.used) >= PS_PATHS_MAX / 4 * 3 ||
           PS_READ(call_paths.cells) >= PS_PATH_CELLS_MAX / 4 * 3;
}

/* Keeps the cells with figures that no flush has fired. Returns the paths of these cells. */
static ps_path *forget_fired_cells(void)
{
    uint32_t kept = 0;
    ps_path *paths = NULL;
    for (uint32_t i = 0; i < call_paths.cells; i++) {
        cell *cell = cell_at(i);
        if (!grew(cell) && memcmp(cell->count, cell->sent, sizeof(cell->count)) == 0) continue;
        for (ps_path *path = cell->path; path && !path->kept; path = path->parent) {
            path->kept = true;
            path->next_kept = paths;
            paths = path;
        }
        *cell_at(kept++) = *cell;
    }
    PS_WRITE(call_paths.cells, kept);
    if (call_paths.index) memset(call_paths.index, 0, call_paths.index_capacity * sizeof(*call_paths.index));
    fill_index();
    return paths;
}

/* Frees all paths but those that are kept, which have to find new places in the table. */
static void forget_unused_paths(ps_path *kept)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < call_paths.capacity; i++) {
        ps_path *path = call_paths.paths[i];
        if (path && !path->kept) ps_memory_give(path, sizeof(*path));
        call_paths.paths[i] = NULL;
    }
    for (ps_path *path = kept; path; path = path->next_kept, used++) {
        path->kept = false;
        *find(call_paths.paths, call_paths.capacity, path->parent, path->site, path->line) = path;
    }
    PS_WRITE(call_paths.used, used);
}

void ps_paths_upkeep(void)
{
    if (!ps_flush_try_lock()) return;
    forget_unused_paths(forget_fired_cells());
    PS_WRITE(call_paths.is_refused, false);
    PS_WRITE(call_paths.forgot_at, call_paths.flushes);
    ps_flush_unlock();
}

const ps_feature ps_call_paths_feature = {
    .probes = PS_BIT(STACK__FRAME),
    .cut_rest = cut_cells,
    .drop_cut = drop_cut,
    .lost = &call_paths.dropped,
    .event_probe = PS_PROBE_STACK__FRAME,
    .fire_events = fire_cells,
    .listen = listen,
    .forget = forget,
};

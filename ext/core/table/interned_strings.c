#include "table/interned_strings.h"

#include <stdbool.h>
#include <string.h>

#include "base/atomic.h"
#include "base/hash.h"
#include "base/memory.h"

#define CHUNK_BYTES ((size_t)64 << 10)

const ps_site ps_site_overflow = {"(overflow)", "", "", 0};
const ps_site ps_site_none = {"", "", "", 0};

/* A set of pointers: open addressing, grown by doubling. */
struct set {
    const void **slots;
    size_t capacity; /* 0 or a power of two */
    size_t used;
};

static struct set strings;
static struct set sites;

/* Holds the strings and sites. */
static struct chunk {
    struct chunk *before; /* the previous chunk, which is full */
    char bytes[CHUNK_BYTES - sizeof(struct chunk *)];
} * chunk;
static size_t chunk_used;

uint32_t ps_sites_generation;

static void *take_from_chunk(size_t size)
{
    size = (size + 7) & ~(size_t)7;
    if (!chunk || size > sizeof(chunk->bytes) - chunk_used) {
        struct chunk *fresh = ps_memory_take(sizeof(*fresh));
        if (!fresh) return NULL;
        fresh->before = chunk;
        chunk = fresh;
        chunk_used = 0;
    }
    void *place = chunk->bytes + chunk_used;
    chunk_used += size;
    return place;
}

static uint64_t hash_bytes(const char *bytes, size_t size)
{
    uint64_t hash = ps_fnv1a(bytes, size);
    return hash ^ (hash >> 32);
}

static uint64_t hash_string_slot(const void *slot)
{
    return hash_bytes(slot, strlen(slot));
}

static uint64_t hash_site(const char *name, const char *path, uint64_t line)
{
    uint64_t hash = ((uint64_t)(uintptr_t)name * 31 + (uint64_t)(uintptr_t)path) * 31 + line;
    hash *= 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 32);
}

static uint64_t hash_site_slot(const void *slot)
{
    const ps_site *site = slot;
    return hash_site(site->name, site->path, site->line);
}

/* Makes room for one more. */
static bool set_reserve(struct set *set, uint64_t (*hash)(const void *))
{
    if (set->used * 4 < set->capacity * 3) return true;
    size_t capacity = set->capacity ? set->capacity * 2 : 1024;
    const void **slots = ps_memory_take(capacity * sizeof(*slots));
    if (!slots) return set->used + 1 < set->capacity;
    for (size_t i = 0; i < set->capacity; i++) {
        if (!set->slots[i]) continue;
        size_t place = hash(set->slots[i]) & (capacity - 1);
        while (slots[place]) place = (place + 1) & (capacity - 1);
        slots[place] = set->slots[i];
    }
    ps_memory_give((void *)set->slots, set->capacity * sizeof(*slots));
    set->slots = slots;
    set->capacity = capacity;
    return true;
}

/* set_reserve() has made room. */
static void set_add(struct set *set, uint64_t hash, const void *slot)
{
    size_t place = hash & (set->capacity - 1);
    while (set->slots[place]) place = (place + 1) & (set->capacity - 1);
    set->slots[place] = slot;
    set->used++;
}

static void set_clear(struct set *set)
{
    ps_memory_give((void *)set->slots, set->capacity * sizeof(*set->slots));
    *set = (struct set){0};
}

void ps_sites_clear(void)
{
    ps_sites_generation++;
    set_clear(&strings);
    set_clear(&sites);
    while (chunk) {
        struct chunk *full = chunk;
        chunk = full->before;
        ps_memory_give(full, sizeof(*full));
    }
}

static const char *find_string(uint64_t hash, const char *bytes)
{
    if (!strings.capacity) return NULL;
    size_t place = hash & (strings.capacity - 1);
    for (; strings.slots[place]; place = (place + 1) & (strings.capacity - 1)) {
        if (strcmp(strings.slots[place], bytes) == 0) return strings.slots[place];
    }
    return NULL;
}

/*
 * bytes: valid UTF-8, with a NUL at bytes[size]. Strings that are stored already are found even
 * when memory is full.
 */
static const char *intern_string(const char *bytes, size_t size)
{
    uint64_t hash = hash_bytes(bytes, size);
    const char *known = find_string(hash, bytes);
    if (known) return known;
    char *copy = set_reserve(&strings, hash_string_slot) ? take_from_chunk(size + 1) : NULL;
    if (!copy) return NULL;
    memcpy(copy, bytes, size + 1);
    set_add(&strings, hash, copy);
    return copy;
}

/*
 * Returns the length of the valid UTF-8 character at s, at most size bytes. 0 when there is none.
 */
static size_t utf8_length(const unsigned char *s, size_t size)
{
    size_t length;
    uint32_t point;
    if (s[0] < 0x80) return s[0] ? 1 : 0;
    if (s[0] >= 0xc2 && s[0] <= 0xdf) length = 2, point = s[0] & 0x1f;
    else if (s[0] >= 0xe0 && s[0] <= 0xef) length = 3, point = s[0] & 0x0f;
    else if (s[0] >= 0xf0 && s[0] <= 0xf4) length = 4, point = s[0] & 0x07;
    else return 0;
    if (size < length) return 0;
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        point = point << 6 | (s[i] & 0x3f);
    }
    bool overlong = (length == 3 && point < 0x800) || (length == 4 && point < 0x10000);
    bool surrogate = point >= 0xd800 && point <= 0xdfff;
    return overlong || surrogate || point > 0x10ffff ? 0 : length;
}

size_t ps_name_append(char *name, size_t size, const char *text, size_t length)
{
    size_t room = PS_NAME_MAX - size;
    if (length > room) length = room;
    memcpy(name + size, text, length);
    name[size + length] = '\0';
    return size + length;
}

size_t ps_copy_utf8(char *to, size_t capacity, const char *from, size_t size)
{
    size_t written = 0;
    for (size_t i = 0; i < size;) {
        size_t length = utf8_length((const unsigned char *)from + i, size - i);
        size_t step = length ? length : 1;
        if (written + step >= capacity) break;
        if (length) memcpy(to + written, from + i, length);
        else to[written] = '?';
        written += step;
        i += step;
    }
    to[written] = '\0';
    return written;
}

size_t ps_shorten(char *to, const char *path, size_t size)
{
    static const char mark[] = "...";
    if (size <= PS_FILE_MAX) {
        memcpy(to, path, size + 1);
        return size;
    }
    const char *tail = path + size - (PS_FILE_MAX - (sizeof(mark) - 1));
    while (((unsigned char)*tail & 0xc0) == 0x80) tail++;
    size_t tail_size = (size_t)(path + size - tail);
    memcpy(to, mark, sizeof(mark) - 1);
    memcpy(to + sizeof(mark) - 1, tail, tail_size + 1);
    return sizeof(mark) - 1 + tail_size;
}

static const ps_site *find_site(uint64_t hash, const char *name, const char *path, uint64_t line)
{
    if (!sites.capacity) return NULL;
    size_t place = hash & (sites.capacity - 1);
    for (; sites.slots[place]; place = (place + 1) & (sites.capacity - 1)) {
        const ps_site *site = sites.slots[place];
        if (site->name == name && site->path == path && site->line == line) return site;
    }
    return NULL;
}

const ps_site *ps_site_intern(const char *name, size_t name_size, const char *path, size_t path_size,
                              uint64_t line)
{
    char clean_name[PS_NAME_MAX + 1], clean_path[PS_NAME_MAX + 1], short_path[PS_FILE_MAX + 1];
    if (path_size > PS_NAME_MAX) {
        path += path_size - PS_NAME_MAX;
        path_size = PS_NAME_MAX;
        /* Do not cut within a character: up to three more bytes may belong to it. */
        for (int i = 0; i < 3 && ((unsigned char)*path & 0xc0) == 0x80; i++) path++, path_size--;
    }
    size_t clean_name_size = ps_copy_utf8(clean_name, sizeof(clean_name), name, name_size);
    size_t clean_path_size = ps_copy_utf8(clean_path, sizeof(clean_path), path, path_size);
    size_t short_size = ps_shorten(short_path, clean_path, clean_path_size);

    const char *own_name = intern_string(clean_name, clean_name_size);
    const char *own_path = intern_string(clean_path, clean_path_size);
    const char *own_file = clean_path_size <= PS_FILE_MAX ? own_path : intern_string(short_path, short_size);
    if (!own_name || !own_path || !own_file) return &ps_site_overflow;

    uint64_t hash = hash_site(own_name, own_path, line);
    const ps_site *known = find_site(hash, own_name, own_path, line);
    if (known) return known;
    ps_site *site = set_reserve(&sites, hash_site_slot) ? take_from_chunk(sizeof(*site)) : NULL;
    if (!site) return &ps_site_overflow;
    *site = (ps_site){own_name, own_file, own_path, line};
    set_add(&sites, hash, site);
    return site;
}

#include "hooks.h"

#include "base/atomic.h"
#include "base/memory.h"

/*
 * A code object of which something is known has a mark. When a marked code object is freed, CPython
 * calls note_freed(), which counts that by the hash of the address. What was put before the count
 * changed is not valid any more.
 *
 * CPython reports nothing about classes. A class has a version tag, which no other class ever has.
 * If the class has none at the moment, or another one than it had, its name is compared.
 * `C.__qualname__ = ...` leaves the tag and puts another str into the class, so the address of that
 * str is compared as well.
 */
enum { FREED_BITS = 12, SMALLEST = 256 };

struct ps_place {
    ps_address type, code;
    int64_t number;
    void *known; /* NULL: nothing is here */
    const char *name;
    ps_address qualname; /* of the type, as is the version */
    uint32_t version;
    uint32_t freed; /* code objects freed at such addresses until it was put */
    bool again;     /* it was found since room was made */
};

static Py_ssize_t mark_index = -1;
static uint32_t freed[1 << FREED_BITS];

static uint32_t *freed_like(const PyCodeObject *code)
{
    return &freed[ps_address_hash(PS_ADDRESS(code), FREED_BITS)];
}

/* Called by CPython with the mark of a code object that is freed. */
static void note_freed(void *code)
{
    PS_FETCH_ADD(*freed_like(code), 1);
}

void ps_places_init(void)
{
    mark_index = PyUnstable_Eval_RequestCodeExtraIndex(note_freed);
}

/* The mark is the address. False: there is no room for a mark. */
static bool mark(PyCodeObject *code)
{
    void *marked = NULL;
    if (mark_index < 0 || PyUnstable_Code_GetExtra((PyObject *)code, mark_index, &marked) < 0) return false;
    return marked || PyUnstable_Code_SetExtra((PyObject *)code, mark_index, code) == 0;
}

static uint32_t hash_of(ps_address type, ps_address code, int64_t number)
{
    uint64_t hash = type.value * 0x9e3779b97f4a7c15u ^ code.value * 0xc2b2ae3d27d4eb4fu ^
                    (uint64_t)number * 0xbf58476d1ce4e5b9u;
    hash ^= hash >> 29;
    return (uint32_t)(hash * 0x9e3779b97f4a7c15u >> 32);
}

/* Its place, or the empty place where it would go. There is always an empty one. */
static struct ps_place *place_of(const ps_places *places, ps_address type, ps_address code, int64_t number)
{
    uint32_t mask = places->capacity - 1, i = hash_of(type, code, number) & mask;
    for (; places->all[i].known; i = (i + 1) & mask) {
        const struct ps_place *place = &places->all[i];
        if (ps_address_equal(place->code, code) && ps_address_equal(place->type, type) &&
            place->number == number)
            break;
    }
    return &places->all[i];
}

void *ps_places_find(ps_places *places, PyTypeObject *type, PyCodeObject *code, int64_t number)
{
    if (PS_UNLIKELY(!places->capacity)) return NULL;
    struct ps_place *place = place_of(places, PS_ADDRESS(type), PS_ADDRESS(code), number);
    if (PS_UNLIKELY(!place->known || (code && place->freed != PS_READ(*freed_like(code))))) return NULL;
    if (type) {
        uint32_t version = ps_type_version(type);
        ps_address qualname = ps_type_qualname(type);
        if (PS_UNLIKELY(!version || version != place->version ||
                        !ps_address_equal(qualname, place->qualname))) {
            if (!ps_type_is_named(type, place->name)) return NULL;
            place->version = version;
            place->qualname = qualname;
        }
    }
    if (!place->again) place->again = true;
    return place->known;
}

/*
 * Places that were found again stay; if they are many, the table grows. False: there is no memory,
 * and nothing stays.
 */
static bool make_room(ps_places *places)
{
    uint32_t kept = 0, capacity = places->capacity ? places->capacity : SMALLEST;
    for (uint32_t i = 0; i < places->capacity; i++) kept += places->all[i].known && places->all[i].again;
    if (kept * 4 >= capacity) capacity *= 2;
    ps_places fresh = {.all = ps_memory_take(capacity * sizeof(*fresh.all)), .capacity = capacity};
    for (uint32_t i = 0; fresh.all && i < places->capacity; i++) {
        struct ps_place *place = &places->all[i];
        if (!place->known || !place->again) continue;
        place->again = false;
        *place_of(&fresh, place->type, place->code, place->number) = *place;
        fresh.used++;
    }
    ps_places_clear(places);
    if (fresh.all) *places = fresh;
    return fresh.all != NULL;
}

void ps_places_put(ps_places *places, PyTypeObject *type, PyCodeObject *code, int64_t number, void *known,
                   const char *name)
{
    if (code && !mark(code)) return;
    if (places->used * 4 >= places->capacity * 3 && !make_room(places)) return;
    struct ps_place *place = place_of(places, PS_ADDRESS(type), PS_ADDRESS(code), number);
    if (!place->known) places->used++;
    *place = (struct ps_place){.type = PS_ADDRESS(type),
                               .code = PS_ADDRESS(code),
                               .number = number,
                               .known = known,
                               .name = name,
                               .qualname = type ? ps_type_qualname(type) : PS_NO_ADDRESS,
                               .version = type ? ps_type_version(type) : 0,
                               .freed = code ? PS_READ(*freed_like(code)) : 0};
}

void ps_places_clear(ps_places *places)
{
    ps_memory_give(places->all, places->capacity * sizeof(*places->all));
    *places = (ps_places){0};
}

#include "table/kept.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"

static struct {
    const ps_kept *const *lists;
    size_t count;
    void (*retain)(uintptr_t object), (*release)(uintptr_t object);
} keeper;

void ps_kept_init(const ps_kept *const *lists, size_t count, void (*retain)(uintptr_t),
                  void (*release)(uintptr_t))
{
    keeper.lists = lists;
    keeper.count = count;
    keeper.retain = retain;
    keeper.release = release;
}

static bool is_end(const ps_kept *kept)
{
    return !kept->first && !kept->each;
}

static void visit_range(const ps_kept *kept, void (*visit)(void *place))
{
    if (kept->each) kept->each(visit);
    for (size_t i = 0; i < kept->count; i++) visit((char *)kept->first + i * kept->size);
}

void ps_kept_visit(void (*visit)(void *place))
{
    for (size_t i = 0; i < keeper.count; i++)
        for (const ps_kept *kept = keeper.lists[i]; !is_end(kept); kept++)
            if (kept->how == PS_KEPT_HELD) visit_range(kept, visit);
}

void ps_kept_collected(void)
{
    for (size_t i = 0; i < keeper.count; i++)
        for (const ps_kept *kept = keeper.lists[i]; !is_end(kept); kept++)
            if (kept->how == PS_KEPT_COMPARED) memset(kept->first, 0, kept->count * kept->size);
}

#ifdef PS_CHECKS
static __thread struct {
    const void *place;
    bool found;
} searched;

static void compare(void *place)
{
    searched.found |= place == searched.place;
}

static void check(const void *place)
{
    searched.place = place;
    searched.found = false;
    ps_kept_visit(compare);
    if (searched.found) return;
    fprintf(stderr, "probescope: ps_keep() at %p, which no ps_kept declares\n", place);
    abort();
}
#else
static void check(const void *place) {}
#endif

void ps_keep(void *place, uintptr_t object)
{
    uintptr_t *kept = place, before = *kept;
    check(place);
    if (object && keeper.retain) keeper.retain(object);
    PS_WRITE(*kept, object);
    if (before && keeper.release) keeper.release(before);
}

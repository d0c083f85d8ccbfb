#include "table/kept.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"

static struct {
    ps_kept_list *lists;
    void (*retain)(uintptr_t object), (*release)(uintptr_t object);
} keeper;

void ps_kept_register(ps_kept_list *list)
{
    list->next = keeper.lists;
    keeper.lists = list;
}

void ps_kept_init(void (*retain)(uintptr_t), void (*release)(uintptr_t))
{
    keeper.retain = retain;
    keeper.release = release;
}

static void visit_range(const ps_kept *kept, void (*visit)(void *place))
{
    if (kept->each) kept->each(visit);
    for (size_t i = 0; i < kept->count; i++) visit((char *)kept->first + i * kept->size);
}

void ps_kept_visit(void (*visit)(void *place))
{
    for (const ps_kept_list *list = keeper.lists; list; list = list->next)
        for (size_t i = 0; i < list->count; i++)
            if (list->kept[i].how == PS_KEPT_HELD) visit_range(&list->kept[i], visit);
}

void ps_kept_collected(void)
{
    for (const ps_kept_list *list = keeper.lists; list; list = list->next)
        for (size_t i = 0; i < list->count; i++) {
            const ps_kept *kept = &list->kept[i];
            if (kept->how == PS_KEPT_COMPARED) memset(kept->first, 0, kept->count * kept->size);
        }
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

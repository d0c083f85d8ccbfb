#include "calls/open_calls.h"

#include <stddef.h>
#include <string.h>

#include "base/memory.h"

ps_open_calls *ps_open_calls_new(void)
{
    return ps_memory_take(sizeof(ps_open_calls));
}

void ps_open_calls_free(ps_open_calls *calls)
{
    if (!calls) return;
    ps_memory_give(calls->list, calls->capacity * sizeof(ps_open_call));
    ps_memory_give(calls, sizeof(*calls));
}

static bool grow(ps_open_calls *calls)
{
    uint32_t capacity = calls->capacity ? calls->capacity * 2 : 16;
    ps_open_call *list = capacity > PS_OPEN_CALLS_MAX ? NULL : ps_memory_take(capacity * sizeof(*list));
    if (!list) return false;
    if (calls->list) memcpy(list, calls->list, calls->depth * sizeof(*list));
    ps_memory_give(calls->list, calls->capacity * sizeof(*list));
    calls->list = list;
    calls->capacity = capacity;
    return true;
}

ps_open_call *ps_open_calls_enter(ps_open_calls *calls, uint64_t key)
{
    calls->deepening = true;
    if (calls->untimed || (calls->depth == calls->capacity && !grow(calls))) {
        calls->untimed++;
        return NULL;
    }
    ps_open_call *call = &calls->list[calls->depth++];
    *call = (ps_open_call){.key = key, .raises = calls->raises, .unwinding = calls->unwinding};
    calls->unwinding = false;
    return call;
}

bool ps_open_calls_leave(ps_open_calls *calls, uint64_t key, uint32_t (*real_depth)(void), ps_open_call *left)
{
    /*
     * True where a deep recursion turns back. Calls may have been unwound without exit events, so
     * the VM is asked.
     */
    bool turned = calls->deepening && calls->depth >= PS_OPEN_CALLS_SUSPECT;
    calls->deepening = false;
    if (turned && calls->depth + calls->untimed > real_depth()) {
        /*
         * It is not known which calls are still open. The exit is taken for that of the call that
         * was entered last.
         */
        calls->list[0] = calls->list[calls->depth - 1];
        calls->depth = !calls->untimed;
        calls->untimed = 0;
    }
    if (calls->untimed) {
        calls->untimed--;
        return false;
    }
    uint32_t depth = calls->depth;
    while (depth && calls->list[depth - 1].key != key) depth--;
    if (!depth) return false;
    calls->depth = depth - 1;
    *left = calls->list[depth - 1];
    return true;
}

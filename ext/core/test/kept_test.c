#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "table/kept.h"

/* Objects are numbers here, and their references are counted. */
static int references[16];

static void retain(uintptr_t object)
{
    references[object]++;
}

static void release(uintptr_t object)
{
    references[object]--;
}

static struct {
    uintptr_t one, undeclared;
    struct {
        int other;
        uintptr_t object;
    } many[3];
    uintptr_t cache[4], lasting[2];
} kept;

static struct element {
    struct element *next;
    uintptr_t object;
} second = {NULL, 0}, list = {&second, 0};

static void each(void (*visit)(void *place))
{
    for (struct element *at = &list; at; at = at->next) visit(&at->object);
}

/* Two files of an extension. */
PS_KEPT(PS_HELD(kept.one), PS_HELD_FIELD(kept.many, object))
static const ps_kept other_file[] = {PS_COMPARED(kept.cache), PS_LASTING(kept.lasting), PS_HELD_EACH(each)};
static ps_kept_list other_list = {other_file, sizeof(other_file) / sizeof(other_file[0]), NULL};

static uintptr_t sum;
static int visited;

static void add(void *place)
{
    sum += *(uintptr_t *)place;
    visited++;
}

static void counts_references(void)
{
    PS_KEEP(kept.one, 1);
    CHECK_EQUAL(references[1], 1);
    PS_KEEP(kept.one, 2);
    CHECK_EQUAL(kept.one, 2);
    CHECK_EQUAL(references[1], 0);
    CHECK_EQUAL(references[2], 1);
    PS_KEEP(kept.one, 2);
    CHECK_EQUAL(references[2], 1);
    PS_KEEP(kept.one, 0);
    CHECK_EQUAL(references[2], 0);
}

static void visits_all_that_is_held(void)
{
    PS_KEEP(kept.one, 1);
    for (int i = 0; i < 3; i++) PS_KEEP(kept.many[i].object, 2);
    PS_KEEP(list.object, 3);
    PS_KEEP(second.object, 4);
    for (int i = 0; i < 3; i++) kept.many[i].other = 100;
    kept.cache[0] = kept.lasting[0] = kept.undeclared = 100;
    sum = 0, visited = 0;
    ps_kept_visit(add);
    CHECK_EQUAL(visited, 6);
    CHECK_EQUAL(sum, 1 + 3 * 2 + 3 + 4);
}

static void empties_what_is_compared(void)
{
    for (int i = 0; i < 4; i++) kept.cache[i] = 5;
    kept.lasting[1] = 6;
    PS_KEEP(kept.one, 1);
    ps_kept_collected();
    for (int i = 0; i < 4; i++) CHECK_EQUAL(kept.cache[i], 0);
    CHECK_EQUAL(kept.lasting[1], 6);
    CHECK_EQUAL(kept.one, 1);
}

/* Does ps_keep() end a child there? */
static bool aborts_at(void *place)
{
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(2);
        signal(SIGABRT, SIG_DFL);
        ps_keep(place, 1);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void aborts_at_an_undeclared_place(void)
{
    CHECK(aborts_at(&kept.undeclared));
    CHECK(aborts_at(&kept.cache[0]));
    CHECK(aborts_at(&kept.lasting[0]));
    CHECK(!aborts_at(&kept.many[2].object));
    CHECK(!aborts_at(&second.object));
}

static void keeps_without_references(void)
{
    ps_kept_init(NULL, NULL);
    references[1] = references[7] = 0;
    PS_KEEP(kept.one, 7);
    PS_KEEP(kept.one, 1);
    CHECK_EQUAL(kept.one, 1);
    CHECK_EQUAL(references[7], 0);
    CHECK_EQUAL(references[1], 0);
}

int main(void)
{
    ps_kept_register(&other_list);
    ps_kept_init(retain, release);
    RUN(counts_references);
    RUN(visits_all_that_is_held);
    RUN(empties_what_is_compared);
    RUN(aborts_at_an_undeclared_place);
    RUN(keeps_without_references);
    return check_report("kept");
}

/*
 * Measures one fire, in turns in one process: a static USDT, this project's run-time probe, and
 * upstream's libstapsdt if it is given.
 *
 *   fire OURS [UPSTREAM]      libraries, by path
 *
 * Prints "ready". For each line "idle", "attached" or "once" on stdin it prints a line "NAME NS"
 * for each of them, with the median of the turns.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libstapsdt.h"
#include "usdt/probe.h"

enum { TURNS = 501, IDLE = 20000, ATTACHED = 200, LIBRARIES = 2 };

volatile uint16_t ps_semaphores[PS_PROBE_COUNT] __attribute__((section(".probes"), visibility("hidden")));

/* The probe of a program that defines its probes at compile time. */
PS_SITE_FUNCTION void static_site(uint64_t a, uint64_t b)
{
    PS_REG(0, a);
    PS_REG(1, b);
    PS_EMIT("fired", PS_OPERAND(0) " " PS_OPERAND(1), PS_SEMAPHORE(0), "r"(reg0), "r"(reg1));
}

static void fire_static(int count)
{
    for (int i = 0; i < count; i++)
        if (ps_semaphores[0]) static_site((uint64_t)i, (uint64_t)-i);
}

static struct library {
    const char *name;
    SDTProbe_t *probe;
    void (*fire)(SDTProbe_t *, ...);
    int (*is_enabled)(SDTProbe_t *);
} libraries[LIBRARIES];

static void fire_library(const struct library *library, int count)
{
    for (int i = 0; i < count; i++) library->fire(library->probe, (uint64_t)i, (int64_t)-i);
}

static void ask_library(const struct library *library, int count)
{
    for (int i = 0; i < count; i++)
        if (library->is_enabled(library->probe)) library->fire(library->probe, (uint64_t)i, (int64_t)-i);
}

static void *symbol(void *library, const char *name)
{
    void *address = dlsym(library, name);
    if (address) return address;
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
}

static void load(struct library *to, const char *path, const char *name)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fprintf(stderr, "%s\n", dlerror());
    if (!library) exit(1);
    SDTProvider_t *(*init)(const char *) =
        (SDTProvider_t * (*)(const char *)) symbol(library, "providerInit");
    SDTProbe_t *(*add)(SDTProvider_t *, const char *, int, ...) = symbol(library, "providerAddProbe");
    int (*to_file)(SDTProvider_t *, MemFDOption_t) =
        (int (*)(SDTProvider_t *, MemFDOption_t))symbol(library, "providerUseMemfd");
    int (*load_provider)(SDTProvider_t *) = (int (*)(SDTProvider_t *))symbol(library, "providerLoad");
    SDTProvider_t *provider = init(name);
    *to = (struct library){name, add(provider, "fired", 2, uint64, int64), symbol(library, "probeFire"),
                           symbol(library, "probeIsEnabled")};
    to_file(provider, memfd_disabled);
    if (load_provider(provider) != 0) exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/*
 * The measured ways: the static site, and each library, fired directly and after an enabled check.
 */
enum { WAYS = 1 + 2 * LIBRARIES };

static const struct library *library_of(int way)
{
    return &libraries[way > 0 ? (way - 1) / 2 : 0];
}

static double take_turn(int way, int count)
{
    double start = now();
    if (way == 0) fire_static(count);
    else if (way % 2) fire_library(library_of(way), count);
    else ask_library(library_of(way), count);
    return (now() - start) / count;
}

static void measure(int count)
{
    static double ns[WAYS][TURNS];
    for (int turn = 0; turn < TURNS; turn++)
        for (int way = 0; way < WAYS; way++)
            if (library_of(way)->name) ns[way][turn] = take_turn(way, count);
    for (int way = 0; way < WAYS; way++) {
        if (!library_of(way)->name) continue;
        qsort(ns[way], TURNS, sizeof(double), ascending);
        printf("%s%s %.2f\n", way == 0 ? "static" : library_of(way)->name,
               way > 0 && way % 2 == 0 ? ".asked" : "", ns[way][TURNS / 2]);
    }
    printf("done\n");
}

int main(int argc, char **argv)
{
    char line[32];
    setlinebuf(stdout);
    for (int i = 1; i < argc && i <= LIBRARIES; i++)
        load(&libraries[i - 1], argv[i], i == 1 ? "ours" : "upstream");
    printf("ready\n");
    while (fgets(line, sizeof(line), stdin))
        measure(strcmp(line, "idle\n") == 0 ? IDLE : strcmp(line, "once\n") == 0 ? 1 : ATTACHED);
    return 0;
}

/*
 * A process with mappings that a spec chooses, for the specs of the readers of foreign processes.
 * It prints "ready" when it and each of its children are set up.
 *
 *   mapper [--name NAME] [--user UID] [--children N] [--chain N] [--each] [--mappings N]
 *          [--context ADDRESS SIZE] [--become PATH] FILE...
 *
 * FILE: mapped as executable at 0x10000000, each later one 0x10000000 behind the last.
 * --each: child N maps FILE.N instead of FILE.
 * --mappings N: N more mappings of the first FILE, of a page each.
 * --children N: N children beside each other.
 * --chain N: N processes below each other.
 * --context: a mapping with the name of a process context (OTEP 4719), whose payload has this
 *   address and size.
 * --become PATH: its root becomes the folder of the first FILE. In that folder, the path of FILE
 *   leads to a link to PATH, or to a FIFO.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static void fail(const char *what)
{
    perror(what);
    _exit(1);
}

static void *map(const char *path, uintptr_t at, size_t size)
{
    const int file = open(path, O_RDONLY);
    if (file < 0) fail(path);
    struct stat found;
    fstat(file, &found);
    void *mapped = mmap((void *)at, size ? size : (size_t)found.st_size, PROT_READ | PROT_EXEC,
                        MAP_PRIVATE | (at ? MAP_FIXED_NOREPLACE : 0), file, 0);
    if (mapped == MAP_FAILED) fail("mmap");
    close(file);
    return mapped;
}

/* A header of version 2 with the address and the size of the payload. */
static void publish(uint64_t address, uint32_t size)
{
    const int file = memfd_create("OTEL_CTX", 0);
    struct {
        char signature[8];
        uint32_t version, size;
        uint64_t published, payload;
    } head = {"OTEL_CTX", 2, size, 1, address};
    if (ftruncate(file, 4096) < 0 || write(file, &head, sizeof head) < 0) fail("the context");
    if (mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED) fail("the context");
}

int main(int argc, char **argv)
{
    const char *name = NULL, *become = NULL, *context = NULL, *files[16];
    int children = 0, chain = 0, each = 0, mappings = 0, user = 0, count = 0;
    uint32_t size = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--name")) name = argv[++i];
        else if (!strcmp(argv[i], "--user")) user = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--children")) children = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--chain")) chain = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--each")) each = 1;
        else if (!strcmp(argv[i], "--mappings")) mappings = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--become")) become = argv[++i];
        else if (!strcmp(argv[i], "--context")) context = argv[++i], size = (uint32_t)atoi(argv[++i]);
        else if (count < 16) files[count++] = argv[i];
    }
    int number = 0, from[2], byte = 0;
    if (pipe(from) < 0) fail("pipe");
    for (; number < children; number++)
        if (!fork()) break;
    const int parent = children && number == children;
    for (int depth = 0; depth < chain; depth++) {
        const pid_t child = fork();
        if (child < 0) fail("fork");
        if (child) break;
        if (depth + 1 == chain) puts("ready"), fflush(stdout);
    }
    if (!parent) {
        for (int i = 0; i < count; i++) {
            char path[4096];
            snprintf(path, sizeof path, each ? "%s.%d" : "%s", files[i], number);
            map(path, 0x10000000u * (uintptr_t)(i + 1), 0);
        }
        for (int i = 0; i < mappings; i++) map(files[0], 0, 4096);
        if (context) publish(strtoull(context, NULL, 0), size);
        if (become) {
            char root[2048], inside[4096], make[4200];
            snprintf(root, sizeof root, "%s", files[0]);
            *strrchr(root, '/') = 0;
            snprintf(inside, sizeof inside, "%s%s", root, files[0]);
            snprintf(make, sizeof make, "mkdir -p \"$(dirname '%s')\"", inside);
            if (system(make) || (strcmp(become, "fifo") ? symlink(become, inside) : mkfifo(inside, 0666)))
                fail(inside);
            if (chroot(root)) fail(root);
        }
        if (name) prctl(PR_SET_NAME, name);
        if (user && (setgid(user) || setuid(user))) fail("setuid");
        if (user) prctl(PR_SET_DUMPABLE, 1);
        if (children && write(from[1], "", 1) < 0) fail("write");
    }
    for (int i = 0; parent && i < children; i++)
        if (read(from[0], &byte, 1) < 1) fail("read");
    if ((parent || !children) && !chain) puts("ready"), fflush(stdout);
    for (;;) pause();
}

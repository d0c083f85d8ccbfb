#include "base/task_file.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/thread_id.h"

/* Added in Linux 5.9; older headers do not define it. */
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1u << 1)
#endif

enum { KEPT = 32 };

/*
 * For a thread with a table of files of its own. A forked child inherits the table of the thread
 * that forked.
 */
static __thread struct {
    bool tried, apart;
    uint32_t opened;
    struct kept {
        int tid, file; /* tid 0: none */
        const char *name;
    } kept[KEPT];
} own;

static int open_file(int tid, const char *name)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d/%s", tid, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static struct kept *keep(int tid, const char *name)
{
    for (int i = 0; i < KEPT; i++)
        if (own.kept[i].tid == tid && own.kept[i].name == name) return &own.kept[i];
    int file = open_file(tid, name);
    if (file < 0) return NULL;
    struct kept *oldest = &own.kept[own.opened++ % KEPT];
    if (oldest->tid) close(oldest->file);
    *oldest = (struct kept){.tid = tid, .file = file, .name = name};
    return oldest;
}

/* The file of a thread that has ended has no text, and its id may be given to another thread. */
static ssize_t read_kept(int tid, const char *name, char *text, size_t size)
{
    struct kept *kept = keep(tid, name);
    if (!kept) return -1;
    ssize_t length = pread(kept->file, text, size, 0);
    if (length > 0) return length;
    close(kept->file);
    kept->tid = 0;
    return length;
}

static ssize_t read_once(int tid, const char *name, char *text, size_t size)
{
    int file = open_file(tid, name);
    if (file < 0) return -1;
    ssize_t length = read(file, text, size);
    close(file);
    return length;
}

bool ps_task_file_read(int tid, const char *name, char *text, size_t size)
{
    ssize_t length = own.apart ? read_kept(tid, name, text, size - 1) : read_once(tid, name, text, size - 1);
    text[length > 0 ? length : 0] = 0;
    return length > 0;
}

/* A system that emulates Linux may ignore the flag. Such systems have no `sched`. */
static bool is_linux(void)
{
    char text[64];
    return read_once((int)ps_thread_id(), "sched", text, sizeof(text)) > 0;
}

bool ps_task_files_apart(void)
{
    if (own.tried) return own.apart;
    own.tried = true;
    if ((int)ps_thread_id() == (int)getpid() || !is_linux()) return false;
    /*
     * An empty table, and not a copy that is closed: a copy would keep the ends of the
     * application's pipes open meanwhile.
     */
    own.apart = syscall(SYS_close_range, 0u, ~0u, CLOSE_RANGE_UNSHARE) == 0;
    return own.apart;
}

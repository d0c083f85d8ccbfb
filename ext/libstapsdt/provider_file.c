#include "provider_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef MFD_EXEC
#define MFD_EXEC 16u
#endif

/* Files whose names end in this are ours to remove. */
#define SUFFIX ".so"
/*
 * Another process may lock the file for a moment, or remove it. Then opening it is tried again: at
 * once, and later each millisecond, because the other process may have lost its CPU. A process that
 * spoils every attempt does so on purpose.
 */
enum { ATTEMPTS = 100, AT_ONCE = 10 };

static pid_t swept_by;

static bool is_private(int directory)
{
    struct stat status;
    if (fstat(directory, &status) == 0 && status.st_uid == geteuid() && (status.st_mode & 077) == 0)
        return true;
    errno = EPERM;
    return false;
}

/* Writes the path of the directory. */
static bool locate(enum ps_file_place place, char *path)
{
    if (place == PS_FILE_OF_TMP)
        return snprintf(path, PS_FILE_PATH, "/tmp/probescope-%u", (unsigned)geteuid()) > 0;
    const char *base = secure_getenv("XDG_RUNTIME_DIR");
    struct stat status;
    /* After `sudo` or `su` the variable may name another user's directory. */
    if (base && base[0] == '/' && stat(base, &status) == 0 && status.st_uid == geteuid() &&
        snprintf(path, PS_FILE_PATH, "%s/probescope", base) < PS_FILE_PATH - PS_FILE_NAME)
        return true;
    errno = ENOENT;
    return false;
}

static int open_directory(const char *path)
{
    if (mkdir(path, 0700) != 0 && errno != EEXIST) return -1;
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (directory < 0 || is_private(directory)) return directory;
    close(directory);
    return -1;
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static void remove_if_unused(int directory, const char *name)
{
    int file = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return;
    struct stat status, named;
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && flock(file, LOCK_EX | LOCK_NB) == 0 &&
        fstatat(directory, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && same(&status, &named))
        unlinkat(directory, name, 0);
    close(file);
}

static bool is_ours(const char *name)
{
    size_t length = strlen(name), suffix = strlen(SUFFIX);
    return length > suffix && strcmp(name + length - suffix, SUFFIX) == 0;
}

/* Removes the files of killed processes. */
static void sweep(int directory)
{
    if (swept_by == getpid()) return;
    swept_by = getpid();
    int copy = fcntl(directory, F_DUPFD_CLOEXEC, 0);
    DIR *entries = copy < 0 ? NULL : fdopendir(copy);
    if (!entries) {
        if (copy >= 0) close(copy);
        return;
    }
    for (struct dirent *entry; (entry = readdir(entries));)
        if (is_ours(entry->d_name)) remove_if_unused(directory, entry->d_name);
    closedir(entries);
}

static bool write_all(int file, const uint8_t *bytes, size_t size)
{
    struct rlimit limit; /* beyond this limit the kernel sends a signal that ends the process */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && size > limit.rlim_cur) {
        errno = EFBIG;
        return false;
    }
    for (ssize_t done; size > 0; bytes += done, size -= (size_t)done) {
        done = write(file, bytes, size);
        if (done < 0 && errno != EINTR) return false;
        if (done < 0) done = 0;
    }
    return true;
}

/*
 * True when the file has this content. The file is read and not mapped, because a mapping has the
 * breakpoints of tracers that attached by path.
 */
static bool has(int file, const uint8_t *bytes, size_t size)
{
    struct stat status;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || (size_t)status.st_size != size) return false;
    uint8_t part[4096];
    for (size_t at = 0; at < size;) {
        ssize_t count = pread(file, part, size - at < sizeof(part) ? size - at : sizeof(part), (off_t)at);
        if (count <= 0 || memcmp(part, bytes + at, (size_t)count) != 0) return false;
        at += (size_t)count;
    }
    return true;
}

/* Makes the file under a temporary name first, so that no process sees a part of it. */
static bool create(int directory, const char *name, const uint8_t *bytes, size_t size)
{
    char unfinished[64];
    static unsigned made;
    snprintf(unfinished, sizeof(unfinished), ".%d-%u" SUFFIX, (int)getpid(), made++);
    int file = openat(directory, unfinished, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) return false;
    bool done = flock(file, LOCK_SH | LOCK_NB) == 0 && write_all(file, bytes, size) &&
                linkat(directory, unfinished, directory, name, 0) == 0;
    int error = errno;
    unlinkat(directory, unfinished, 0);
    close(file);
    errno = error;
    return done;
}

/* Returns a descriptor of the file of that name and content, with a shared lock on it, or -1. */
static int open_shared(int directory, const char *name, const uint8_t *bytes, size_t size)
{
    for (int i = 0; i < ATTEMPTS; i++) {
        if (i >= AT_ONCE) nanosleep(&(struct timespec){0, 1000000}, NULL);
        int file = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (file < 0) {
            if (errno != ENOENT) return -1;
            /* Another process may have made the file, or locked it for a moment. */
            if (!create(directory, name, bytes, size) && errno != EEXIST && errno != ENOENT &&
                errno != EWOULDBLOCK)
                return -1;
            continue;
        }
        struct stat status;
        if (flock(file, LOCK_SH | LOCK_NB) == 0 && fstat(file, &status) == 0 && status.st_nlink > 0) {
            if (has(file, bytes, size)) return file;
            i = ATTEMPTS;
        }
        close(file);
    }
    errno = EEXIST;
    return -1;
}

static int open_on_disk(char *path, enum ps_file_place place, const char *name, uint64_t digest,
                        unsigned number, const uint8_t *bytes, size_t size)
{
    if (!locate(place, path)) return -1;
    int directory = open_directory(path);
    if (directory < 0) return -1;
    sweep(directory);
    char *end = path + strlen(path);
    int length = snprintf(end, PS_FILE_NAME, "/%s-%016llx", name, (unsigned long long)digest);
    if (number) length += snprintf(end + length, 16, "-%u", number);
    strcpy(end + length, SUFFIX);
    int file = open_shared(directory, end + 1, bytes, size);
    int error = errno;
    close(directory);
    errno = error;
    return file;
}

int ps_file_in_memory(const char *name, const uint8_t *bytes, size_t size)
{
    int file = memfd_create(name, MFD_CLOEXEC | MFD_EXEC);
    if (file < 0 && errno == EINVAL) file = memfd_create(name, MFD_CLOEXEC); /* before Linux 6.3 */
    if (file < 0 || write_all(file, bytes, size)) return file;
    int error = errno;
    close(file);
    errno = error;
    return -1;
}

int ps_file_open(char path[PS_FILE_PATH], enum ps_file_place place, const char *name, uint64_t digest,
                 unsigned number, const uint8_t *bytes, size_t size)
{
    if (place != PS_FILE_IN_MEMORY) return open_on_disk(path, place, name, digest, number, bytes, size);
    char title[PS_FILE_NAME];
    snprintf(title, sizeof(title), "libstapsdt:%s", name);
    path[0] = 0;
    return ps_file_in_memory(title, bytes, size);
}

void ps_file_leave(const char *path)
{
    char folder[PS_FILE_PATH];
    const char *name = strrchr(path, '/');
    if (!name) return;
    snprintf(folder, sizeof(folder), "%.*s", (int)(name - path), path);
    int directory = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (directory < 0) return;
    if (is_private(directory)) remove_if_unused(directory, name + 1);
    close(directory);
}

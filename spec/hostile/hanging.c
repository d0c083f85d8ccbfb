/*
 * A FUSE file that stops answering, and a process that maps it, in their own mounts.
 *
 *   hanging CONTENT FOLDER UNTIL NAME
 *
 * CONTENT: the contents of the file. It is mounted as FOLDER/file, and its owner is reported as
 * root. UNTIL: reads from this offset on are never answered. With 0, no request is answered after
 * the file is mapped. NAME: name of the process, which prints "ready PID". The process ends with
 * its parent.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int device;
static char *content;
static size_t length;
static volatile sig_atomic_t silent;

static void fail(const char *what)
{
    perror(what);
    _exit(1);
}

static void answer(uint64_t request, int error, const void *data, size_t size)
{
    struct fuse_out_header head = {.len = (uint32_t)(sizeof head + size), .error = -error, .unique = request};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)data, size}};
    if (writev(device, parts, 2) < 0 && errno != ENOENT) fail("answer");
}

static struct fuse_attr attributes(uint64_t node)
{
    struct fuse_attr found = {.ino = node, .nlink = 1, .blksize = 4096};
    found.mode = node == 1 ? S_IFDIR | 0755 : S_IFREG | 0755;
    found.size = node == 1 ? 0 : length;
    return found;
}

static void serve(const struct fuse_in_header *in, size_t until)
{
    const void *body = in + 1;
    switch (in->opcode) {
    case FUSE_INIT: {
        const struct fuse_init_in *asked = body;
        struct fuse_init_out out = {
            .major = 7, .minor = 31, .max_readahead = 0, .max_write = 65536, .flags = 0};
        (void)asked;
        answer(in->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_LOOKUP: {
        struct fuse_entry_out out = {.nodeid = 2, .attr = attributes(2)};
        if (strcmp(body, "file")) answer(in->unique, ENOENT, NULL, 0);
        else answer(in->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_GETATTR: {
        struct fuse_attr_out out = {.attr = attributes(in->nodeid)};
        answer(in->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_OPEN: {
        struct fuse_open_out out = {.fh = 1};
        answer(in->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_READ: {
        const struct fuse_read_in *asked = body;
        if (until && asked->offset + asked->size > until) break; /* no answer */
        size_t size = asked->offset >= length ? 0 : length - asked->offset;
        if (size > asked->size) size = asked->size;
        answer(in->unique, 0, content + (size ? asked->offset : 0), size);
        break;
    }
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET: break;
    case FUSE_RELEASE:
    case FUSE_FLUSH: answer(in->unique, 0, NULL, 0); break;
    default: answer(in->unique, ENOSYS, NULL, 0);
    }
}

static void be_silent(int number)
{
    (void)number;
    silent = 1;
}

static void run_process(const char *folder, const char *name)
{
    char path[4096];
    close(device); /* else the file system would outlive its server, and its readers would wait */
    snprintf(path, sizeof path, "%s/file", folder);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, name);
    const int file = open(path, O_RDONLY);
    if (file < 0) fail(path);
    if (mmap((void *)0x10000000, length, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED)
        fail("mmap");
    kill(getppid(), SIGUSR1);
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (;;) pause();
}

int main(int argc, char **argv)
{
    if (argc != 5) return 2;
    const size_t until = strtoul(argv[3], NULL, 0);
    FILE *file = fopen(argv[1], "rb");
    if (!file) fail(argv[1]);
    struct stat found;
    fstat(fileno(file), &found);
    length = (size_t)found.st_size;
    content = malloc(length);
    if (fread(content, 1, length, file) != length) fail("read");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    device = open("/dev/fuse", O_RDWR);
    if (device < 0) fail("/dev/fuse");
    char options[128];
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) fail("unshare");
    if (mount("hanging", argv[2], "fuse", MS_NOSUID | MS_NODEV, options)) fail("mount");
    struct sigaction action = {.sa_handler = be_silent};
    sigaction(SIGUSR1, &action, NULL);
    if (!fork()) run_process(argv[2], argv[4]);
    static char request[1 << 20] __attribute__((aligned(8)));
    while (until || !silent) {
        if (read(device, request, sizeof request) < 0) {
            if (errno == EINTR) continue;
            fail("request");
        }
        serve((const struct fuse_in_header *)request, until);
    }
    for (;;) pause();
}

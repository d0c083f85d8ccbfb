/*
 * A tracer small enough to attach a thousand times in a test. It calls perf_event_open on the
 * kernel's uprobe PMU, with the probe's semaphore as reference counter. libbpf does exactly the
 * same for bpftrace and bcc.
 *
 *   attacher [--cycles N] [--random SEED] [--info ADDRESS] [--by-path] PID LIBRARY PROBE...
 *
 * Without --cycles it attaches, prints a line, and reads orders from stdin: "detach", "attach",
 * "count". At the end of stdin it exits, and the kernel removes the probes. With --info, the
 * address of probescope_info in the process, each step also waits until the process has put its
 * hooks in or out. Figures are milliseconds since the step began:
 *
 *   attached attach_ms=8.1 hooked_ms=42.0 switch_ms=0.2
 *   detached detach_ms=68.2 unhooked_ms=70.3
 *   cycle (both)
 *
 * switch_ms is the process's own figure: from the moment when its watcher saw the semaphores until
 * the hooks were in. It is 0 if they were in already.
 *
 * With --random it prints "attached". From then on it raises and lowers single probes at random,
 * with pauses from none to a second, until the end of stdin or of the process. At the end it prints
 * their number: "flips=812".
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Offsets in probescope_info of watcher_ticks, and of asked_ns with hooks_in_ns. */
enum { INFO_TICKS = 144, INFO_MOMENTS = 280 };
enum { MAX_SITES = 64, MAX_PROBES = 32, WAIT_MS = 120000 };

/*
 * One place in the library to attach to. The kernel takes file offsets here, not virtual addresses.
 */
typedef struct {
    uint64_t offset, semaphore;
    const char *probe;
    int fd;
} Site;

static Site sites[MAX_SITES];
static int site_count;
static const char *names[MAX_PROBES];
static int name_count;
static const char *library;
static int pid;
static bool by_path;
static uint64_t info_address; /* 0: do not wait for the process */
static int memory;

static void die(const char *what)
{
    fprintf(stderr, "attacher: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static bool wanted(const char *name)
{
    for (int i = 0; i < name_count; i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

static uint64_t file_offset(const uint8_t *image, uint64_t address)
{
    const Elf64_Ehdr *elf = (const void *)image;
    const Elf64_Phdr *segments = (const void *)(image + elf->e_phoff);
    for (int i = 0; i < elf->e_phnum; i++) {
        const Elf64_Phdr *s = &segments[i];
        if (s->p_type == PT_LOAD && address >= s->p_vaddr && address < s->p_vaddr + s->p_filesz)
            return address - s->p_vaddr + s->p_offset;
    }
    errno = 0;
    die("an address of .note.stapsdt lies in no file-backed segment");
    return 0;
}

/*
 * .note.stapsdt has three addresses (location, base, semaphore), then provider, name and arguments
 * as strings. The difference of the base shows how far prelink moved the library after the note was
 * written.
 */
static void read_notes(const uint8_t *image)
{
    const Elf64_Ehdr *elf = (const void *)image;
    const Elf64_Shdr *sections = (const void *)(image + elf->e_shoff);
    const char *section_names = (const char *)image + sections[elf->e_shstrndx].sh_offset;
    const Elf64_Shdr *notes = NULL;
    uint64_t base = 0;
    for (int i = 0; i < elf->e_shnum; i++) {
        const char *name = section_names + sections[i].sh_name;
        if (!strcmp(name, ".note.stapsdt")) notes = &sections[i];
        if (!strcmp(name, ".stapsdt.base")) base = sections[i].sh_addr;
    }
    errno = 0;
    if (!notes) die("no .note.stapsdt in the library");
    const uint8_t *at = image + notes->sh_offset, *end = at + notes->sh_size;
    while (at < end) {
        const Elf64_Nhdr *note = (const void *)at;
        const uint8_t *body = at + sizeof *note + ((note->n_namesz + 3) & ~3u);
        at = body + ((note->n_descsz + 3) & ~3u);
        uint64_t address[3];
        memcpy(address, body, sizeof address);
        const char *provider = (const char *)body + sizeof address;
        const char *probe = provider + strlen(provider) + 1;
        if (!wanted(probe)) continue;
        if (site_count == MAX_SITES) die("too many sites");
        uint64_t moved = base ? base - address[1] : 0;
        sites[site_count++] = (Site){.offset = file_offset(image, address[0] + moved),
                                     .semaphore = address[2] ? file_offset(image, address[2] + moved) : 0,
                                     .probe = probe,
                                     .fd = -1};
    }
    if (!site_count) die("none of these probes is in the library");
}

static uint32_t uprobe_pmu(void)
{
    FILE *file = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
    unsigned type;
    if (!file || fscanf(file, "%u", &type) != 1) die("no uprobe PMU");
    fclose(file);
    return type;
}

/* Returns false if the process has ended. */
static bool open_site(Site *site)
{
    struct perf_event_attr attr = {.size = sizeof attr,
                                   .type = uprobe_pmu(),
                                   .config = site->semaphore << 32,
                                   .config1 = (uintptr_t)library,
                                   .config2 = site->offset};
    /*
     * By path, the kernel requires a CPU. Breakpoint and semaphore nevertheless apply to every
     * process that maps the file.
     */
    site->fd =
        syscall(SYS_perf_event_open, &attr, by_path ? -1 : pid, by_path ? 0 : -1, -1, PERF_FLAG_FD_CLOEXEC);
    if (site->fd < 0 && errno != ESRCH) die("perf_event_open");
    return site->fd >= 0;
}

static void read_target(uint64_t address, void *to, size_t size)
{
    if (pread(memory, to, size, address) != (ssize_t)size) die("reading the process's memory");
}

/*
 * Returns whether the process has every probe's hooks in (or cannot serve the probe), or has them
 * out.
 */
static bool switched(bool on)
{
    struct {
        uint32_t count, size, offset;
    } table;
    struct {
        char name[24];
        uint32_t state, enabled;
    } probe;
    read_target(info_address + 20, &table, sizeof table);
    for (uint32_t i = 0; i < table.count; i++) {
        read_target(info_address + table.offset + (uint64_t)i * table.size, &probe, sizeof probe);
        if (!wanted(probe.name)) continue;
        bool in = probe.state == 1 || probe.state == 2, never = probe.state > 2;
        if (on ? !(probe.enabled && (in || never)) : probe.enabled || in) return false;
    }
    return true;
}

/* Returns the milliseconds since `start` at which the process had switched, or 0 without --info. */
static double await_switch(bool on, double start)
{
    if (!info_address) return 0;
    while (!switched(on)) {
        if (now_ms() - start > WAIT_MS) {
            errno = ETIMEDOUT;
            die(on ? "the hooks did not come" : "the hooks did not go");
        }
        usleep(200);
    }
    return now_ms() - start;
}

/*
 * Returns how long the hooks took. The watcher writes the times at its next check. Returns 0 if
 * another tracer had the probes raised already.
 */
static double switch_ms(double start)
{
    struct {
        uint64_t asked_ns, hooks_in_ns;
    } moments;
    uint64_t ticks, first;
    if (!info_address) return 0;
    read_target(info_address + INFO_TICKS, &first, sizeof first);
    do {
        usleep(200);
        read_target(info_address + INFO_TICKS, &ticks, sizeof ticks);
        read_target(info_address + INFO_MOMENTS, &moments, sizeof moments);
        if (moments.asked_ns > start * 1e6 && moments.hooks_in_ns)
            return (moments.hooks_in_ns - moments.asked_ns) / 1e6;
    } while (ticks < first + 3 && now_ms() - start < WAIT_MS);
    return 0;
}

static void attach(char *figures, size_t size)
{
    double start = now_ms();
    for (int i = 0; i < site_count; i++)
        if (!open_site(&sites[i])) die("perf_event_open");
    double attached = now_ms() - start, hooked = await_switch(true, start);
    snprintf(figures, size, "attach_ms=%.3f hooked_ms=%.3f switch_ms=%.3f", attached, hooked,
             switch_ms(start));
}

static void detach(char *figures, size_t size)
{
    double start = now_ms();
    for (int i = 0; i < site_count; i++) {
        close(sites[i].fd);
        sites[i].fd = -1;
    }
    double detached = now_ms() - start;
    snprintf(figures, size, "detach_ms=%.3f unhooked_ms=%.3f", detached, await_switch(false, start));
}

/*
 * Returns how often the sites fired since the attach, in the process's first thread (by path: on
 * the first CPU).
 */
static uint64_t count(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < site_count; i++) {
        uint64_t one = 0;
        if (sites[i].fd >= 0 && read(sites[i].fd, &one, sizeof one) == sizeof one) sum += one;
    }
    return sum;
}

static void run_cycles(long cycles)
{
    char in[128], out[128];
    for (long i = 0; i < cycles; i++) {
        attach(in, sizeof in);
        detach(out, sizeof out);
        printf("cycle %s %s\n", in, out);
    }
}

/* xorshift64 */
static uint64_t dice;
static uint32_t chance(uint32_t of)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (dice >> 32) % of;
}

/* Waits for this many milliseconds. Returns whether stdin is still open. */
static bool pause_ms(int ms)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char rest[64];
    return poll(&in, 1, ms) <= 0 || read(STDIN_FILENO, rest, sizeof rest) > 0;
}

/* Raises each site of a probe, or lowers them. Returns false if the process has ended. */
static bool flip(const char *probe)
{
    for (int i = 0; i < site_count; i++) {
        Site *site = &sites[i];
        if (strcmp(site->probe, probe)) continue;
        if (site->fd < 0) {
            if (!open_site(site)) return false;
        } else {
            close(site->fd);
            site->fd = -1;
        }
    }
    return true;
}

static void run_random(uint64_t seed)
{
    static const int longest[] = {0, 4, 4, 20, 20, 60, 200, 1200};
    unsigned long flips = 0;
    dice = seed * 0x9E3779B97F4A7C15u + 1;
    printf("attached\n");
    do {
        for (uint32_t n = chance(4); n < 4; n++, flips++)
            if (!flip(names[chance(name_count)])) goto gone;
    } while (pause_ms(chance(longest[chance(8)] + 1)));
gone:
    printf("flips=%lu\n", flips);
}

static void obey(void)
{
    char line[64], figures[128];
    attach(figures, sizeof figures);
    printf("attached %s\n", figures);
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "detach\n")) {
            detach(figures, sizeof figures);
            printf("detached %s\n", figures);
        } else if (!strcmp(line, "attach\n")) {
            attach(figures, sizeof figures);
            printf("attached %s\n", figures);
        } else if (!strcmp(line, "count\n")) {
            printf("count=%llu\n", (unsigned long long)count());
        }
    }
}

int main(int argc, char **argv)
{
    long cycles = 0;
    const char *seed = NULL;
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (!strcmp(argv[i], "--cycles") && i + 1 < argc) cycles = atol(argv[++i]);
        else if (!strcmp(argv[i], "--random") && i + 1 < argc) seed = argv[++i];
        else if (!strcmp(argv[i], "--info") && i + 1 < argc) info_address = strtoull(argv[++i], NULL, 16);
        else if (!strcmp(argv[i], "--by-path")) by_path = true;
    }
    if (argc - i < 3) {
        fprintf(stderr, "usage: attacher [--cycles N] [--random SEED] [--info ADDRESS] [--by-path] PID "
                        "LIBRARY PROBE...\n");
        return 1;
    }
    setlinebuf(stdout);
    pid = atoi(argv[i]);
    library = argv[i + 1];
    for (i += 2; i < argc && name_count < MAX_PROBES; i++) names[name_count++] = argv[i];

    int fd = open(library, O_RDONLY | O_CLOEXEC);
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat)) die(library);
    const uint8_t *image = mmap(NULL, stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (image == MAP_FAILED) die(library);
    read_notes(image);
    if (info_address) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/mem", pid);
        memory = open(path, O_RDONLY | O_CLOEXEC);
        if (memory < 0) die(path);
    }
    if (seed) run_random(strtoull(seed, NULL, 10));
    else if (cycles) run_cycles(cycles);
    else obey();
    return 0;
}

/* Providers without a tracer: a test raises the semaphore, and a function replaces the site. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "test/check.h"
#include "provider.h"

#ifdef __SANITIZE_ADDRESS__
#define UNDER_ASAN 1
#else
#define UNDER_ASAN 0
#endif

static char directory[64], library_directory[128];
static uint64_t received[SDT_MAX_ARGUMENTS];
static int fired;

static void receive(uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6,
                    uint64_t a7, uint64_t a8, uint64_t a9, uint64_t a10, uint64_t a11)
{
    memcpy(received, (uint64_t[]){a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11}, sizeof(received));
    fired++;
}

static void receive_six(uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5)
{
    receive(a0, a1, a2, a3, a4, a5, 0, 0, 0, 0, 0, 0);
}

/* As the kernel does for a tracer. */
static void raise_semaphore(SDTProbe_t *probe, int by)
{
    *(volatile uint16_t *)((ps_provider_probe *)probe)->semaphore += (uint16_t)by;
}

static void stand_in(SDTProbe_t *probe)
{
    probe->_fire = probe->argCount > 6 ? (void *)receive : (void *)receive_six;
    raise_semaphore(probe, 1);
    memset(received, 0, sizeof(received));
}

static int files(void)
{
    int count = 0;
    DIR *entries = opendir(library_directory);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        count += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    if (entries) closedir(entries);
    return count;
}

static int count_in(const char *path)
{
    int count = 0;
    DIR *entries = opendir(path);
    while (readdir(entries)) count++;
    closedir(entries);
    return count;
}

/* The number of mappings of the process, or only of those of the file `name`. */
static int mappings(const char *name)
{
    char line[1024];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof(line), maps)) count += !name || strstr(line, name);
    fclose(maps);
    return count;
}

static SDTProvider_t *loaded(const char *name, SDTProbe_t **probe)
{
    SDTProvider_t *provider = providerInit(name);
    *probe = providerAddProbe(provider, "probe", 2, uint64, int32);
    CHECK_EQUAL(providerLoad(provider), 0);
    return provider;
}

static void fires_what_it_is_given(void)
{
    SDTProvider_t *provider = providerInit("shop");
    SDTProbe_t *six =
        providerAddProbe(provider, "six", 6, uint64, sdtDouble, int8, sdtString, sdtDouble, uint16);
    ArgType_t types[SDT_MAX_ARGUMENTS];
    for (int i = 0; i < SDT_MAX_ARGUMENTS; i++) types[i] = i % 2 ? int64 : sdtDouble;
    SDTProbe_t *twelve = providerAddProbeArray(provider, "twelve", SDT_MAX_ARGUMENTS, types);
    probeFire(six, 1, 2.0, 3, "", 4.0, 5); /* not loaded */
    CHECK_EQUAL(providerLoad(provider), 0);
    CHECK(!probeIsEnabled(six));
    probeFire(six, 1, 2.0, 3, "", 4.0, 5); /* no tracer listens: the real site runs, and nothing happens */
    stand_in(six);
    CHECK(probeIsEnabled(six));
    CHECK(!probeIsEnabled(twelve));
    const char *text = "text";
    probeFire(six, UINT64_MAX, 1.5, -1, text, -0.0, 7);
    double doubles[] = {1.5, -0.0};
    CHECK_EQUAL(received[0], UINT64_MAX);
    CHECK(memcmp(&received[1], &doubles[0], 8) == 0);
    CHECK_EQUAL((int8_t)received[2], -1);
    CHECK_EQUAL(received[3], (uintptr_t)text);
    CHECK(memcmp(&received[4], &doubles[1], 8) == 0);
    CHECK_EQUAL(received[5], 7);
    probeFire(six, 0, 0.0, 0, NULL, 0.0, 0);
    CHECK_EQUAL(received[3], 0);
    stand_in(twelve);
    probeFire(twelve, 0.5, INT64_C(1), 2.5, INT64_C(3), 4.5, INT64_C(5), 6.5, INT64_C(7), 8.5, INT64_C(9),
              10.5, INT64_C(-11));
    for (int i = 0; i < SDT_MAX_ARGUMENTS; i++) {
        double value = i + 0.5;
        if (i % 2) CHECK_EQUAL(received[i], i == 11 ? -11 : i);
        else CHECK(memcmp(&received[i], &value, 8) == 0);
    }
    uint64_t values[SDT_MAX_ARGUMENTS];
    for (int i = 0; i < SDT_MAX_ARGUMENTS; i++) values[i] = (uint64_t)i << 40;
    probeFireArray(twelve, values);
    CHECK(memcmp(received, values, sizeof(values)) == 0);
    CHECK_EQUAL(fired, 4);
    raise_semaphore(twelve, -1);
    CHECK(!probeIsEnabled(twelve));
    providerDestroy(provider);
    probeFire(NULL);
    CHECK(!probeIsEnabled(NULL));
}

static void says_what_is_wrong(void)
{
    SDTProvider_t *provider = providerInit("shop");
    CHECK_EQUAL(provider->lastError, noError);
    char name[129];
    memset(name, 'x', sizeof(name) - 1);
    name[128] = 0;
    const char *wrong[] = {"", "a b", "a:b", "a/b", "a\"b", "caf\xc3\xa9", "a\nb", "*", name, NULL};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        CHECK(!providerAddProbe(provider, wrong[i], 0));
        CHECK_EQUAL(provider->lastError, invalidNameError);
    }
    CHECK(!providerAddProbe(provider, "probe", 7, int8, int8, int8, int8, int8, int8, int8));
    CHECK_EQUAL(provider->lastError, invalidArgumentsError);
    CHECK_STRING(provider->error, "probe probe has 7 arguments: 0 to 6 are possible");
    CHECK(!providerAddProbe(provider, "probe", -1));
    CHECK(!providerAddProbe(provider, "probe", 2, int8, 3));
    CHECK_STRING(provider->error, "argument 1 of probe probe has a type that does not exist: 3");
    CHECK(!providerAddProbe(provider, "probe", 1, noarg));
    CHECK(!providerAddProbeArray(provider, "probe", 13, NULL));
    CHECK(providerAddProbeArray(provider, name + 1, 0, NULL) != NULL);
    CHECK_EQUAL(providerLoad(provider), 0);
    CHECK(!providerAddProbe(provider, "late", 0));
    CHECK_EQUAL(provider->lastError, providerLoadedError);
    CHECK_EQUAL(providerUseMemfd(provider, memfd_enabled), 0);
    CHECK_EQUAL(providerLoad(provider), 0);
    providerDestroy(provider);
    CHECK(!providerInit(NULL));
    for (size_t i = 0; wrong[i]; i++) {
        provider = providerInit(wrong[i]);
        CHECK_EQUAL(providerLoad(provider), -1);
        CHECK_EQUAL(provider->lastError, strchr(wrong[i], '/') ? tmpCreationError : invalidNameError);
        providerDestroy(provider);
    }
    providerDestroy(NULL);
    CHECK_EQUAL(providerLoad(NULL), -1);
    CHECK_EQUAL(providerUnload(NULL), 0);
    CHECK_EQUAL(providerUseMemfd(NULL, memfd_enabled), 0);
    CHECK(!providerAddProbe(NULL, "probe", 0));
}

static size_t read_file(const char *path, char *to, size_t size)
{
    FILE *file = fopen(path, "rb");
    size_t length = file ? fread(to, 1, size, file) : 0;
    if (file) fclose(file);
    return length;
}

/*
 * The operands are in the assembler's notation, after the names. x86-64 has six in registers,
 * aarch64 eight.
 */
static void tells_tracers_where_the_arguments_are(void)
{
    SDTProvider_t *provider = providerInit("notes");
    ArgType_t types[] = {uint64, int64,  sdtDouble, sdtString, int8,  uint16,
                         int32,  uint32, int16,     uint8,     int64, uint64};
    providerAddProbeArray(provider, "twelve", SDT_MAX_ARGUMENTS, types);
    providerAddProbe(provider, "none", 0);
    CHECK_EQUAL(providerLoad(provider), 0);
    static char image[65536 + 16384];
    size_t size = read_file(providerPath(provider), image, sizeof(image));
#ifdef __aarch64__
    static const char twelve[] =
        "notes\0twelve\0"
        "8@x0 -8@x1 8@x2 8@x3 -1@x4 2@x5 -4@x6 4@x7 -2@[sp] 1@[sp, 8] -8@[sp, 16] 8@[sp, 24]";
#else
    static const char twelve[] =
        "notes\0twelve\0"
        "8@%rdi -8@%rsi 8@%rdx 8@%rcx -1@%r8 2@%r9 -4@8(%rsp) 4@16(%rsp) -2@24(%rsp) "
        "1@32(%rsp) -8@40(%rsp) 8@48(%rsp)";
#endif
    CHECK(memmem(image, size, twelve, sizeof(twelve)) != NULL);
    CHECK(memmem(image, size, "notes\0none\0", sizeof("notes\0none\0")) != NULL);
    providerDestroy(provider);
}

static void keeps_its_file_while_it_is_loaded(void)
{
    SDTProbe_t *probe;
    SDTProvider_t *provider = loaded("shop", &probe);
    struct stat status;
    CHECK(stat(library_directory, &status) == 0 && (status.st_mode & 0777) == 0700);
    CHECK(stat(providerPath(provider), &status) == 0 && (status.st_mode & 0777) == 0600);
    CHECK_EQUAL(files(), 1);
    raise_semaphore(probe, 1);
    CHECK_EQUAL(providerUnload(provider), 0);
    CHECK(!probeIsEnabled(probe));
    CHECK(!providerPath(provider));
    CHECK_EQUAL(files(), 0);
    CHECK_EQUAL(mappings(library_directory), 0);
    probeFire(probe, UINT64_C(1), 2);
    CHECK_EQUAL(providerUnload(provider), 0);
    CHECK(providerAddProbe(provider, "other", 0) != NULL);
    CHECK_EQUAL(providerLoad(provider), 0);
    raise_semaphore(probe, 1);
    probeFire(probe, UINT64_C(1), 2);
    CHECK_EQUAL(files(), 1);
    /* The kernel keeps one semaphore a file in a process, so a second file is needed. */
    SDTProvider_t *same = providerInit("shop");
    SDTProbe_t *its = providerAddProbe(same, "probe", 2, uint64, int32);
    providerAddProbe(same, "other", 0);
    CHECK_EQUAL(providerLoad(same), 0);
    CHECK_EQUAL(files(), 2);
    CHECK(!probeIsEnabled(its));
    providerDestroy(same);
    providerDestroy(provider);
    CHECK_EQUAL(files(), 0);
}

static void *let_go_of(void *file)
{
    check_sleep_ms(30);
    close(*(int *)file);
    return NULL;
}

/*
 * A process that sweeps or unloads locks a file for some microseconds, or longer when it loses its
 * CPU.
 */
static void waits_for_who_looks_at_its_file(void)
{
    SDTProbe_t *probe;
    SDTProvider_t *provider = loaded("looked-at", &probe);
    char path[160], image[16384];
    strcpy(path, providerPath(provider));
    size_t size = read_file(path, image, sizeof(image));
    providerDestroy(provider);
    int file = open(path, O_CREAT | O_RDWR, 0600);
    CHECK(write(file, image, size) == (ssize_t)size && flock(file, LOCK_EX | LOCK_NB) == 0);
    pthread_t thread;
    pthread_create(&thread, NULL, let_go_of, &file);
    provider = loaded("looked-at", &probe);
    pthread_join(thread, NULL);
    CHECK(providerPath(provider) && strcmp(providerPath(provider), path) == 0);
    providerDestroy(provider);
    CHECK_EQUAL(files(), 0);
}

static void can_stay_in_memory(void)
{
    SDTProvider_t *provider = providerInit("shop");
    SDTProbe_t *probe = providerAddProbe(provider, "probe", 0);
    CHECK_EQUAL(providerUseMemfd(provider, memfd_enabled), 1);
    CHECK_EQUAL(providerLoad(provider), 0);
    CHECK_EQUAL(files(), 0);
    CHECK(!providerPath(provider));
    CHECK(provider->_memfd >= 0);
    if (check_can_fork()) CHECK_EQUAL(mappings("/memfd:libstapsdt:shop"), 2);
    raise_semaphore(probe, 1);
    CHECK(probeIsEnabled(probe));
    probeFire(probe);
    providerDestroy(provider);
}

static void has_a_thousand_probes_and_one_semaphore_a_name(void)
{
    enum { COUNT = 1000 };
    SDTProbe_t *probes[COUNT];
    SDTProvider_t *provider = providerInit("many");
    char name[32];
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof(name), "probe%d", i % (COUNT - 1));
        probes[i] = providerAddProbe(provider, name, i % 7, int8, uint8, int16, uint16, int32, uint32);
    }
    CHECK_EQUAL(providerLoad(provider), 0);
    raise_semaphore(probes[0], 1);
    for (int i = 0; i < COUNT; i++) {
        CHECK_EQUAL(probeIsEnabled(probes[i]), i == 0 || i == COUNT - 1);
        probeFire(probes[i], 1, 2, 3, 4, 5, 6);
    }
    CHECK(probes[0]->_fire != probes[COUNT - 1]->_fire);
    providerDestroy(provider);
}

static void leaves_nothing(void)
{
    int before = mappings(NULL), descriptors = count_in("/proc/self/fd");
    SDTProvider_t *again = providerInit("again");
    for (int i = 0; i < (check_can_fork() ? 10000 : 100); i++) {
        SDTProbe_t *probe;
        char name[32];
        snprintf(name, sizeof(name), "provider%d", i);
        SDTProvider_t *provider = loaded(name, &probe);
        if (i % 2) providerUnload(provider);
        providerDestroy(provider);
        if (i % 50) continue;
        snprintf(name, sizeof(name), "probe%d", i); /* and one provider that grows */
        CHECK(providerAddProbe(again, name, 0) != NULL);
        CHECK_EQUAL(providerLoad(again), 0);
        CHECK_EQUAL(providerUnload(again), 0);
    }
    providerDestroy(again);
    CHECK_EQUAL(files(), 0);
    CHECK_EQUAL(count_in("/proc/self/fd"), descriptors);
    /* AddressSanitizer's allocator maps memory itself, and the usual allocator a little. */
    if (!UNDER_ASAN) CHECK(mappings(NULL) <= before + 4);
}

/* Starts a child that has a loaded provider. It ends when it is told to, or is killed. */
static pid_t child_with(const char *name, int *input)
{
    int ready[2], wait[2];
    CHECK(pipe(ready) == 0 && pipe(wait) == 0);
    pid_t child = fork();
    if (child == 0) {
        SDTProbe_t *probe;
        loaded(name, &probe);
        CHECK(write(ready[1], "", 1) == 1);
        close(wait[1]);
        char byte;
        CHECK(read(wait[0], &byte, 1) == 1);
        exit(check_failures != 0);
    }
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    close(ready[1]);
    close(wait[0]);
    *input = wait[1];
    return child;
}

static void end(pid_t child, int signal, int input)
{
    int status;
    if (signal) kill(child, signal);
    else CHECK(write(input, "", 1) == 1);
    close(input);
    CHECK(waitpid(child, &status, 0) == child);
    if (!signal) CHECK_EQUAL(status, 0);
}

static void shares_its_file_with_others_and_sweeps_after_the_killed(void)
{
    int inputs[3];
    pid_t killed = child_with("killed", &inputs[0]), exits = child_with("exits", &inputs[1]),
          lives = child_with("lives", &inputs[2]);
    CHECK_EQUAL(files(), 3);
    end(exits, 0, inputs[1]);
    CHECK_EQUAL(files(), 2);
    end(killed, SIGKILL, inputs[0]);
    CHECK_EQUAL(files(), 2);
    char path[160], other[160];
    snprintf(path, sizeof(path), "%s/victim", directory);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    snprintf(other, sizeof(other), "%s/link.so", library_directory);
    CHECK(symlink(path, other) == 0);
    snprintf(other, sizeof(other), "%s/fifo.so", library_directory);
    CHECK(mkfifo(other, 0600) == 0);
    int input;
    pid_t sweeper = child_with("lives", &input); /* the first load of a process sweeps */
    CHECK_EQUAL(files(), 3);                     /* the file of the two that live, the link and the fifo */
    end(lives, SIGKILL, inputs[2]);
    end(sweeper, 0, input);
    CHECK_EQUAL(files(), 2);
    CHECK(access(path, F_OK) == 0 && unlink(path) == 0 && unlink(other) == 0);
    snprintf(other, sizeof(other), "%s/link.so", library_directory);
    CHECK(unlink(other) == 0);
}

static void a_fork_keeps_what_was_loaded(void)
{
    SDTProbe_t *probe;
    SDTProvider_t *provider = loaded("forked", &probe);
    raise_semaphore(probe, 1);
    int wait[2], status;
    CHECK(pipe(wait) == 0);
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] != 0) continue;
        close(wait[1]);
        if (i == 0) providerDestroy(provider); /* does not touch what the parent has */
        else probeFire(probe, UINT64_C(1), 2);
        char byte;
        CHECK(i == 0 || read(wait[0], &byte, 1) == 0);
        CHECK(i == 0 || probeIsEnabled(probe));
        exit(check_failures != 0);
    }
    CHECK(waitpid(children[0], &status, 0) == children[0] && status == 0);
    CHECK_EQUAL(files(), 1);
    providerDestroy(provider);
    CHECK_EQUAL(files(), 1); /* the other child still uses it */
    close(wait[0]);
    close(wait[1]);
    CHECK(waitpid(children[1], &status, 0) == children[1] && status == 0);
    CHECK_EQUAL(files(), 0);
}

static SDTProvider_t *unloaded_at_a_fork;

static void *unload(void *unused)
{
    if (unloaded_at_a_fork) providerDestroy(unloaded_at_a_fork);
    unloaded_at_a_fork = NULL;
    return unused;
}

/* As CPython's part does, whose other thread may run finalizers of the application. */
static void await_unload(void)
{
    pthread_t thread;
    if (!unloaded_at_a_fork || pthread_create(&thread, NULL, unload, NULL) != 0) return;
    pthread_join(thread, NULL);
}

static void lets_a_thread_unload_it_before_a_fork(void)
{
    SDTProbe_t *probe;
    unloaded_at_a_fork = loaded("unloaded", &probe);
    alarm(60);
    pid_t child = fork();
    if (child == 0) {
        providerDestroy(loaded("in_the_child", &probe));
        exit(check_failures != 0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    alarm(0);
    CHECK(!unloaded_at_a_fork);
    CHECK_EQUAL(files(), 0);
}

static void lasts_when_a_daemon_closes_every_descriptor(void)
{
    SDTProbe_t *probe;
    SDTProvider_t *provider = loaded("daemon", &probe), *in_memory = providerInit("daemon");
    CHECK_EQUAL(providerUseMemfd(in_memory, memfd_enabled), 1);
    CHECK_EQUAL(providerLoad(in_memory), 0);
    int other = open("/proc/self/maps", O_RDONLY), memory = in_memory->_memfd;
    CHECK(dup2(other, memory) == memory);
    close(other);
    int file = open(providerPath(provider), O_RDONLY);
    CHECK(flock(file, LOCK_EX | LOCK_NB) != 0);
    close(file);
    providerDestroy(in_memory);
    CHECK(fcntl(memory, F_GETFD) >= 0);
    close(memory);
    providerDestroy(provider);
    CHECK_EQUAL(files(), 0);
}

static void finds_another_place(void)
{
    char path[PATH_MAX];
    CHECK(chmod(library_directory, 0755) == 0); /* others could read it */
    SDTProbe_t *probe;
    SDTProvider_t *provider = loaded("elsewhere", &probe);
    snprintf(path, sizeof(path), "/tmp/probescope-%u/", (unsigned)geteuid());
    CHECK(!providerPath(provider) || strncmp(providerPath(provider), path, strlen(path)) == 0);
    CHECK_EQUAL(files(), 0);
    providerDestroy(provider);
    CHECK(rmdir(library_directory) == 0 && symlink(".", library_directory) == 0);
    provider = loaded("elsewhere", &probe);
    CHECK(!providerPath(provider) || strncmp(providerPath(provider), path, strlen(path)) == 0);
    providerDestroy(provider);
    CHECK(unlink(library_directory) == 0);
    /* There is no descriptor for a file of any kind. */
    struct rlimit limit, none;
    getrlimit(RLIMIT_NOFILE, &limit);
    none = (struct rlimit){3, limit.rlim_max};
    provider = providerInit("nowhere");
    setrlimit(RLIMIT_NOFILE, &none);
    int result = providerLoad(provider);
    setrlimit(RLIMIT_NOFILE, &limit);
    CHECK_EQUAL(result, -1);
    CHECK_EQUAL(provider->lastError, tmpCreationError);
    CHECK(strstr(provider->error, strerror(EMFILE)) != NULL);
    struct rlimit size, small;
    getrlimit(RLIMIT_FSIZE, &size);
    small = (struct rlimit){4096, size.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    CHECK_EQUAL(providerLoad(provider), -1);
    setrlimit(RLIMIT_FSIZE, &size);
    CHECK(strstr(provider->error, strerror(EFBIG)) != NULL);
    CHECK_EQUAL(providerLoad(provider), 0);
    /*
     * There is no descriptor for the cover either. Tracers may see the file until the provider is
     * destroyed.
     */
    setrlimit(RLIMIT_NOFILE, &none);
    CHECK_EQUAL(providerUnload(provider), 0);
    setrlimit(RLIMIT_NOFILE, &limit);
    CHECK_EQUAL(files(), 1);
    providerDestroy(provider);
    CHECK_EQUAL(files(), 0);
}

/*
 * Mounts a /tmp of the given kind. The provider works from memory, and leaves nothing in other
 * users' directories.
 */
static void stays_in_memory_in(const char *what, unsigned long flags, const char *options,
                               const char *planted)
{
    char own[64], there[64] = "/tmp/theirs";
    snprintf(own, sizeof(own), "/tmp/probescope-%u", (unsigned)geteuid());
    CHECK(mount("tmpfs", "/tmp", "tmpfs", flags, options) == 0);
    if (planted)
        CHECK(mkdir(there, 0700) == 0 && (*planted ? symlink(planted, own) : rename(there, own)) == 0);
    if (planted && !*planted) CHECK(chown(own, 1000, 1000) == 0);
    SDTProbe_t *probe;
    SDTProvider_t *provider = loaded(what, &probe);
    CHECK(!providerPath(provider) && provider->_memfd >= 0 && mappings("/memfd:libstapsdt:") == 2);
    raise_semaphore(probe, 1);
    probeFire(probe, UINT64_C(1), 2);
    providerDestroy(provider);
    strcpy(library_directory, planted && *planted ? there : own);
    CHECK_EQUAL(files(), 0);
    CHECK(umount("/tmp") == 0);
}

static void stays_in_memory_where_no_directory_will_do(void)
{
    pid_t child = fork();
    int status;
    if (child == 0) {
        if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) _exit(77);
        unsetenv("XDG_RUNTIME_DIR");
        stays_in_memory_in("read-only", MS_RDONLY, NULL, NULL);
        stays_in_memory_in("noexec", MS_NOEXEC, NULL, NULL);
        stays_in_memory_in("full", 0, "size=4096", NULL);
        stays_in_memory_in("planted", 0, NULL, "theirs");
        stays_in_memory_in("of-another", 0, NULL, "");
        _exit(check_failures != 0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) check_skipped++; /* not root */
    else CHECK_EQUAL(WEXITSTATUS(status), 0);
}

static bool stop;
static SDTProbe_t *shared_probe;

static void *fire_on(void *unused)
{
    while (!PS_READ(stop)) {
        probeIsEnabled(shared_probe);
        probeFire(shared_probe, UINT64_C(1), 2);
        /* As a thread that is on its way into a site when the provider is unloaded. */
        ((void (*)(void))((char *)PS_READ(*(void **)unused)))();
    }
    return NULL;
}

static void *make_on(void *name)
{
    for (int i = 0; i < 50; i++) {
        SDTProbe_t *probe;
        providerDestroy(loaded(name, &probe));
    }
    return NULL;
}

static void threads_fire_while_it_is_unloaded_and_loaded(void)
{
    SDTProvider_t *provider = loaded("threads", &shared_probe);
    void *site = shared_probe->_fire;
    pthread_t threads[4];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, fire_on, &site);
    for (int i = 2; i < 4; i++) pthread_create(&threads[i], NULL, make_on, i % 2 ? "one" : "other");
    for (int i = 0; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof(name), "more%d", i);
        CHECK_EQUAL(providerUnload(provider), 0);
        for (int j = 0; j < 40; j++) CHECK(providerAddProbe(provider, name, 0) != NULL);
        CHECK_EQUAL(providerLoad(provider), 0);
    }
    PS_WRITE(stop, true);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    providerDestroy(provider);
    CHECK_EQUAL(files(), 0);
}

int main(void)
{
    snprintf(directory, sizeof(directory), "/tmp/provider_test-XXXXXX");
    if (!mkdtemp(directory)) return 1;
    snprintf(library_directory, sizeof(library_directory), "%s/probescope", directory);
    setenv("XDG_RUNTIME_DIR", directory, 1);
    pthread_atfork(await_unload, NULL, NULL); /* before the first provider */
    RUN(fires_what_it_is_given);
    RUN(says_what_is_wrong);
    RUN(tells_tracers_where_the_arguments_are);
    RUN(keeps_its_file_while_it_is_loaded);
    RUN(waits_for_who_looks_at_its_file);
    RUN(can_stay_in_memory);
    RUN(has_a_thousand_probes_and_one_semaphore_a_name);
    RUN(leaves_nothing);
    RUN(lasts_when_a_daemon_closes_every_descriptor);
    RUN_FORKING(shares_its_file_with_others_and_sweeps_after_the_killed);
    RUN_FORKING(a_fork_keeps_what_was_loaded);
    RUN_FORKING(lets_a_thread_unload_it_before_a_fork);
    RUN_FORKING(stays_in_memory_where_no_directory_will_do);
    RUN(threads_fire_while_it_is_unloaded_and_loaded);
    RUN(finds_another_place);
    rmdir(library_directory);
    rmdir(directory);
    return check_report("provider_test");
}

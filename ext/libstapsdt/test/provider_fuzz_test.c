/*
 * Makes providers from arbitrary bytes: unusual names, counts and types, in any order of calls.
 * Then the notes of each loaded file must match the calls, and nothing may be left behind.
 *
 * As a test it runs the corpus in provider_corpus/, and then random bytes for a while. `rake fuzz`
 * builds it for libFuzzer, which adds inputs to the corpus that reach new code.
 */
#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test/check.h"
#include "provider.h"

enum { PROVIDERS = 3, NAME = 160, INPUT = 512 };

static const uint8_t *input;
static size_t left;
static char directory[64];
static SDTProvider_t *providers[PROVIDERS];

static uint8_t next(void)
{
    if (left == 0) return 0;
    left--;
    return *input++;
}

/* Short and valid in most cases. */
static char *name(char *text)
{
    uint8_t length = next();
    bool any = length >= 192;
    length = (uint8_t)(any ? (length - 192) * 5 / 2 : 1 + length % 4);
    for (int i = 0; i < length; i++) text[i] = (char)(any ? next() : "aZ_9"[next() % 4]);
    text[length] = 0;
    return text;
}

static ArgType_t type(void)
{
    static const ArgType_t valid[] = {uint8, int8,   uint16, int16,     uint32,
                                      int32, uint64, int64,  sdtDouble, sdtString};
    uint8_t byte = next();
    return byte < 240 ? valid[byte % (sizeof(valid) / sizeof(*valid))] : (ArgType_t)((byte - 248) * 0x11);
}

static int count_of(SDTProvider_t *provider)
{
    int count = 0;
    for (SDTProbeList_t *node = provider->probes; node; node = node->next) count++;
    return count;
}

static void add(SDTProvider_t *provider)
{
    char text[NAME];
    ArgType_t types[UINT8_MAX];
    uint8_t byte = next();
    int before = count_of(provider), count = byte < 240 ? byte % 14 : (int8_t)byte;
    bool array = next() & 1;
    for (int i = 0; i < count && i <= SDT_MAX_ARGUMENTS; i++) types[i] = type();
    name(text);
    SDTProbe_t *probe = array ? providerAddProbeArray(provider, text, count, types)
                              : providerAddProbe(provider, text, count, types[0], types[1], types[2],
                                                 types[3], types[4], types[5]);
    CHECK_EQUAL(count_of(provider), before + (probe != NULL));
    CHECK(probe || provider->lastError > sharedLibraryCloseError);
    if (!probe) return;
    CHECK_STRING(probe->name, text);
    CHECK_EQUAL(probe->argCount, count);
}

/* Returns one of its probes, or NULL. */
static SDTProbe_t *pick(SDTProvider_t *provider)
{
    int count = count_of(provider), index = count ? next() % count : 0;
    SDTProbeList_t *node = provider->probes;
    while (index-- > 0) node = node->next;
    return node ? &node->probe : NULL;
}

static void fire(SDTProbe_t *probe)
{
    char text[NAME];
    uint64_t values[SDT_MAX_ARGUMENTS];
    for (int i = 0; probe && i < SDT_MAX_ARGUMENTS; i++)
        values[i] = ((ps_provider_probe *)probe)->types[i] == sdtString
                        ? (next() & 1 ? (uintptr_t)name(text) : 0)
                        : next() * UINT64_C(0x0101010101010101);
    volatile uint16_t *semaphore =
        probe && probe->_fire ? (volatile uint16_t *)((ps_provider_probe *)probe)->semaphore : NULL;
    if (semaphore) *semaphore = 1;
    CHECK_EQUAL(probeIsEnabled(probe), semaphore != NULL);
    probeFireArray(probe, values);
    if (probe && !((ps_provider_probe *)probe)->doubles)
        probeFire(probe, values[0], values[1], values[2], values[3], values[4], values[5], values[6],
                  values[7], values[8], values[9], values[10], values[11]);
    if (semaphore) *semaphore = 0;
}

/* Checks what a tracer reads from the file. */
static void check_notes(SDTProvider_t *provider, const uint8_t *file, size_t size)
{
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)file;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(file + header->e_shoff), *notes = sections;
    CHECK_EQUAL(header->e_shoff + header->e_shnum * sizeof(*sections), size);
    while (notes < sections + header->e_shnum && notes->sh_type != SHT_NOTE) notes++;
    const uint8_t *at = file + notes->sh_offset;
    for (SDTProbeList_t *node = provider->probes; node; node = node->next) {
        const Elf64_Nhdr *note = (const Elf64_Nhdr *)at;
        uint64_t addresses[3];
        memcpy(addresses, at + sizeof(*note) + 8, sizeof(addresses));
        const char *text = (const char *)at + sizeof(*note) + 8 + sizeof(addresses);
        CHECK_STRING(text, provider->name);
        text += strlen(text) + 1;
        CHECK_STRING(text, node->probe.name);
        text += strlen(text) + 1;
        int operands = 0;
        for (const char *c = text; *c; c++) operands += *c == '@';
        CHECK_EQUAL(operands, node->probe.argCount);
        CHECK_EQUAL((const uint8_t *)text + strlen(text) + 1 - at, sizeof(*note) + 8 + note->n_descsz);
        CHECK_EQUAL((uintptr_t)node->probe._fire, (uintptr_t)provider->_handle + addresses[0]);
        at += sizeof(*note) + 8 + (note->n_descsz + 3) / 4 * 4;
    }
    CHECK_EQUAL(at - file, notes->sh_offset + notes->sh_size);
}

static void load(SDTProvider_t *provider)
{
    if (providerLoad(provider) != 0) {
        CHECK(provider->lastError == invalidNameError || provider->lastError == tmpCreationError);
        CHECK(provider->error != NULL);
        return;
    }
    int file = providerPath(provider) ? open(providerPath(provider), O_RDONLY) : dup(provider->_memfd);
    struct stat status;
    CHECK(file >= 0 && fstat(file, &status) == 0);
    void *content = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    check_notes(provider, content, (size_t)status.st_size);
    munmap(content, (size_t)status.st_size);
}

static void step(void)
{
    uint8_t what = next();
    SDTProvider_t **provider = &providers[what / 16 % PROVIDERS];
    char text[NAME];
    if (!*provider) *provider = providerInit(name(text));
    switch (what % 16) {
    case 0:
        providerDestroy(*provider);
        *provider = NULL;
        break;
    case 1: providerUnload(*provider); break;
    case 2:
    case 3: load(*provider); break;
    case 4: providerUseMemfd(*provider, next() & 1 ? memfd_enabled : memfd_disabled); break;
    case 5:
    case 6:
    case 7: fire(pick(*provider)); break;
    default: add(*provider);
    }
}

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    snprintf(directory, sizeof(directory), "/tmp/provider_fuzz-XXXXXX");
    if (!mkdtemp(directory)) return 1;
    return setenv("XDG_RUNTIME_DIR", directory, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    input = bytes;
    left = size;
    while (left > 0) step();
    for (int i = 0; i < PROVIDERS; i++) {
        providerDestroy(providers[i]);
        providers[i] = NULL;
    }
#ifdef PS_LIBFUZZER
    if (check_failures) abort();
#endif
    return 0;
}

#ifndef PS_LIBFUZZER
static void run_file(const char *folder, const char *entry)
{
    char path[512];
    uint8_t bytes[INPUT];
    snprintf(path, sizeof(path), "%s/%s", folder, entry);
    FILE *file = fopen(path, "rb");
    LLVMFuzzerTestOneInput(bytes, fread(bytes, 1, sizeof(bytes), file));
    fclose(file);
}

static void takes_the_corpus(void)
{
    const char *folder = "ext/libstapsdt/test/provider_corpus";
    int count = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        if (entry->d_name[0] == '.') continue;
        run_file(folder, entry->d_name);
        count++;
    }
    if (entries) closedir(entries);
    CHECK(count > 0);
}

static void takes_random_bytes(void)
{
    uint64_t state = 7;
    uint8_t bytes[INPUT];
    for (int i = 0; i < 2000; i++) {
        for (size_t j = 0; j < sizeof(bytes); j++) bytes[j] = (uint8_t)(check_random(&state) >> 32);
        LLVMFuzzerTestOneInput(bytes, sizeof(bytes));
    }
}

static void left_nothing(void)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/probescope", directory);
    CHECK(rmdir(path) == 0 && rmdir(directory) == 0);
}

int main(void)
{
    if (LLVMFuzzerInitialize(NULL, NULL) != 0) return 1;
    RUN(takes_the_corpus);
    RUN(takes_random_bytes);
    RUN(left_nothing);
    return check_report("provider_fuzz");
}
#endif

/*
 * Reads the thread context of OpenTelemetry (OTEP 4947) of a thread of another process, as a
 * profiler would. For x86-64 and glibc.
 *
 *   thread_record PID TID LIBRARY
 *
 * Prints "trace_id span_id flags", or "none". It finds the library's symbol in the library's file,
 * and the thread's storage through the thread pointer and the vector of modules (dtv).
 */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static int memory;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static uint64_t word(uint64_t address)
{
    uint64_t value;
    if (pread(memory, &value, sizeof(value), (off_t)address) != sizeof(value)) fail("read");
    return value;
}

/* Returns the address at which the file's beginning is mapped. */
static uint64_t base_of(int pid, const char *library)
{
    char path[64], line[4096];
    snprintf(path, sizeof(path), "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "r");
    if (!maps) fail(path);
    uint64_t start, offset;
    while (fgets(line, sizeof(line), maps))
        if (sscanf(line, "%lx-%*x %*s %lx", &start, &offset) == 2 && offset == 0 && strstr(line, library))
            return start;
    fprintf(stderr, "%s is not mapped\n", library);
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    int pid = atoi(argv[1]), thread = atoi(argv[2]), file = open(argv[3], O_RDONLY);
    struct stat stat;
    if (file < 0 || fstat(file, &stat) < 0) fail(argv[3]);
    const char *elf = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)elf;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(elf + head->e_shoff), *symbols = NULL;
    for (int i = 0; i < head->e_shnum; i++)
        if (sections[i].sh_type == SHT_DYNSYM) symbols = &sections[i];
    const Elf64_Sym *symbol = (const Elf64_Sym *)(elf + symbols->sh_offset);
    const char *names = elf + sections[symbols->sh_link].sh_offset;
    uint32_t index = 0;
    while (strcmp(names + symbol[index].st_name, "otel_thread_ctx_v1") != 0) index++;
    /* The address at which the dynamic linker has written the module's number. */
    uint64_t place = 0;
    for (int i = 0; i < head->e_shnum; i++) {
        if (sections[i].sh_type != SHT_RELA) continue;
        const Elf64_Rela *relocation = (const Elf64_Rela *)(elf + sections[i].sh_offset);
        for (uint64_t n = sections[i].sh_size / sizeof(*relocation); n--; relocation++)
            if (ELF64_R_TYPE(relocation->r_info) == R_X86_64_DTPMOD64 &&
                ELF64_R_SYM(relocation->r_info) == index)
                place = relocation->r_offset;
    }
    if (!place) {
        fprintf(stderr, "no module number for the symbol\n");
        return 1;
    }
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/mem", pid);
    memory = open(path, O_RDONLY);
    if (memory < 0) fail(path);
    struct user_regs_struct registers;
    if (ptrace(PTRACE_SEIZE, thread, 0, 0) < 0 || ptrace(PTRACE_INTERRUPT, thread, 0, 0) < 0) fail("ptrace");
    if (waitpid(thread, NULL, __WALL) < 0 || ptrace(PTRACE_GETREGS, thread, 0, &registers) < 0)
        fail("ptrace");
    uint64_t module = word(base_of(pid, argv[3]) + place), vector = word(registers.fs_base + 8);
    uint64_t size = word(vector - 16), block = module <= size ? word(vector + 16 * module) : UINT64_MAX;
    /* A thread's block is 0 or -1 until the thread uses one of the library's variables. */
    uint64_t record = block == 0 || block == UINT64_MAX ? 0 : word(block + symbol[index].st_value);
    unsigned char bytes[28] = {0};
    if (record && pread(memory, bytes, sizeof(bytes), (off_t)record) != sizeof(bytes)) fail("record");
    ptrace(PTRACE_DETACH, thread, 0, 0);
    if (bytes[24] != 1) return puts("none") < 0;
    for (int i = 0; i < 24; i++) printf("%02x%s", bytes[i], i == 15 ? " " : "");
    printf(" %02x\n", bytes[25]);
    return 0;
}

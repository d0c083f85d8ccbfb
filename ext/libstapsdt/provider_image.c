#include "provider_image.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"

#if defined(__x86_64__)
#define MACHINE EM_X86_64
/* nop; ret; int3... */
static const uint8_t site_code[PS_SITE_SIZE] = {0x90, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc};
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
/* nop; ret */
static const uint8_t site_code[PS_SITE_SIZE] = {0x1f, 0x20, 0x03, 0xd5, 0xc0, 0x03, 0x5f, 0xd6};
#else
#define MACHINE EM_NONE
static const uint8_t site_code[PS_SITE_SIZE];
#endif

enum { SEGMENTS = 4, OPERAND_SIZE = 24, ADDRESSES = 3 };
enum { NONE, TEXT, PROBES, BASE, NOTES, SYMBOLS, STRINGS, BUILD_ID, SECTIONS };

/* The string table begins with these names. Those of the symbols follow. */
static const char section_names[] =
    "\0.text\0.probes\0.stapsdt.base\0.note.stapsdt\0.symtab\0.strtab\0.note.gnu.build-id";
static const uint8_t name_offsets[SECTIONS] = {0, 1, 7, 15, 29, 43, 51, 59};
static const uint8_t alignments[SECTIONS] = {0, 8, 2, 1, 4, 8, 1, 4};

/* perf lists no probe of a file without a build-id of 20 bytes. */
typedef struct build_id_note {
    Elf64_Nhdr header;
    char name[4];
    uint8_t id[20];
} build_id_note;

typedef struct plan {
    size_t page, build_id, base, text_end, semaphores_end, notes, notes_end, symbols, symbols_end, strings,
        strings_end, sections;
} plan;

static size_t round_up(size_t value, size_t to)
{
    return (value + to - 1) / to * to;
}

/* Where argument `index` is when the site is called, in the assembler's notation. */
static int operand(char *text, int index, ArgType_t type)
{
    int size = type == sdtDouble || type == sdtString ? 8 : (int)type;
#if defined(__aarch64__)
    if (index < 8) return snprintf(text, OPERAND_SIZE, "%d@x%d", size, index);
    if (index == 8) return snprintf(text, OPERAND_SIZE, "%d@[sp]", size);
    return snprintf(text, OPERAND_SIZE, "%d@[sp, %d]", size, 8 * (index - 8));
#else
    static const char *const registers[] = {"rdi", "rsi", "rdx", "rcx", "r8", "r9"};
    if (index < 6) return snprintf(text, OPERAND_SIZE, "%d@%%%s", size, registers[index]);
    /* The return address comes first. */
    return snprintf(text, OPERAND_SIZE, "%d@%d(%%rsp)", size, 8 * (index - 5));
#endif
}

/* Writes the operands, unless text is NULL. Returns their size in bytes with the NUL. */
static size_t operands(char *text, const ps_image_probe *probe)
{
    char one[OPERAND_SIZE];
    size_t length = 0;
    for (int i = 0; i < probe->count; i++) {
        size_t size = (size_t)operand(one, i, probe->types[i]);
        if (i > 0 && text) text[length] = ' ';
        if (i > 0) length++;
        if (text) memcpy(text + length, one, size);
        length += size;
    }
    if (text) text[length] = 0;
    return length + 1;
}

static size_t note_size(const char *provider, const ps_image_probe *probe)
{
    size_t description =
        ADDRESSES * sizeof(uint64_t) + strlen(provider) + 1 + strlen(probe->name) + 1 + operands(NULL, probe);
    return sizeof(Elf64_Nhdr) + sizeof("stapsdt") + round_up(description, 4);
}

/* Gives each name a semaphore. Returns the number of names. */
static size_t share_semaphores(ps_image_probe *probes, size_t count)
{
    size_t names = 0;
    for (size_t i = 0; i < count; i++) {
        size_t j = 0;
        while (j < i && strcmp(probes[j].name, probes[i].name) != 0) j++;
        probes[i].semaphore = j < i ? probes[j].semaphore : names++;
    }
    return names;
}

static plan lay_out(ps_image *image, const char *provider, ps_image_probe *probes, size_t count)
{
    plan at = {.page = (size_t)sysconf(_SC_PAGESIZE)};
    at.build_id = sizeof(Elf64_Ehdr) + SEGMENTS * sizeof(Elf64_Phdr);
    at.base = at.build_id + sizeof(build_id_note);
    image->text = round_up(at.base + 1, PS_SITE_SIZE);
    at.text_end = image->text + count * PS_SITE_SIZE;
    image->semaphores = round_up(at.text_end, at.page);
    at.semaphores_end = image->semaphores + share_semaphores(probes, count) * sizeof(uint16_t);
    image->mapped = round_up(at.semaphores_end, at.page);
    at.notes = at.notes_end = round_up(at.semaphores_end, 4);
    size_t names = 0;
    for (size_t i = 0; i < count; i++) {
        probes[i].site = image->text + i * PS_SITE_SIZE;
        probes[i].semaphore = image->semaphores + probes[i].semaphore * sizeof(uint16_t);
        at.notes_end += note_size(provider, &probes[i]);
        names += strlen(probes[i].name) + 1;
    }
    at.symbols = round_up(at.notes_end, 8);
    at.symbols_end = at.symbols + (count + 1) * sizeof(Elf64_Sym);
    at.strings = at.symbols_end;
    at.strings_end = at.strings + sizeof(section_names) + names;
    at.sections = round_up(at.strings_end, 8);
    image->size = at.sections + SECTIONS * sizeof(Elf64_Shdr);
    return at;
}

static void write_headers(ps_image *image, const plan *at)
{
    *(Elf64_Ehdr *)image->bytes = (Elf64_Ehdr){
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_type = ET_DYN,
        .e_machine = MACHINE,
        .e_version = EV_CURRENT,
        .e_phoff = sizeof(Elf64_Ehdr),
        .e_shoff = at->sections,
        .e_ehsize = sizeof(Elf64_Ehdr),
        .e_phentsize = sizeof(Elf64_Phdr),
        .e_phnum = SEGMENTS,
        .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = SECTIONS,
        .e_shstrndx = STRINGS,
    };
    Elf64_Phdr *segments = (Elf64_Phdr *)(image->bytes + sizeof(Elf64_Ehdr));
    segments[0] = (Elf64_Phdr){.p_type = PT_LOAD,
                               .p_flags = PF_R | PF_X,
                               .p_filesz = at->text_end,
                               .p_memsz = at->text_end,
                               .p_align = at->page};
    size_t size = at->semaphores_end - image->semaphores;
    segments[1] = (Elf64_Phdr){.p_type = PT_LOAD,
                               .p_flags = PF_R | PF_W,
                               .p_offset = image->semaphores,
                               .p_vaddr = image->semaphores,
                               .p_paddr = image->semaphores,
                               .p_filesz = size,
                               .p_memsz = size,
                               .p_align = at->page};
    segments[2] = (Elf64_Phdr){.p_type = PT_GNU_STACK, .p_flags = PF_R | PF_W, .p_align = 16};
    segments[3] = (Elf64_Phdr){.p_type = PT_NOTE,
                               .p_flags = PF_R,
                               .p_offset = at->build_id,
                               .p_vaddr = at->build_id,
                               .p_paddr = at->build_id,
                               .p_filesz = sizeof(build_id_note),
                               .p_memsz = sizeof(build_id_note),
                               .p_align = alignments[BUILD_ID]};
}

static void write_section(ps_image *image, const plan *at, int index, uint32_t type, uint64_t flags,
                          size_t from, size_t to)
{
    Elf64_Shdr *section = (Elf64_Shdr *)(image->bytes + at->sections) + index;
    *section = (Elf64_Shdr){.sh_name = name_offsets[index],
                            .sh_type = type,
                            .sh_flags = flags,
                            .sh_addr = flags & SHF_ALLOC ? from : 0,
                            .sh_offset = from,
                            .sh_size = to - from,
                            .sh_addralign = alignments[index]};
    if (index == SYMBOLS) {
        section->sh_link = STRINGS;
        section->sh_info = 1; /* the first symbol that is not local */
        section->sh_entsize = sizeof(Elf64_Sym);
    }
}

static void write_sections(ps_image *image, const plan *at)
{
    write_section(image, at, TEXT, SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, image->text, at->text_end);
    write_section(image, at, PROBES, SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, image->semaphores,
                  at->semaphores_end);
    write_section(image, at, BASE, SHT_PROGBITS, SHF_ALLOC, at->base, at->base + 1);
    write_section(image, at, NOTES, SHT_NOTE, 0, at->notes, at->notes_end);
    write_section(image, at, SYMBOLS, SHT_SYMTAB, 0, at->symbols, at->symbols_end);
    write_section(image, at, STRINGS, SHT_STRTAB, 0, at->strings, at->strings_end);
    write_section(image, at, BUILD_ID, SHT_NOTE, SHF_ALLOC, at->build_id, at->base);
}

static void write_notes(ps_image *image, const plan *at, const char *provider, const ps_image_probe *probes,
                        size_t count)
{
    uint8_t *to = image->bytes + at->notes;
    for (size_t i = 0; i < count; i++) {
        Elf64_Nhdr *note = (Elf64_Nhdr *)to;
        char *name = (char *)(note + 1), *text = name + sizeof("stapsdt");
        memcpy(name, "stapsdt", sizeof("stapsdt"));
        uint64_t addresses[ADDRESSES] = {probes[i].site, at->base, probes[i].semaphore};
        memcpy(text, addresses, sizeof(addresses));
        char *end = text + sizeof(addresses);
        end = stpcpy(end, provider) + 1;
        end = stpcpy(end, probes[i].name) + 1;
        end += operands(end, &probes[i]);
        *note =
            (Elf64_Nhdr){.n_namesz = sizeof("stapsdt"), .n_descsz = (Elf64_Word)(end - text), .n_type = 3};
        to += note_size(provider, &probes[i]);
    }
}

/* The symbols give the place of an event a name in a tracer's stack, and in `nm`. */
static void write_symbols(ps_image *image, const plan *at, const ps_image_probe *probes, size_t count)
{
    Elf64_Sym *symbols = (Elf64_Sym *)(image->bytes + at->symbols);
    char *strings = (char *)image->bytes + at->strings, *end = strings + sizeof(section_names);
    memcpy(strings, section_names, sizeof(section_names));
    for (size_t i = 0; i < count; i++) {
        symbols[i + 1] = (Elf64_Sym){.st_name = (Elf64_Word)(end - strings),
                                     .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                                     .st_shndx = TEXT,
                                     .st_value = probes[i].site,
                                     .st_size = PS_SITE_SIZE};
        end = stpcpy(end, probes[i].name) + 1;
    }
}

/* Called when all else is written, because the build-id is its hash. */
static void write_build_id(ps_image *image, const plan *at)
{
    image->digest = ps_fnv1a(image->bytes, image->size);
    build_id_note *note = (build_id_note *)(image->bytes + at->build_id);
    *note = (build_id_note){{sizeof(note->name), sizeof(note->id), NT_GNU_BUILD_ID}, "GNU", {0}};
    for (size_t i = 0; i < sizeof(note->id); i++) note->id[i] = (uint8_t)(image->digest >> i % 8 * 8);
}

void ps_image_sites(uint8_t *bytes, size_t from, size_t to)
{
    for (; from + PS_SITE_SIZE <= to; from += PS_SITE_SIZE) memcpy(bytes + from, site_code, PS_SITE_SIZE);
}

bool ps_image_make(ps_image *image, const char *provider, ps_image_probe *probes, size_t count)
{
    plan at = lay_out(image, provider, probes, count);
    image->bytes = MACHINE == EM_NONE ? NULL : calloc(1, image->size);
    if (!image->bytes) return false;
    write_headers(image, &at);
    write_sections(image, &at);
    write_notes(image, &at, provider, probes, count);
    write_symbols(image, &at, probes, count);
    ps_image_sites(image->bytes, image->text, at.text_end);
    write_build_id(image, &at);
    return true;
}

void ps_image_free(ps_image *image)
{
    free(image->bytes);
    image->bytes = NULL;
}

#include <stdlib.h>

#include "check.h"
#include "base/memory.h"
#include "table/interned_strings.h"

/*
 * RFC 3629, section 4, written like its grammar. Returns the number of bytes of the character at s,
 * or 0.
 */
static size_t character(const unsigned char *s, size_t size)
{
#define TAIL(i)           (size > (i) && s[i] >= 0x80 && s[i] <= 0xbf)
#define SECOND(low, high) (size > 1 && s[1] >= (low) && s[1] <= (high))
    if (s[0] <= 0x7f) return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf) return TAIL(1) ? 2 : 0;
    if (s[0] == 0xe0) return SECOND(0xa0, 0xbf) && TAIL(2) ? 3 : 0;
    if (s[0] == 0xed) return SECOND(0x80, 0x9f) && TAIL(2) ? 3 : 0;
    if (s[0] >= 0xe1 && s[0] <= 0xef) return TAIL(1) && TAIL(2) ? 3 : 0;
    if (s[0] == 0xf0) return SECOND(0x90, 0xbf) && TAIL(2) && TAIL(3) ? 4 : 0;
    if (s[0] >= 0xf1 && s[0] <= 0xf3) return TAIL(1) && TAIL(2) && TAIL(3) ? 4 : 0;
    if (s[0] == 0xf4) return SECOND(0x80, 0x8f) && TAIL(2) && TAIL(3) ? 4 : 0;
    return 0;
#undef TAIL
#undef SECOND
}

static bool is_utf8(const char *text)
{
    size_t size = strlen(text), i = 0, step;
    for (; i < size; i += step)
        if (!(step = character((const unsigned char *)text + i, size - i))) return false;
    return true;
}

static const ps_site *intern(const char *name, const char *path, uint64_t line)
{
    return ps_site_intern(name, strlen(name), path, strlen(path), line);
}

static void puts_a_question_mark_for_each_bad_byte(void)
{
    static const struct {
        const char *from;
        size_t size;
        const char *expected;
    } cases[] = {
        {"", 0, ""},
        {"Parser#parse", 12, "Parser#parse"},
        {"Caf\xc3\xa9", 5, "Caf\xc3\xa9"},
        {"\xe2\x82\xac \xf0\x9f\x98\x80", 8, "\xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xf4\x8f\xbf\xbf", 4, "\xf4\x8f\xbf\xbf"}, /* U+10FFFF */
        {"\xf4\x90\x80\x80", 4, "????"},             /* beyond it */
        {"Caf\xe9", 4, "Caf?"},                      /* Latin-1 */
        {"\xc0\xaf", 2, "??"},                       /* overlong */
        {"\xc1\x81", 2, "??"},
        {"\xe0\x80\xaf", 3, "???"},
        {"\xe0\x9f\xbf", 3, "???"},
        {"\xf0\x80\x80\xaf", 4, "????"},
        {"\xf0\x8f\xbf\xbf", 4, "????"},
        {"\xed\xa0\x80", 3, "???"}, /* surrogates */
        {"\xed\xbf\xbf", 3, "???"},
        {"\xed\x9f\xbf", 3, "\xed\x9f\xbf"}, /* the character before them */
        {"\xe2\x82", 2, "??"},               /* truncated */
        {"\xe2\x82x", 3, "??x"},
        {"\xf0\x9f\x98", 3, "???"},
        {"\x80x\xbf", 3, "?x?"}, /* lone continuation bytes */
        {"\xff\xfe", 2, "??"},
        {"a\0b", 3, "a?b"},
        {"\0", 1, "?"},
        {"new\nline \x1b[31m", 14, "new\nline \x1b[31m"}, /* valid: the command escapes it */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char to[64];
        CHECK_EQUAL(ps_copy_utf8(to, sizeof(to), cases[i].from, cases[i].size), strlen(cases[i].expected));
        CHECK_STRING(to, cases[i].expected);
    }
}

static void cuts_between_characters(void)
{
    char to[8];
    CHECK_EQUAL(ps_copy_utf8(to, 4, "ab\xc3\xa9", 4), 2);
    CHECK_STRING(to, "ab");
    CHECK_EQUAL(ps_copy_utf8(to, 5, "ab\xc3\xa9", 4), 4);
    CHECK_STRING(to, "ab\xc3\xa9");
    CHECK_EQUAL(ps_copy_utf8(to, 4, "abcdef", 6), 3);
    CHECK_STRING(to, "abc");
    CHECK_EQUAL(ps_copy_utf8(to, 1, "abc", 3), 0);
    CHECK_STRING(to, "");
}

/* Buffers have exactly the right size, so that AddressSanitizer reports each byte too many. */
static void makes_valid_utf8_of_any_bytes(void)
{
    uint64_t seed = 20240607;
    bool valid = true, fits = true, unchanged = true;
    for (int round = 0; round < 20000; round++) {
        size_t size = check_random(&seed) % 24, capacity = 1 + check_random(&seed) % 24;
        unsigned char *from = malloc(size ? size : 1);
        char *to = malloc(capacity), *again = malloc(capacity);
        /* Most bytes are above 0x7f, because these can be invalid. */
        for (size_t i = 0; i < size; i++)
            from[i] =
                (unsigned char)(check_random(&seed) % 4 ? 0x80 | check_random(&seed) : check_random(&seed));
        size_t length = ps_copy_utf8(to, capacity, (char *)from, size);
        fits &= length < capacity && strlen(to) == length;
        valid &= is_utf8(to);
        ps_copy_utf8(again, capacity, to, length);
        unchanged &= strcmp(to, again) == 0;
        free(from);
        free(to);
        free(again);
    }
    CHECK(valid);
    CHECK(fits);
    CHECK(unchanged);
}

static void shares_equal_strings_and_sites(void)
{
    char name[] = "Cart#total", path[] = "/app/cart.rb";
    const ps_site *site = intern(name, path, 12), *later = intern("Cart#total", "/app/cart.rb", 40);
    name[0] = path[0] = 'x'; /* the site has copies of its own */
    CHECK_STRING(site->name, "Cart#total");
    CHECK_STRING(site->path, "/app/cart.rb");
    CHECK_STRING(site->file, "/app/cart.rb");
    CHECK_EQUAL(site->line, 12);
    CHECK(intern("Cart#total", "/app/cart.rb", 12) == site);

    CHECK(later != site && later->line == 40);
    CHECK(later->name == site->name && later->path == site->path && later->file == site->path);
    CHECK(intern("/app/cart.rb", "Cart#total", 12)->name == site->path);
    CHECK(intern("", "", 0)->name == intern("", "", 1)->path);
    /* Strings that become equal by the replacement share a site. */
    CHECK(intern("a\xff", "", 0) == intern("a\xfe", "", 0));
    /* Needs no NUL, and ignores what follows the end. */
    CHECK(ps_site_intern("Cart#totalXX", 10, "/app/cart.rbXX", 12, 12) == site);
}

static void shortens_a_file_from_the_left(void)
{
    char path[100];
    memset(path, 'x', sizeof(path));
    memcpy(path, "/srv/", 5);
    path[PS_FILE_MAX] = '\0';
    const ps_site *just = intern("f", path, 1);
    CHECK(just->file == just->path);
    CHECK_EQUAL(strlen(just->file), PS_FILE_MAX);

    path[PS_FILE_MAX] = 'y';
    path[PS_FILE_MAX + 1] = '\0';
    const ps_site *longer = intern("f", path, 1);
    CHECK_EQUAL(strlen(longer->path), PS_FILE_MAX + 1);
    CHECK_EQUAL(strlen(longer->file), PS_FILE_MAX);
    CHECK(strncmp(longer->file, "...", 3) == 0);
    CHECK_STRING(longer->file + 3, path + 4);
}

static void shortens_at_the_boundaries_of_characters(void)
{
    static const char *const characters[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (int c = 0; c < 3; c++) {
        for (int offset = 0; offset < 4; offset++) {
            char path[256] = "";
            for (int i = 0; i < offset; i++) strcat(path, "/");
            for (int i = 0; i < 40; i++) strcat(path, characters[c]);
            const ps_site *site = intern("f", path, 1);
            size_t size = strlen(site->file);
            CHECK(is_utf8(site->file));
            CHECK(size <= PS_FILE_MAX && size > PS_FILE_MAX - 4);
            CHECK(strncmp(site->file, "...", 3) == 0);
            CHECK_STRING(site->file + 3, path + strlen(path) - (size - 3));
        }
    }
}

static void cuts_10_kb_names_at_the_end_and_paths_at_the_start(void)
{
    char name[10001], path[10001];
    for (int i = 0; i < 10000; i++) name[i] = (char)('a' + i % 26), path[i] = (char)('a' + i % 25);
    name[10000] = path[10000] = '\0';
    const ps_site *site = intern(name, path, 1);
    CHECK_EQUAL(strlen(site->name), PS_NAME_MAX);
    CHECK(strncmp(site->name, name, PS_NAME_MAX) == 0);
    CHECK_EQUAL(strlen(site->path), PS_NAME_MAX);
    CHECK_STRING(site->path, path + 10000 - PS_NAME_MAX);
    CHECK_EQUAL(strlen(site->file), PS_FILE_MAX);
    CHECK_STRING(site->file + 3, path + 10000 - (PS_FILE_MAX - 3));
    CHECK(intern(name, path, 1) == site);
}

static void cuts_long_names_and_paths_between_characters(void)
{
    char text[3004];
    for (int i = 0; i < 3000; i++) text[i] = "\xe2\x82\xac"[i % 3];
    for (int tail = 0; tail < 4; tail++) {
        memcpy(text + 3000, "xyz", 4);
        text[3000 + tail] = '\0';
        const ps_site *site = intern(text + (3 - tail) * 3, text, 1);
        CHECK(is_utf8(site->name) && is_utf8(site->path) && is_utf8(site->file));
        CHECK(!strchr(site->name, '?') && !strchr(site->path, '?'));
        CHECK(strlen(site->name) > PS_NAME_MAX - 3 && strlen(site->path) > PS_NAME_MAX - 3);
        CHECK_STRING(site->path, text + strlen(text) - strlen(site->path));
    }
}

static void keeps_every_site_where_it_is_while_it_grows(void)
{
    enum { SITES = 20000 };
    static const ps_site *sites[SITES];
    char name[64], path[64];
    for (int i = 0; i < SITES; i++) {
        snprintf(name, sizeof(name), "Class%d#method", i);
        snprintf(path, sizeof(path), "/app/models/%d.rb", i % 500);
        sites[i] = intern(name, path, (uint64_t)i);
    }
    bool same = true;
    for (int i = 0; i < SITES; i++) {
        snprintf(name, sizeof(name), "Class%d#method", i);
        snprintf(path, sizeof(path), "/app/models/%d.rb", i % 500);
        same &= sites[i] == intern(name, path, (uint64_t)i) && sites[i]->line == (uint64_t)i;
        same &= strcmp(sites[i]->name, name) == 0 && strcmp(sites[i]->path, path) == 0;
    }
    CHECK(same);
}

/*
 * Runs first, because it needs sets of their smallest size. When the sets cannot grow any more, the
 * strings' chunk still has room.
 */
static void becomes_overflow_when_memory_is_full_and_still_knows_the_known(void)
{
    enum { MOST = 6000 };
    static const ps_site *sites[MOST];
    char name[32];
    int known = 0;
    ps_memory_set_limit(100000);
    for (; known < MOST; known++) {
        snprintf(name, sizeof(name), "f%d", known);
        sites[known] = intern(name, "a.rb", 1);
        if (sites[known] == &ps_site_overflow) break;
    }
    CHECK(known > 500 && known < MOST);
    CHECK(ps_memory_used() <= 100000);
    int lost = 0;
    for (int i = 0; i < known; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        lost += intern(name, "a.rb", 1) != sites[i];
    }
    CHECK_EQUAL(lost, 0);
    CHECK_STRING(ps_site_overflow.name, "(overflow)");
    CHECK_STRING(ps_site_overflow.file, "");
    CHECK_STRING(ps_site_overflow.path, "");

    ps_memory_set_limit(0);
    snprintf(name, sizeof(name), "f%d", known);
    const ps_site *site = intern(name, "a.rb", 1);
    CHECK(site != &ps_site_overflow);
    CHECK_STRING(site->name, name);
}

static void is_overflow_without_any_memory(void)
{
    ps_memory_set_limit(1);
    CHECK(intern("f", "a.rb", 1) == &ps_site_overflow);
    CHECK_EQUAL(ps_memory_used(), 0);
    ps_memory_set_limit(0);
}

/* AddressSanitizer reports a use of freed names. */
static void gives_everything_back_and_begins_again(void)
{
    char name[64];
    ps_sites_clear();
    CHECK_EQUAL(ps_memory_used(), 0);
    for (int round = 0; round < 3; round++) {
        uint32_t generation = ps_sites_generation;
        for (int i = 0; i < 5000; i++) {
            snprintf(name, sizeof(name), "Round%d#method%d", round, i);
            const ps_site *site = intern(name, "/app/a.rb", (uint64_t)i);
            if (site == &ps_site_overflow || strcmp(site->name, name) != 0) CHECK_STRING(site->name, name);
        }
        CHECK(ps_memory_used() > 5000 * sizeof(ps_site));
        ps_sites_clear();
        CHECK_EQUAL(ps_memory_used(), 0);
        CHECK_EQUAL(ps_sites_generation, generation + 1);
    }
    CHECK(intern("f", "a.rb", 1) == intern("f", "a.rb", 1));
}

static void appends_to_a_name_as_far_as_there_is_room(void)
{
    char name[PS_NAME_MAX + 1], text[PS_NAME_MAX];
    memset(text, 'x', sizeof(text));
    size_t size = ps_name_append(name, 0, "Shop", 4);
    size = ps_name_append(name, size, "#buyer", 4);
    CHECK_EQUAL(size, 8);
    CHECK_STRING(name, "Shop#buy");
    size = ps_name_append(name, size, text, sizeof(text));
    CHECK_EQUAL(size, PS_NAME_MAX);
    CHECK_EQUAL(strlen(name), PS_NAME_MAX);
    CHECK_EQUAL(ps_name_append(name, size, "y", 1), PS_NAME_MAX);
    CHECK_EQUAL(strlen(name), PS_NAME_MAX);
}

int main(void)
{
    RUN(is_overflow_without_any_memory);
    RUN(becomes_overflow_when_memory_is_full_and_still_knows_the_known);
    RUN(puts_a_question_mark_for_each_bad_byte);
    RUN(cuts_between_characters);
    RUN(makes_valid_utf8_of_any_bytes);
    RUN(shares_equal_strings_and_sites);
    RUN(shortens_a_file_from_the_left);
    RUN(shortens_at_the_boundaries_of_characters);
    RUN(cuts_10_kb_names_at_the_end_and_paths_at_the_start);
    RUN(cuts_long_names_and_paths_between_characters);
    RUN(appends_to_a_name_as_far_as_there_is_room);
    RUN(keeps_every_site_where_it_is_while_it_grows);
    RUN(gives_everything_back_and_begins_again);
    return check_report("interned_strings");
}

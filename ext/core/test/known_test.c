#include "check.h"
#include "base/memory.h"
#include "table/known.h"

/* As in Ruby: one stamp for all. */
static uint64_t epoch = 1;
static ps_known_table table = {.now = &epoch};
static int rows[4];

static ps_key key(uintptr_t a, uintptr_t b, uint64_t number)
{
    return (ps_key){PS_ADDRESS(a), PS_ADDRESS(b), number, {epoch, 0}};
}

static ps_known *find(uintptr_t a, uintptr_t b, uint64_t number)
{
    return ps_known_find(&table, key(a, b, number));
}

static bool is_current(uintptr_t a)
{
    return ps_known_is_current(find(a, 0, 0), key(a, 0, 0));
}

static void put(uintptr_t a, uintptr_t b, uint64_t number, int *row)
{
    ps_known_put(&table, key(a, b, number), row);
}

static void knows_nothing_at_first(void)
{
    CHECK(!find(8, 0, 0));
    ps_known_clear(&table);
    CHECK_EQUAL(ps_memory_used(), 0);
}

static void knows_by_both_addresses_and_the_number(void)
{
    put(8, 16, 24, &rows[0]);
    put(8, 16, 32, &rows[1]);
    put(8, 0, 0, &rows[2]);
    CHECK(find(8, 16, 24)->what == &rows[0]);
    CHECK(find(8, 16, 32)->what == &rows[1]);
    CHECK(find(8, 0, 0)->what == &rows[2]);
    CHECK(!find(16, 8, 24));
    put(8, 16, 24, &rows[3]);
    CHECK(find(8, 16, 24)->what == &rows[3]);
    CHECK_EQUAL(table.used, 3);
    ps_known_clear(&table);
    CHECK(!find(8, 16, 24));
    CHECK_EQUAL(ps_memory_used(), 0);
}

static void has_entries_of_no_class_and_no_code(void)
{
    put(0, 0, 0, &rows[0]);
    put(0, 0, 7, &rows[1]);
    CHECK(find(0, 0, 0)->what == &rows[0]);
    CHECK(find(0, 0, 7)->what == &rows[1]);
    CHECK_EQUAL(table.used, 2);
    ps_known_clear(&table);
}

static void tells_a_guess_from_what_is_current(void)
{
    put(8, 0, 0, &rows[0]);
    CHECK(is_current(8));
    epoch++;
    CHECK(!is_current(8));
    CHECK(find(8, 0, 0)->what == &rows[0]);
    ps_known_renew(find(8, 0, 0), key(8, 0, 0));
    CHECK(is_current(8));
    epoch++;
    put(8, 0, 0, &rows[1]);
    CHECK(is_current(8) && find(8, 0, 0)->what == &rows[1]);
    CHECK_EQUAL(table.used, 1);
    ps_known_clear(&table);
}

/*
 * As in CPython: the version of a class and how many code objects were freed are in one stamp, and
 * the address of the qualified name is the other.
 */
static void is_current_only_with_both_stamps(void)
{
    ps_known_table versions = {0};
    ps_key seen = {PS_ADDRESS(8), PS_ADDRESS(16), 4, {(uint64_t)7 << 32 | 2, 0x1000}};
    ps_key freed = seen, changed = seen, renamed = seen;
    freed.stamp[0]++;
    changed.stamp[0] += (uint64_t)1 << 32;
    renamed.stamp[1] += 64;
    ps_known_put(&versions, seen, &rows[0]);
    const ps_known *known = ps_known_find(&versions, seen);
    CHECK(ps_known_is_current(known, seen));
    CHECK(known == ps_known_find(&versions, freed) && !ps_known_is_current(known, freed));
    CHECK(known == ps_known_find(&versions, changed) && !ps_known_is_current(known, changed));
    CHECK(known == ps_known_find(&versions, renamed) && !ps_known_is_current(known, renamed));
    ps_known_renew(ps_known_find(&versions, renamed), renamed);
    CHECK(ps_known_is_current(known, renamed) && !ps_known_is_current(known, seen));
    ps_known_put(&versions, freed, &rows[1]);
    CHECK(ps_known_find(&versions, freed)->what == &rows[1]);
    CHECK_EQUAL(versions.used, 1);
    ps_known_clear(&versions);
}

/* Without one stamp for all, what is found again stays, and what was put once goes. */
static void keeps_what_is_found_again(void)
{
    ps_known_table versions = {0};
    for (uint64_t i = 1; i <= 20000; i++) {
        for (uint64_t kept = 1; kept <= 50; kept++) {
            ps_known *known = ps_known_find(&versions, key(8, 0, kept));
            if (known) known->again = true;
            else ps_known_put(&versions, key(8, 0, kept), &rows[1]);
        }
        ps_known_put(&versions, key(16, 0, i), &rows[0]);
    }
    for (uint64_t kept = 1; kept <= 50; kept++) CHECK(ps_known_find(&versions, key(8, 0, kept)) != NULL);
    CHECK(!ps_known_find(&versions, key(16, 0, 1)));
    CHECK_EQUAL(versions.capacity, 256);
    ps_known_clear(&versions);
}

static void keeps_all_that_is_current(void)
{
    enum { MANY = 20000 };
    for (uintptr_t i = 1; i <= MANY; i++) put(i * 40, i % 7, i % 3, &rows[i % 4]);
    bool same = true;
    for (uintptr_t i = 1; i <= MANY; i++) {
        const ps_known *known = find(i * 40, i % 7, i % 3);
        same &= known && known->what == &rows[i % 4] && ps_known_is_current(known, key(i * 40, i % 7, i % 3));
    }
    CHECK(same);
    CHECK_EQUAL(table.used, MANY);
    ps_known_clear(&table);
}

/* As when an application makes objects with methods of their own for ever. */
static void does_not_grow_by_what_is_gone(void)
{
    for (uintptr_t round = 0; round < 200; round++) {
        for (uintptr_t i = 1; i <= 100; i++) put(0x1000 + (round * 100 + i) * 40, 1, 1, &rows[0]);
        for (uintptr_t i = 1; i <= 100; i++) {
            ps_known *kept = find(i * 8, 0, 0);
            if (kept) ps_known_renew(kept, key(i * 8, 0, 0));
            else put(i * 8, 0, 0, &rows[1]);
        }
        epoch++;
    }
    CHECK(table.capacity <= 1024);
    for (uintptr_t i = 1; i <= 100; i++) CHECK(find(i * 8, 0, 0)->what == &rows[1]);
    ps_known_clear(&table);
}

static void keeps_nothing_without_memory(void)
{
    ps_memory_set_limit(1);
    put(8, 0, 0, &rows[0]);
    CHECK(!find(8, 0, 0));
    ps_memory_set_limit(0);
    for (uintptr_t i = 1; i <= 150; i++) put(i * 8, 0, 0, &rows[0]);
    ps_memory_set_limit(1);
    for (uintptr_t i = 151; i <= 1000; i++) put(i * 8, 0, 0, &rows[0]);
    ps_memory_set_limit(0);
    for (uintptr_t i = 1; i <= 150; i++) CHECK(find(i * 8, 0, 0)->what == &rows[0]);
    CHECK(!find(8000, 0, 0));
    ps_known_clear(&table);
    CHECK_EQUAL(ps_memory_used(), 0);
}

int main(void)
{
    RUN(knows_nothing_at_first);
    RUN(knows_by_both_addresses_and_the_number);
    RUN(has_entries_of_no_class_and_no_code);
    RUN(tells_a_guess_from_what_is_current);
    RUN(is_current_only_with_both_stamps);
    RUN(keeps_what_is_found_again);
    RUN(keeps_all_that_is_current);
    RUN(does_not_grow_by_what_is_gone);
    RUN(keeps_nothing_without_memory);
    return check_report("known");
}

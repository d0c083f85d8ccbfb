#include "check.h"
#include "base/memory.h"
#include "table/known.h"

static ps_known_table table;
static ps_row rows[4];

static ps_known *find(uintptr_t a, uintptr_t b, uintptr_t c)
{
    return ps_known_find(&table, PS_ADDRESS(a), PS_ADDRESS(b), PS_ADDRESS(c));
}

static void put(uintptr_t a, uintptr_t b, uintptr_t c, ps_row *row)
{
    ps_known_put(&table, PS_ADDRESS(a), PS_ADDRESS(b), PS_ADDRESS(c), row);
}

static void knows_nothing_at_first(void)
{
    CHECK(!find(8, 0, 0));
    ps_known_clear(&table);
    CHECK_EQUAL(ps_memory_used(), 0);
}

static void knows_by_all_three_addresses(void)
{
    put(8, 16, 24, &rows[0]);
    put(8, 16, 32, &rows[1]);
    put(8, 0, 0, &rows[2]);
    CHECK(find(8, 16, 24)->row == &rows[0]);
    CHECK(find(8, 16, 32)->row == &rows[1]);
    CHECK(find(8, 0, 0)->row == &rows[2]);
    CHECK(!find(16, 8, 24));
    put(8, 16, 24, &rows[3]);
    CHECK(find(8, 16, 24)->row == &rows[3]);
    CHECK_EQUAL(table.used, 3);
    ps_known_clear(&table);
    CHECK(!find(8, 16, 24));
    CHECK_EQUAL(ps_memory_used(), 0);
}

static void tells_a_guess_from_what_is_current(void)
{
    put(8, 0, 0, &rows[0]);
    CHECK(ps_known_is_current(find(8, 0, 0)));
    ps_known_epoch++;
    CHECK(!ps_known_is_current(find(8, 0, 0)));
    CHECK(find(8, 0, 0)->row == &rows[0]);
    ps_known_renew(find(8, 0, 0));
    CHECK(ps_known_is_current(find(8, 0, 0)));
    ps_known_epoch++;
    put(8, 0, 0, &rows[1]);
    CHECK(ps_known_is_current(find(8, 0, 0)) && find(8, 0, 0)->row == &rows[1]);
    ps_known_clear(&table);
}

static void keeps_all_that_is_current(void)
{
    enum { MANY = 20000 };
    for (uintptr_t i = 1; i <= MANY; i++) put(i * 40, i % 7, i % 3, &rows[i % 4]);
    bool same = true;
    for (uintptr_t i = 1; i <= MANY; i++) {
        const ps_known *known = find(i * 40, i % 7, i % 3);
        same &= known && known->row == &rows[i % 4] && ps_known_is_current(known);
    }
    CHECK(same);
    CHECK_EQUAL(table.used, MANY);
    ps_known_clear(&table);
}

/* As when an application makes objects with methods of their own for ever. */
static void does_not_grow_by_what_is_gone(void)
{
    for (uintptr_t epoch = 0; epoch < 200; epoch++) {
        for (uintptr_t i = 1; i <= 100; i++) put(0x1000 + (epoch * 100 + i) * 40, 1, 1, &rows[0]);
        for (uintptr_t i = 1; i <= 100; i++) {
            ps_known *kept = find(i * 8, 0, 0);
            if (kept) ps_known_renew(kept);
            else put(i * 8, 0, 0, &rows[1]);
        }
        ps_known_epoch++;
    }
    CHECK(table.capacity <= 1024);
    for (uintptr_t i = 1; i <= 100; i++) CHECK(find(i * 8, 0, 0)->row == &rows[1]);
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
    for (uintptr_t i = 1; i <= 150; i++) CHECK(find(i * 8, 0, 0)->row == &rows[0]);
    CHECK(!find(8000, 0, 0));
    ps_known_clear(&table);
    CHECK_EQUAL(ps_memory_used(), 0);
}

int main(void)
{
    RUN(knows_nothing_at_first);
    RUN(knows_by_all_three_addresses);
    RUN(tells_a_guess_from_what_is_current);
    RUN(keeps_all_that_is_current);
    RUN(does_not_grow_by_what_is_gone);
    RUN(keeps_nothing_without_memory);
    return check_report("known");
}

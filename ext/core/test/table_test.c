#include <stdlib.h>

#include "check.h"
#include "base/memory.h"
#include "calls/shadow_stack.h"
#include "table/row_ref.h"
#include "table/table.h"

static ps_table table;

static void makes_a_row_at_first_sight(void)
{
    ps_row *row = ps_table_row(&table, 1, 2, 3);
    CHECK(row && !row->site && !row->count[PS_FUNCTION_CALLS]);
    CHECK(ps_table_row(&table, 1, 2, 3) == row);
    CHECK_EQUAL(table.rows, 1);
    CHECK(ps_table_at(&table, 0) == row);
    CHECK(!ps_row_is_overflow(&table, row));
    ps_table_clear(&table);
}

static void tells_keys_apart_by_each_part(void)
{
    ps_row *rows[] = {ps_table_row(&table, 0, 0, 0), ps_table_row(&table, 1, 0, 0),
                      ps_table_row(&table, 0, 1, 0), ps_table_row(&table, 0, 0, 1)};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++) CHECK(rows[i] != rows[j]);
    CHECK_EQUAL(table.rows, 4);
    ps_table_clear(&table);
}

static void names_a_row_that_is_keyed_by_its_site(void)
{
    const ps_site *site = ps_site_intern("f", 1, "a.rb", 4, 1), *other = ps_site_intern("g", 1, "a.rb", 4, 1);
    ps_row *row = ps_table_row_at(&table, site);
    CHECK(row->site == site);
    CHECK(ps_table_row_at(&table, site) == row);
    CHECK(ps_table_row(&table, (uintptr_t)site, 0, 0) == row);
    CHECK(ps_table_row_at(&table, other) != row);
    ps_table_clear(&table);
    ps_memory_set_limit(1);
    row = ps_table_row_at(&table, site);
    CHECK(ps_row_is_overflow(&table, row) && row->site == &ps_site_overflow);
    CHECK_EQUAL(table.overflowed, 1);
    ps_memory_set_limit(0);
    ps_table_clear(&table);
    table.overflowed = 0;
    ps_sites_clear();
}

static void keeps_addresses_and_finds_every_row_while_it_grows(void)
{
    enum { ROWS = 30000 };
    static ps_row *rows[ROWS];
    for (uintptr_t i = 0; i < ROWS; i++) {
        rows[i] = ps_table_row(&table, i * 8, i % 7, 0x7f0000000000 + i);
        rows[i]->count[0] = i;
    }
    CHECK_EQUAL(table.rows, ROWS);
    CHECK_EQUAL(table.overflowed, 0);
    bool same = true;
    for (uintptr_t i = 0; i < ROWS; i++) {
        same &= ps_table_row(&table, i * 8, i % 7, 0x7f0000000000 + i) == rows[i];
        same &= ps_table_at(&table, (uint32_t)i) == rows[i] && rows[i]->count[0] == i;
    }
    CHECK(same);
    CHECK_EQUAL(table.rows, ROWS);
    ps_table_clear(&table);
}

static void gives_all_memory_back_and_begins_again(void)
{
    size_t before = ps_memory_used();
    for (uintptr_t i = 0; i < 5000; i++) ps_table_row(&table, i, 0, 0)->count[0] = 1;
    CHECK(ps_memory_used() > before);
    ps_table_clear(&table);
    CHECK_EQUAL(ps_memory_used(), before);
    CHECK_EQUAL(table.rows, 0);
    ps_table_clear(&table); /* an empty table */

    ps_row *row = ps_table_row(&table, 4999, 0, 0);
    CHECK_EQUAL(table.rows, 1);
    CHECK_EQUAL(row->count[0], 0);
    ps_table_clear(&table);
}

static void leads_what_does_not_fit_to_one_row(void)
{
    enum { LIMIT = 100000, KEYS = 2000 };
    ps_memory_set_limit(ps_memory_used() + LIMIT);
    uint32_t own = 0;
    for (uintptr_t key = 0; key < KEYS; key++) {
        ps_row *row = ps_table_row(&table, key, 0, 0);
        own += !ps_row_is_overflow(&table, row);
    }
    CHECK(own >= 128 && own < KEYS);
    CHECK_EQUAL(table.rows, own);
    CHECK_EQUAL(table.overflowed, KEYS - own);
    CHECK(table.overflow.site == &ps_site_overflow);
    CHECK(ps_memory_used() <= ps_memory_limit());

    /* Existing rows are still found, and memory that becomes free is used. */
    CHECK(ps_table_row(&table, 0, 0, 0) == ps_table_at(&table, 0));
    ps_memory_set_limit(0);
    CHECK(!ps_row_is_overflow(&table, ps_table_row(&table, KEYS, 0, 0)));
    CHECK_EQUAL(table.rows, own + 1);

    ps_table_clear(&table);
    CHECK(!table.overflow.site);
    CHECK_EQUAL(table.overflowed, KEYS - own); /* it counts events, not rows */
}

static void works_where_there_is_no_memory_at_all(void)
{
    size_t used = ps_memory_used();
    ps_memory_set_limit(used + 1);
    ps_row *row = ps_table_row(&table, 1, 1, 1);
    CHECK(ps_row_is_overflow(&table, row));
    CHECK(ps_table_row(&table, 2, 2, 2) == row);
    CHECK_EQUAL(table.rows, 0);
    ps_table_clear(&table);
    CHECK_EQUAL(ps_memory_used(), used);
    ps_memory_set_limit(0);
}

static void ends_at_the_most_rows_that_it_can_number(void)
{
    const uintptr_t most = (uintptr_t)PS_ROWS_PER_CHUNK * PS_ROW_CHUNKS;
    size_t used = ps_memory_used();
    ps_memory_set_limit((size_t)512 << 20);
    for (uintptr_t key = 0; key < most; key++) ps_table_row(&table, key, 0, 0);
    CHECK_EQUAL(table.rows, most);
    CHECK(!ps_row_is_overflow(&table, ps_table_row(&table, most - 1, 0, 0)));
    CHECK(ps_row_is_overflow(&table, ps_table_row(&table, most, 0, 0)));
    ps_table_clear(&table);
    CHECK_EQUAL(ps_memory_used(), used);
    ps_memory_set_limit(0);
}

static void has_references_that_die_with_the_rows(void)
{
    ps_row_ref none = {0};
    ps_row *row = ps_table_row(&table, 8, 0, 0);
    ps_row_ref ref = ps_row_keep(&table, row), rest = ps_row_keep(&table, &table.overflow);
    CHECK(!ps_row_of(&table, none));
    CHECK(ps_row_of(&table, ref) == row && ps_row_of(&table, rest) == &table.overflow);
    ps_table_clear(&table);
    CHECK(!ps_row_of(&table, ref) && !ps_row_of(&table, rest) && !ps_row_of(&table, none));
    /* A new row may have the memory of the old one. */
    row = ps_table_row(&table, 8, 0, 0);
    CHECK(!ps_row_of(&table, ref));
    CHECK(ps_row_of(&table, ps_row_keep(&table, row)) == row);
    ps_table_clear(&table);
}

int main(void)
{
    RUN(makes_a_row_at_first_sight);
    RUN(tells_keys_apart_by_each_part);
    RUN(names_a_row_that_is_keyed_by_its_site);
    RUN(keeps_addresses_and_finds_every_row_while_it_grows);
    RUN(gives_all_memory_back_and_begins_again);
    RUN(leads_what_does_not_fit_to_one_row);
    RUN(works_where_there_is_no_memory_at_all);
    RUN(ends_at_the_most_rows_that_it_can_number);
    RUN(has_references_that_die_with_the_rows);
    return check_report("table");
}

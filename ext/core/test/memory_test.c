#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "check.h"
#include "base/memory.h"

static void starts_at_32_mb_with_nothing_taken(void)
{
    CHECK_EQUAL(ps_memory_limit(), 32u << 20);
    CHECK_EQUAL(ps_memory_used(), 0);
}

static void obeys_the_limit_to_the_byte(void)
{
    ps_memory_set_limit(1000);
    void *a = ps_memory_take(400), *b = ps_memory_take(600);
    CHECK(a && b);
    CHECK_EQUAL(ps_memory_used(), 1000);
    CHECK(!ps_memory_take(1));
    CHECK_EQUAL(ps_memory_used(), 1000);

    ps_memory_give(a, 400);
    CHECK_EQUAL(ps_memory_used(), 600);
    CHECK(!ps_memory_take(401));
    a = ps_memory_take(400);
    CHECK(a);

    ps_memory_give(a, 400);
    ps_memory_give(b, 600);
    CHECK_EQUAL(ps_memory_used(), 0);
}

static void gives_zeroed_memory(void)
{
    ps_memory_set_limit(0);
    for (int round = 0; round < 2; round++) {
        unsigned char *memory = ps_memory_take(5000);
        bool zero = true;
        for (int i = 0; i < 5000; i++) zero &= memory[i] == 0;
        CHECK(zero);
        memset(memory, 0xff, 5000);
        ps_memory_give(memory, 5000);
    }
}

static void refuses_sizes_that_no_sum_can_hold(void)
{
    ps_memory_set_limit(1000);
    void *memory = ps_memory_take(500);
    CHECK(!ps_memory_take(SIZE_MAX));
    CHECK(!ps_memory_take(SIZE_MAX - 499));
    CHECK(!ps_memory_take(SIZE_MAX / 2));
    CHECK_EQUAL(ps_memory_used(), 500);
    ps_memory_give(memory, 500);
}

static void keeps_what_is_taken_when_the_limit_falls(void)
{
    ps_memory_set_limit(1000);
    void *memory = ps_memory_take(800);
    ps_memory_set_limit(100);
    CHECK_EQUAL(ps_memory_limit(), 100);
    CHECK_EQUAL(ps_memory_used(), 800);
    CHECK(!ps_memory_take(1));
    ps_memory_give(memory, 800);
    memory = ps_memory_take(100);
    CHECK(memory);
    ps_memory_give(memory, 100);
    ps_memory_set_limit(0);
    CHECK_EQUAL(ps_memory_limit(), PS_MEMORY_DEFAULT_LIMIT);
}

static void takes_null_back(void)
{
    ps_memory_give(NULL, 100);
    CHECK_EQUAL(ps_memory_used(), 0);
}

enum { THREADS = 4, PIECES = 1000, PIECE = 64 };

static void *take_all(void *pieces)
{
    void **mine = pieces;
    uintptr_t count = 0;
    while ((mine[count] = ps_memory_take(PIECE)) != NULL) count++;
    return (void *)count;
}

static void holds_the_limit_among_threads(void)
{
    static void *pieces[THREADS][PIECES + 1];
    pthread_t threads[THREADS];
    ps_memory_set_limit(PIECES * PIECE);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, take_all, pieces[i]);
    uintptr_t total = 0;
    for (int i = 0; i < THREADS; i++) {
        void *count;
        pthread_join(threads[i], &count);
        total += (uintptr_t)count;
    }
    CHECK_EQUAL(total, PIECES);
    CHECK_EQUAL(ps_memory_used(), PIECES * PIECE);
    for (int i = 0; i < THREADS; i++)
        for (int p = 0; pieces[i][p]; p++) ps_memory_give(pieces[i][p], PIECE);
    CHECK_EQUAL(ps_memory_used(), 0);
}

static void lets_an_array_grow_where_there_is_room(void)
{
    ps_memory_set_limit(0);
    uint32_t *array = NULL, capacity = 0;
    for (uint32_t i = 0; i < 40; i++) {
        array = ps_memory_grown(array, i, &capacity, sizeof(*array));
        CHECK(array != NULL);
        array[i] = i;
    }
    CHECK_EQUAL(capacity, 64);
    CHECK_EQUAL(ps_memory_used(), 64 * sizeof(*array));
    for (uint32_t i = 0; i < 40; i++) CHECK_EQUAL(array[i], i);
    ps_memory_set_limit(64 * sizeof(*array));
    CHECK(ps_memory_grown(array, 63, &capacity, sizeof(*array)) == array);
    CHECK(!ps_memory_grown(array, 64, &capacity, sizeof(*array)));
    CHECK_EQUAL(capacity, 64);
    ps_memory_give(array, 64 * sizeof(*array));
    ps_memory_set_limit(0);
}

int main(void)
{
    RUN(starts_at_32_mb_with_nothing_taken);
    RUN(obeys_the_limit_to_the_byte);
    RUN(gives_zeroed_memory);
    RUN(refuses_sizes_that_no_sum_can_hold);
    RUN(keeps_what_is_taken_when_the_limit_falls);
    RUN(takes_null_back);
    RUN(holds_the_limit_among_threads);
    RUN(lets_an_array_grow_where_there_is_room);
    return check_report("memory");
}

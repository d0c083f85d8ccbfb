/*
 * The whole test framework. A test program runs its tests one by one with RUN, and returns
 * check_report(). A test is a function named after what it shows. It passes when all its CHECKs
 * hold.
 */
#ifndef PS_CHECK_H
#define PS_CHECK_H

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int check_passed, check_failed, check_skipped, check_failures;

#define CHECK(condition) check_that((condition), __FILE__, __LINE__, #condition)
#define CHECK_EQUAL(actual, expected)                                                                        \
    check_equal((uint64_t)(actual), (uint64_t)(expected), __FILE__, __LINE__, #actual)
#define CHECK_STRING(actual, expected) check_string((actual), (expected), __FILE__, __LINE__, #actual)
/*
 * Waits until the condition holds. The deadline is for a test that fails, not for a slow machine.
 */
#define AWAIT(condition)                                                                                     \
    do {                                                                                                     \
        for (int waited_ms = 0; !(condition) && waited_ms < 60000; waited_ms++) check_sleep_ms(1);           \
        CHECK(condition);                                                                                    \
    } while (0)
#define RUN(test) check_run(#test, test)
/*
 * For a test that starts threads in a forked child. There an assertion of qemu-user (7.2) fails,
 * and ThreadSanitizer stops the program.
 */
#define RUN_FORKING(test) (check_can_fork() ? RUN(test) : (void)check_skipped++)
/*
 * For a test that forks while another thread runs. AddressSanitizer before GCC 14 does not unlock
 * its allocator in the child. When the other thread held that lock, the child's new thread waits
 * for it for ever, in free().
 */
#define RUN_FORKING_BESIDE_THREADS(test) (check_can_fork_beside_threads() ? RUN(test) : (void)check_skipped++)

static inline bool check_that(bool holds, const char *file, int line, const char *text)
{
    if (holds) return true;
    fprintf(stderr, "%s:%d: not true: %s\n", file, line, text);
    check_failures++;
    return false;
}

static inline bool check_equal(uint64_t actual, uint64_t expected, const char *file, int line,
                               const char *text)
{
    if (actual == expected) return true;
    fprintf(stderr, "%s:%d: %s is %" PRIu64 ", not %" PRIu64 "\n", file, line, text, actual, expected);
    check_failures++;
    return false;
}

static inline bool check_string(const char *actual, const char *expected, const char *file, int line,
                                const char *text)
{
    if (strcmp(actual, expected) == 0) return true;
    fprintf(stderr, "%s:%d: %s is \"%s\", not \"%s\"\n", file, line, text, actual, expected);
    check_failures++;
    return false;
}

static inline void check_sleep_ms(long ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

static inline bool check_can_fork(void)
{
#ifdef __SANITIZE_THREAD__
    return false;
#else
    return !getenv("PROBESCOPE_TEST_EMULATED");
#endif
}

static inline bool check_can_fork_beside_threads(void)
{
#if defined(__SANITIZE_ADDRESS__) && __GNUC__ < 14
    return false;
#else
    return check_can_fork();
#endif
}

static inline void check_run(const char *name, void (*test)(void))
{
    int before = check_failures;
    test();
    if (check_failures == before) check_passed++;
    else check_failed++;
    if (check_failures != before) fprintf(stderr, "FAILED: %s\n", name);
}

/* Prints one line for the program, and returns its exit status. */
static inline int check_report(const char *program)
{
    printf("%s: %d passed, %d failed", program, check_passed, check_failed);
    if (check_skipped) printf(", %d not run: they fork", check_skipped);
    printf("\n");
    return check_failed != 0;
}

/* Pseudo-random numbers, the same in every run. */
static inline uint64_t check_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#endif

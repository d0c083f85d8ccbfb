#include "base/task_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/thread_id.h"
#include "check.h"

static struct {
    int tid;   /* of a thread about which others read */
    int apart; /* 0 until the thread has tried, then 1 or -1 */
    bool stop, ends;
    uint64_t read;
} reader;

/* As the watcher does at its ticks: it reads about itself and about the first thread. */
static void *read_all_the_time(void *unused)
{
    char text[256];
    bool apart = ps_task_files_apart();
    PS_WRITE_RELEASE(reader.apart, apart ? 1 : -1);
    while (!PS_READ(reader.stop)) {
        CHECK(ps_task_file_read((int)getpid(), "wchan", text, sizeof(text)));
        CHECK(ps_task_file_read((int)ps_thread_id(), "sched", text, sizeof(text)) && strchr(text, '('));
        PS_WRITE(reader.read, reader.read + 1);
    }
    return unused;
}

static pthread_t start(void)
{
    pthread_t thread;
    memset(&reader, 0, sizeof(reader));
    CHECK(pthread_create(&thread, NULL, read_all_the_time, NULL) == 0);
    AWAIT(PS_READ_ACQUIRE(reader.apart) != 0);
    return thread;
}

static void end(pthread_t thread)
{
    PS_WRITE(reader.stop, true);
    pthread_join(thread, NULL);
}

/*
 * The next open() gets the lowest free number. A program that closes 0 relies on that to open a new
 * 0.
 */
static void takes_no_number_of_the_application(void)
{
    int free = dup(STDERR_FILENO);
    close(free);
    pthread_t thread = start();
    int others = 0;
    for (int i = 0; i < 20000 || PS_READ(reader.read) < 1000; i++) {
        int file = dup(STDERR_FILENO);
        others += file != free;
        close(file);
    }
    end(thread);
    CHECK_EQUAL(others, 0);
}

static void holds_no_file_of_the_application(void)
{
    int end_of[2], file;
    char byte;
    CHECK(pipe(end_of) == 0);
    pthread_t thread = start();
    close(end_of[1]);
    CHECK_EQUAL(read(end_of[0], &byte, 1), 0); /* the last writer is gone */
    close(end_of[0]);
    file = open("/dev/null", O_WRONLY);
    CHECK_EQUAL(write(file, "x", 1), 1);
    close(file);
    end(thread);
}

/* Closes all files, like a process that becomes a daemon. */
static void goes_on_when_the_application_closes_its_files(void)
{
    pthread_t thread = start();
    for (int i = 0; i < 2000; i++)
        for (int file = 3; file < 64; file++) close(file);
    uint64_t before = PS_READ(reader.read);
    AWAIT(PS_READ(reader.read) > before + 100);
    end(thread);
}

static void *end_at_once(void *unused)
{
    PS_WRITE_RELEASE(reader.tid, (int)ps_thread_id());
    while (!PS_READ(reader.ends)) check_sleep_ms(1);
    return unused;
}

static void *read_one_that_ends(void *unused)
{
    char text[256];
    pthread_t other;
    CHECK(ps_task_files_apart());
    CHECK(pthread_create(&other, NULL, end_at_once, NULL) == 0);
    AWAIT(PS_READ_ACQUIRE(reader.tid) != 0);
    for (int i = 0; i < 100; i++) CHECK(ps_task_file_read(reader.tid, "sched", text, sizeof(text)));
    PS_WRITE(reader.ends, true);
    pthread_join(other, NULL);
    AWAIT(!ps_task_file_read(reader.tid, "sched", text, sizeof(text)));
    CHECK_EQUAL(text[0], 0);
    return unused;
}

static void has_nothing_of_a_thread_that_has_ended(void)
{
    pthread_t thread;
    memset(&reader, 0, sizeof(reader));
    CHECK(pthread_create(&thread, NULL, read_one_that_ends, NULL) == 0);
    pthread_join(thread, NULL);
}

static void leaves_the_first_thread_its_files(void)
{
    CHECK(!ps_task_files_apart());
    CHECK(fcntl(STDERR_FILENO, F_GETFD) >= 0);
}

int main(void)
{
    pthread_t thread = start();
    bool can = reader.apart == 1;
    end(thread);
    RUN(leaves_the_first_thread_its_files);
    if (!can) {
        printf("task_file: skipped: this kernel gives no thread a table of files of its own\n");
        return check_report("task_file");
    }
    RUN(takes_no_number_of_the_application);
    RUN(holds_no_file_of_the_application);
    RUN(goes_on_when_the_application_closes_its_files);
    RUN(has_nothing_of_a_thread_that_has_ended);
    return check_report("task_file");
}

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/memory.h"
#include "features/objects.h"
#include "usdt/info.h"
#include "usdt/probe_groups.h"
#include "check.h"
#include "recorder.h"

static void says_what_it_is(void)
{
    ps_info_start("ruby", "3.3.1", "0.1.0");
    const struct ps_info *info = &probescope_info;
    CHECK_STRING(info->magic, "PSCOPE1");
    CHECK_EQUAL(info->size, sizeof(*info));
    CHECK_EQUAL(info->abi, PS_ABI);
    CHECK_EQUAL(info->probe_count, PS_PROBE_COUNT);
    CHECK_EQUAL(info->probe_size, sizeof(info->probes[0]));
    CHECK_EQUAL(info->probes_offset, offsetof(struct ps_info, probes));
    CHECK_STRING(info->runtime, "ruby");
    CHECK_STRING(info->version, "3.3.1");
    CHECK_STRING(info->library, "0.1.0");
    CHECK_EQUAL(info->pid, getpid());
    CHECK_EQUAL(info->sequence % 2, 0);
}

/* Fields are only ever appended: older and newer commands read the struct by these offsets. */
static void keeps_its_layout(void)
{
    CHECK_EQUAL(offsetof(struct ps_info, size), 8);
    CHECK_EQUAL(offsetof(struct ps_info, abi), 12);
    CHECK_EQUAL(offsetof(struct ps_info, sequence), 16);
    CHECK_EQUAL(offsetof(struct ps_info, probe_count), 20);
    CHECK_EQUAL(offsetof(struct ps_info, probe_size), 24);
    CHECK_EQUAL(offsetof(struct ps_info, probes_offset), 28);
    CHECK_EQUAL(offsetof(struct ps_info, runtime), 32);
    CHECK_EQUAL(offsetof(struct ps_info, version), 48);
    CHECK_EQUAL(offsetof(struct ps_info, library), 80);
    CHECK_EQUAL(offsetof(struct ps_info, pid), 96);
    CHECK_EQUAL(offsetof(struct ps_info, flags), 100);
    CHECK_EQUAL(offsetof(struct ps_info, memory_limit), 104);
    CHECK_EQUAL(offsetof(struct ps_info, note), 152);
    CHECK_EQUAL(offsetof(struct ps_info, asked_ns), 280);
    CHECK_EQUAL(offsetof(struct ps_info, hooks_in_ns), 288);
    CHECK_EQUAL(offsetof(struct ps_info_probe, state), 24);
    CHECK_EQUAL(offsetof(struct ps_info_probe, enabled), 28);
    CHECK_EQUAL(offsetof(struct ps_info_probe, semaphore), 32);
    CHECK_EQUAL(offsetof(struct ps_info_probe, reason), 40);
}

static void names_every_probe_and_its_semaphore(void)
{
    for (int i = 0; i < PS_PROBE_COUNT; i++) {
        const struct ps_info_probe *probe = &probescope_info.probes[i];
        CHECK_STRING(probe->name, ps_probe_names[i]); /* not cut */
        CHECK(probe->semaphore == (uint64_t)(uintptr_t)&ps_semaphores[i]);
        CHECK_EQUAL(probe->state, PS_STATE_OFF);
    }
}

static void shows_semaphores_and_memory_when_refreshed(void)
{
    recorder_semaphore(PS_PROBE_SAMPLE, 3);
    ps_memory_set_limit(123456);
    void *memory = ps_memory_take(1000);
    ps_info_refresh();
    CHECK_EQUAL(probescope_info.probes[PS_PROBE_SAMPLE].enabled, 3);
    CHECK_EQUAL(probescope_info.probes[PS_PROBE_LINE].enabled, 0);
    CHECK_EQUAL(probescope_info.memory_used, 1000);
    CHECK_EQUAL(probescope_info.memory_limit, 123456);
    ps_memory_give(memory, 1000);
    ps_memory_set_limit(0);
    recorder_lower_all();
    ps_info_refresh();
    CHECK_EQUAL(probescope_info.probes[PS_PROBE_SAMPLE].enabled, 0);
    CHECK_EQUAL(probescope_info.memory_used, 0);
}

static void keeps_states_with_their_reasons(void)
{
    ps_info_state(PS_PROBE_FUNCTION__ENTRY, PS_STATE_REFUSED, "YJIT of Ruby 3.1");
    CHECK_EQUAL(ps_info_state_of(PS_PROBE_FUNCTION__ENTRY), PS_STATE_REFUSED);
    CHECK_STRING(probescope_info.probes[PS_PROBE_FUNCTION__ENTRY].reason, "YJIT of Ruby 3.1");
    ps_info_state(PS_PROBE_FUNCTION__ENTRY, PS_STATE_ON, NULL);
    CHECK_EQUAL(ps_info_state_of(PS_PROBE_FUNCTION__ENTRY), PS_STATE_ON);
    CHECK_STRING(probescope_info.probes[PS_PROBE_FUNCTION__ENTRY].reason, "");
}

static void sets_the_states_of_a_set_of_probes(void)
{
    ps_info_states(ps_objects_feature.probes, PS_STATE_DEGRADED, "counts blocks");
    CHECK_EQUAL(ps_info_probes_in(PS_STATE_DEGRADED), ps_objects_feature.probes);
    CHECK_STRING(probescope_info.probes[PS_PROBE_OBJECT__ALLOC].reason, "counts blocks");
    CHECK_STRING(probescope_info.probes[PS_PROBE_OBJECT__STATS].reason, "counts blocks");
    CHECK_STRING(probescope_info.probes[PS_PROBE_LINE].reason, "");
    ps_info_degrade(ps_objects_feature.probes | PS_BIT(LINE), "a second reason");
    CHECK_STRING(probescope_info.probes[PS_PROBE_OBJECT__ALLOC].reason, "counts blocks");
    CHECK_STRING(probescope_info.probes[PS_PROBE_LINE].reason, "a second reason");
    ps_info_states(ps_objects_feature.probes | PS_BIT(LINE), PS_STATE_OFF, NULL);
    CHECK_EQUAL(ps_info_probes_in(PS_STATE_DEGRADED), 0);
}

static void keeps_the_first_reason_of_a_degraded_probe(void)
{
    const ps_probe_set probes = PS_BIT(LINE) | PS_BIT(OBJECT__ALLOC) | PS_BIT(GVL__WAIT);
    ps_info_state(PS_PROBE_LINE, PS_STATE_ON, NULL);
    ps_info_state(PS_PROBE_OBJECT__ALLOC, PS_STATE_REFUSED, "refused");
    ps_info_state(PS_PROBE_FUNCTION__ENTRY, PS_STATE_ON, NULL);
    ps_info_degrade(probes, "first");
    ps_info_degrade(probes, "second");
    CHECK_EQUAL(ps_info_state_of(PS_PROBE_LINE), PS_STATE_DEGRADED);
    CHECK_STRING(probescope_info.probes[PS_PROBE_LINE].reason, "first");
    CHECK_EQUAL(ps_info_state_of(PS_PROBE_GVL__WAIT), PS_STATE_DEGRADED);
    CHECK_EQUAL(ps_info_state_of(PS_PROBE_OBJECT__ALLOC), PS_STATE_REFUSED);
    CHECK_STRING(probescope_info.probes[PS_PROBE_OBJECT__ALLOC].reason, "refused");
    CHECK_EQUAL(ps_info_state_of(PS_PROBE_FUNCTION__ENTRY), PS_STATE_ON);
    ps_info_states(probes | PS_BIT(FUNCTION__ENTRY), PS_STATE_OFF, NULL);
}

static void sets_and_clears_flags_one_by_one(void)
{
    ps_info_flag(PS_INFO_INSTALLED, 1);
    ps_info_flag(PS_INFO_JIT, 1);
    CHECK_EQUAL(probescope_info.flags, PS_INFO_INSTALLED | PS_INFO_JIT);
    ps_info_flag(PS_INFO_INSTALLED, 0);
    CHECK_EQUAL(probescope_info.flags, PS_INFO_JIT);
    ps_info_flag(PS_INFO_JIT, 0);
}

static void cuts_texts_that_are_too_long(void)
{
    char text[1000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    struct ps_info before = probescope_info;
    ps_info_note(text);
    ps_info_state(PS_PROBE_LINE, PS_STATE_DEGRADED, text);
    CHECK_EQUAL(strlen(probescope_info.note), sizeof(probescope_info.note) - 1);
    CHECK_EQUAL(strlen(probescope_info.probes[PS_PROBE_LINE].reason), sizeof(before.probes[0].reason) - 1);
    CHECK_STRING(probescope_info.probes[PS_PROBE_LINE + 1].name, ps_probe_names[PS_PROBE_LINE + 1]);
    CHECK_STRING(probescope_info.probes[0].name, ps_probe_names[0]);
    ps_info_start(text, text, text);
    CHECK_EQUAL(strlen(probescope_info.runtime), 15);
    CHECK_EQUAL(strlen(probescope_info.version), 31);
    CHECK_EQUAL(strlen(probescope_info.library), 15);
    CHECK_EQUAL(probescope_info.pid, getpid());
    ps_info_start("ruby", "3.3.1", "0.1.0");
    ps_info_note("");
    ps_info_state(PS_PROBE_LINE, PS_STATE_OFF, NULL);
}

static void moves_the_sequence_by_two_with_each_write(void)
{
    uint32_t before = probescope_info.sequence;
    ps_info_note("a");
    CHECK_EQUAL(probescope_info.sequence, before + 2);
    ps_info_refresh();
    CHECK_EQUAL(probescope_info.sequence, before + 4);
}

static void is_whole_again_in_a_child(void)
{
    probescope_info.sequence |= 1; /* the parent's watcher was writing */
    probescope_info.pid = 1;
    ps_info_after_fork();
    CHECK_EQUAL(probescope_info.sequence % 2, 0);
    CHECK_EQUAL(probescope_info.pid, getpid());
    ps_info_note("still writable");
    CHECK_STRING(probescope_info.note, "still writable");
}

/* ---- A thread waits for another one that writes ---- */

static int waiting;

static void *write_flag(void *unused)
{
    (void)unused;
    PS_WRITE_RELEASE(waiting, (int)syscall(SYS_gettid));
    ps_info_flag(PS_INFO_JIT, 1);
    return NULL;
}

/* How often a thread has given up its CPU voluntarily. */
static int times_left(int thread)
{
    char path[64], line[128];
    int times = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%d/status", thread);
    FILE *status = fopen(path, "r");
    while (status && fgets(line, sizeof(line), status))
        if (sscanf(line, "voluntary_ctxt_switches: %d", &times) == 1) break;
    if (status) fclose(status);
    return times;
}

/* The writer may have a lower priority, and may need the same CPU. */
static void leaves_its_cpu_to_the_one_that_writes(void)
{
    pthread_t writer;
    probescope_info.sequence |= 1;
    pthread_create(&writer, NULL, write_flag, NULL);
    AWAIT(PS_READ_ACQUIRE(waiting));
    int before = times_left(waiting);
    AWAIT(times_left(waiting) > before + 10);
    PS_WRITE_RELEASE(probescope_info.sequence, PS_READ(probescope_info.sequence) + 1);
    pthread_join(writer, NULL);
    CHECK(probescope_info.flags & PS_INFO_JIT);
    CHECK_EQUAL(probescope_info.sequence % 2, 0);
}

/* ---- Two threads write, a command reads ---- */

enum { WRITES = 20000 };
static bool written;

static void *write_notes(void *letter)
{
    char note[sizeof(probescope_info.note)];
    memset(note, *(char *)letter, sizeof(note) - 1);
    note[sizeof(note) - 1] = '\0';
    for (int i = 0; i < WRITES; i++) ps_info_note(note);
    return NULL;
}

/*
 * Reads as a command does. To ThreadSanitizer the read comes from outside the program. Returns
 * false in the middle of a write.
 */
__attribute__((noinline, no_sanitize("thread"))) static bool read_note(char *to)
{
    const volatile char *note = probescope_info.note;
    uint32_t before = PS_READ_ACQUIRE(probescope_info.sequence);
    for (size_t i = 0; i < sizeof(probescope_info.note); i++) to[i] = note[i];
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return before % 2 == 0 && PS_READ(probescope_info.sequence) == before;
}

static void *read_notes(void *torn)
{
    char note[sizeof(probescope_info.note)];
    while (!PS_READ_ACQUIRE(written)) {
        if (!read_note(note)) continue;
        for (size_t i = 1; i < sizeof(note) - 1; i++)
            if (note[i] != note[0]) ++*(int *)torn;
    }
    return NULL;
}

static void is_never_read_half_written(void)
{
    pthread_t reader, writers[2];
    int torn = 0;
    uint32_t before = probescope_info.sequence;
    char letters[] = {'a', 'b'};
    char first[sizeof(probescope_info.note)] = {0};
    memset(first, 'c', sizeof(first) - 1);
    ps_info_note(first);
    pthread_create(&reader, NULL, read_notes, &torn);
    for (int i = 0; i < 2; i++) pthread_create(&writers[i], NULL, write_notes, &letters[i]);
    for (int i = 0; i < 2; i++) pthread_join(writers[i], NULL);
    PS_WRITE_RELEASE(written, true);
    pthread_join(reader, NULL);
    CHECK_EQUAL(torn, 0);
    CHECK_EQUAL(probescope_info.sequence, before + 2 + 2 * 2 * WRITES);
}

int main(void)
{
    RUN(says_what_it_is);
    RUN(keeps_its_layout);
    RUN(names_every_probe_and_its_semaphore);
    RUN(shows_semaphores_and_memory_when_refreshed);
    RUN(keeps_states_with_their_reasons);
    RUN(sets_the_states_of_a_set_of_probes);
    RUN(keeps_the_first_reason_of_a_degraded_probe);
    RUN(sets_and_clears_flags_one_by_one);
    RUN(cuts_texts_that_are_too_long);
    RUN(moves_the_sequence_by_two_with_each_write);
    RUN(is_whole_again_in_a_child);
    RUN(leaves_its_cpu_to_the_one_that_writes);
    RUN(is_never_read_half_written);
    return check_report("info");
}

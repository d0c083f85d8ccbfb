#include "base/last_ran.h"

#include <stdlib.h>
#include <string.h>

#include "base/task_file.h"

uint64_t ps_last_ran_ns(int tid)
{
    static const char name[] = "se.exec_start";
    char text[400]; /* a line with the thread's name, a line of dashes, and the field's line */
    if (!ps_task_file_read(tid, "sched", text, sizeof(text))) return 0;
    /* Search after the dashes, because the application chose the thread's name. */
    const char *field = strstr(text, "\n---");
    field = field ? strstr(field, name) : NULL;
    const char *value = field ? strchr(field, ':') : NULL;
    if (!value) return 0;
    char *point;
    uint64_t ms = strtoull(value + 1, &point, 10);
    return *point == '.' ? ms * 1000000 + strtoull(point + 1, NULL, 10) : 0;
}

bool ps_is_asleep(int tid)
{
    char text[64]; /* the kernel function in which the thread waits; 0: none */
    return ps_task_file_read(tid, "wchan", text, sizeof(text)) && text[0] != '0';
}

bool ps_cpu_ticks_of(int tid, struct ps_cpu_ticks *ticks)
{
    enum { BETWEEN = 11 }; /* fields between the name and utime, stime: proc(5) */
    char text[400];
    if (!ps_task_file_read(tid, "stat", text, sizeof(text))) return false;
    /*
     * Search after the name, which is in brackets. The application chose the name, and it may have
     * brackets and blanks of its own.
     */
    char *at = strrchr(text, ')');
    if (!at) return false;
    at++;
    for (int i = 0; i < BETWEEN; i++) {
        at += strspn(at, " ");
        at += strcspn(at, " ");
    }
    uint64_t user = strtoull(at, &at, 10);
    ticks->system = strtoull(at, NULL, 10);
    ticks->all = user + ticks->system;
    return true;
}

bool ps_cpu_waits_of(int tid, struct ps_cpu_waits *waits)
{
    char text[80]; /* ran, waited, number of times that it got a CPU */
    if (!ps_task_file_read(tid, "schedstat", text, sizeof(text))) return false;
    char *at;
    waits->ran_ns = strtoull(text, &at, 10);
    waits->waited_ns = strtoull(at, NULL, 10);
    return waits->ran_ns > 0;
}

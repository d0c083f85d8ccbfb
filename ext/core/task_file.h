/* What the kernel tells of one thread of this process, in a file of /proc/self/task. */
#ifndef PS_TASK_FILE_H
#define PS_TASK_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Reads the beginning of the file `name` of a thread, as text. False: there is none, or nothing in it. */
bool ps_task_file_read(int tid, const char *name, char *text, size_t size);

#endif

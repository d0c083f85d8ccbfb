/* What the kernel reports of one thread of this process, in a file of /proc/self/task. */
#ifndef PS_TASK_FILE_H
#define PS_TASK_FILE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Reads the beginning of a thread's file as text. name: a string literal. Returns false when there
 * is no such file, or it is empty.
 */
bool ps_task_file_read(int tid, const char *name, char *text, size_t size);

/*
 * Gives the calling thread an empty table of open files of its own, in which it keeps such files
 * open. With the shared table, a program that closes all files would close ours. A program that
 * closes a file and expects its number from the next open() could get another number. Returns
 * false, and changes nothing, when the kernel cannot do that (before 5.9), or on the first thread
 * of a process: where no other thread shares its table, the kernel would close the application's
 * files.
 */
bool ps_task_files_apart(void);

#endif

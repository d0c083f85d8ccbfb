/* What the kernel tells of one thread of this process, in a file of /proc/self/task. */
#ifndef PS_TASK_FILE_H
#define PS_TASK_FILE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Reads the beginning of the file `name`, a literal, of a thread, as text. False: there is none, or
 * nothing in it.
 */
bool ps_task_file_read(int tid, const char *name, char *text, size_t size);

/*
 * From now on the calling thread has a table of open files of its own, in which there are none of
 * the application's, and keeps such files open in it. Else a program that closes all files, or that
 * closes one and expects its number from the next open(), may get a number in the way of what this
 * thread does. False: the kernel cannot do that (before 5.9), and nothing has changed. Not for the
 * first thread of a process: nobody else may have its table.
 */
bool ps_task_files_apart(void);

#endif

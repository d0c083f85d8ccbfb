/*
 * The file that holds a provider's library while it is loaded, in a directory of this user's alone.
 *
 * It is named after its content: processes with the same provider share one file, so that a tracer
 * that attaches by path reaches all of them, and those that start later. Each has a shared lock
 * (flock) on it, and whoever gets the exclusive one knows that nobody uses it, and removes it: who
 * unloads, who exits, and once in its life each process that loads, for those that were killed.
 *
 * The lock belongs to the mapping, which keeps the open file that it was made from; no descriptor
 * stays open. So programs that close every descriptor do not lose it, a forked child has it too,
 * and the kernel drops it when the process dies. No process id is looked at, which could be another
 * process's by now, or belong to another container with the same /tmp.
 */
#ifndef PS_PROVIDER_FILE_H
#define PS_PROVIDER_FILE_H

#include <stddef.h>
#include <stdint.h>

/* In the order in which they are tried. */
enum ps_file_place { PS_FILE_OF_RUN_TIME, PS_FILE_OF_TMP, PS_FILE_IN_MEMORY, PS_FILE_PLACES };

enum { PS_FILE_PATH = 512, PS_FILE_NAME = 192 };

/*
 * Returns a descriptor of the file with this content, with the lock on it, and writes its path,
 * which is empty in memory; -1: with errno. number: this process has so many others of the same
 * content. The kernel keeps one semaphore a file in a process, so they are different files.
 */
int ps_file_open(char path[PS_FILE_PATH], enum ps_file_place place, const char *name, uint64_t digest,
                 unsigned number, const uint8_t *bytes, size_t size);

/* Removes it unless somebody maps it. */
void ps_file_leave(const char *path);

/* A descriptor of a file in memory with this content, or -1. */
int ps_file_in_memory(const char *name, const uint8_t *bytes, size_t size);

#endif

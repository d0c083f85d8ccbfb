/*
 * The file that holds a provider's library while the provider is loaded. It lies in a directory
 * that only this user can enter.
 *
 * The file is named after its content. Processes with the same provider share one file, so a tracer
 * that attaches by path reaches all of them, and processes that start later, too. Each process
 * holds a shared lock (flock) on the file. A process that gets the exclusive lock is sure that no
 * other process uses the file, and removes it. A process tries that when it unloads and when it
 * exits. Once in its life a process that loads a provider also tries it for the files of killed
 * processes.
 *
 * The lock belongs to the mapping: the mapping keeps the open file that it was made from, and no
 * descriptor stays open. So a program that closes every descriptor does not lose the lock, a forked
 * child has it too, and the kernel drops it when the process dies. Process ids are not used: an id
 * may belong to another process by now, or to a process in another container with the same /tmp.
 */
#ifndef PS_PROVIDER_FILE_H
#define PS_PROVIDER_FILE_H

#include <stddef.h>
#include <stdint.h>

/* In the order in which they are tried. */
enum ps_file_place { PS_FILE_OF_RUN_TIME, PS_FILE_OF_TMP, PS_FILE_IN_MEMORY, PS_FILE_PLACES };

enum { PS_FILE_PATH = 512, PS_FILE_NAME = 192 };

/*
 * Returns a descriptor of the file with this content, with the shared lock on it, and writes its
 * path. The path of a file in memory is empty. Returns -1 with errno on failure. number: how many
 * other files with the same content this process has. They must be different files, because in one
 * process the kernel raises a semaphore in only one mapping of a file.
 */
int ps_file_open(char path[PS_FILE_PATH], enum ps_file_place place, const char *name, uint64_t digest,
                 unsigned number, const uint8_t *bytes, size_t size);

/* Removes the file unless a process maps it. */
void ps_file_leave(const char *path);

/* Returns a descriptor of a file in memory with this content, or -1. */
int ps_file_in_memory(const char *name, const uint8_t *bytes, size_t size);

#endif

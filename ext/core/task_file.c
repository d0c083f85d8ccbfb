#include "task_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

bool ps_task_file_read(int tid, const char *name, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d/%s", tid, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    ssize_t length = read(file, text, size - 1);
    close(file);
    text[length > 0 ? length : 0] = 0;
    return length > 0;
}

/*
 * A disk that is full: LD_PRELOAD this.
 *
 * While the file SEMEL_FULL_WHILE exists, nothing can be written to files whose path begins with SEMEL_FULL_PREFIX: ENOSPC, as from a
 * file system without a free block. Reading, locking and shortening go on.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is_full(int fd) {
    const char *prefix = getenv("SEMEL_FULL_PREFIX"), *flag = getenv("SEMEL_FULL_WHILE");
    char link[64], path[4096];
    if (!prefix || !flag || access(flag, F_OK) != 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (strncmp(path, prefix, strlen(prefix)) != 0) return 0;
    errno = ENOSPC;
    return 1;
}

ssize_t write(int fd, const void *bytes, size_t count) {
    return is_full(fd) ? -1 : syscall(SYS_write, fd, bytes, count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    return is_full(fd) ? -1 : syscall(SYS_pwrite64, fd, bytes, count, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    return pwrite64(fd, bytes, count, at);
}

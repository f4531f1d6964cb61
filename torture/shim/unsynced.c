/*
 * A disk that loses unsynced writes: LD_PRELOAD this, kill the process, and let the judge discard writes.
 *
 * For every file whose path begins with SEMEL_UNSYNCED_PREFIX, each write and truncation is first recorded in
 * SEMEL_UNSYNCED_UNDO (the old and the new bytes), and removed from there when the file is synced. The creation and
 * removal of such files is recorded likewise, until their directory is synced. Operations that are not modelled abort
 * the process. A lock on the journal makes a write and its entry atomic, also between processes.
 *
 * Not modelled: mode bits and times of files, mmapped writes (SQLite maps only its -shm file, which is not durable state
 * and is ignored), rename, writev, fallocate (they abort). A sync does not reach the real disk: the page cache that a kill
 * leaves represents the disk here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, TRUNCATE = 2, CREATE = 3, UNLINK = 4 };
enum { OTHER = 0, TRACKED = 1, DIRECTORY = 2 };
#define MAGIC 0x534d4c55u
#define FDS_MAX 4096
#define SYNC_MICROSECONDS 4000

/* One entry of a journal: this, the old bytes, the new bytes (or a name), and MAGIC again. */
struct entry {
    uint32_t magic, kind;
    uint64_t offset;     /* WRITE: where; TRUNCATE: the new length; UNLINK: the inode */
    uint64_t length;     /* of the new bytes, or of the name */
    uint64_t old_length; /* of the file */
    uint64_t old_bytes;
};

static struct { int kind, journal; } fds[FDS_MAX];
static const char *prefix, *undo;
static char directory[4096];
static int lies;

static void die(const char *what) {
    char text[256];
    int n = snprintf(text, sizeof text, "unsynced: %s (errno %d)\n", what, errno);
    syscall(SYS_write, 2, text, (size_t)n);
    abort();
}

__attribute__((constructor)) static void begin(void) {
    prefix = getenv("SEMEL_UNSYNCED_PREFIX");
    undo = getenv("SEMEL_UNSYNCED_UNDO");
    lies = getenv("SEMEL_UNSYNCED_LIES") != NULL;
    if (!prefix || !undo || !strrchr(prefix, '/') || strlen(prefix) >= sizeof directory) die("is not told what to watch");
    strcpy(directory, prefix);
    *strrchr(directory, '/') = 0;
}

static int is_tracked(const char *path) {
    size_t n = strlen(path);
    return !strncmp(path, prefix, strlen(prefix)) && !(n > 4 && !strcmp(path + n - 4, "-shm"));
}

static int open_journal(const char *name) {
    char path[4200];
    snprintf(path, sizeof path, "%s/%s.undo", undo, name);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) die("cannot open its journal");
    return fd;
}

/* A process that was killed during an append leaves an incomplete entry, whose write has not happened. */
static void mend(int journal) {
    struct entry e;
    uint32_t end;
    off_t at = 0, size = lseek(journal, 0, SEEK_END);
    if (size == 0 || (pread(journal, &end, 4, size - 4) == 4 && end == MAGIC)) return;
    while (pread(journal, &e, sizeof e, at) == sizeof e && e.magic == MAGIC) {
        off_t next = at + (off_t)(sizeof e + e.old_bytes + e.length + 4);
        if (pread(journal, &end, 4, next - 4) != 4 || end != MAGIC) break;
        at = next;
    }
    if (syscall(SYS_ftruncate, journal, at)) die("cannot mend its journal");
}

static void lock(int journal) {
    while (flock(journal, LOCK_EX)) if (errno != EINTR) die("cannot lock its journal");
}

static void unlock(int journal) { int e = errno; flock(journal, LOCK_UN); errno = e; }

static void append(int journal, struct entry e, const void *old, const void *new) {
    uint32_t end = MAGIC;
    e.magic = MAGIC;
    mend(journal);
    struct iovec parts[] = {{&e, sizeof e}, {(void *)old, e.old_bytes}, {(void *)new, e.length}, {&end, 4}};
    ssize_t total = (ssize_t)(sizeof e + e.old_bytes + e.length + 4);
    if (syscall(SYS_writev, journal, parts, 4) != total) die("cannot write its journal");
}

/* Records the bytes between `from` and `to`, and those that replace them. */
static void record(int fd, uint32_t kind, off_t from, off_t to, const void *new, size_t length) {
    struct stat s;
    if (fstat(fd, &s)) die("cannot stat");
    if (to > s.st_size) to = s.st_size;
    size_t n = to > from ? (size_t)(to - from) : 0;
    char *old = malloc(n + 1);
    if (!old || pread(fd, old, n, from) != (ssize_t)n) die("cannot read what is to be overwritten");
    struct entry e = {0, kind, (uint64_t)from, length, (uint64_t)s.st_size, n};
    append(fds[fd].journal, e, old, new);
    free(old);
}

static int kind_of(int fd) { return fd >= 0 && fd < FDS_MAX ? fds[fd].kind : OTHER; }

static void note_name(uint32_t kind, const char *path, uint64_t inode) {
    int journal = open_journal("directory");
    lock(journal);
    append(journal, (struct entry){0, kind, inode, strlen(path), 0, 0}, "", path);
    syscall(SYS_close, journal);
}

static int opened(const char *path, int flags, mode_t mode) {
    int tracked = is_tracked(path);
    if (tracked && (flags & (O_TRUNC | O_APPEND))) die("O_TRUNC and O_APPEND are not modelled");
    if (tracked && (flags & O_CREAT) && faccessat(AT_FDCWD, path, F_OK, 0)) note_name(CREATE, path, 0);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    int kind = tracked ? TRACKED : !strcmp(path, directory) ? DIRECTORY : OTHER;
    if (fd < 0 || kind == OTHER) return fd;
    if (fd >= FDS_MAX) die("too many files");
    struct stat s;
    char name[32] = "directory";
    if (fstat(fd, &s)) die("cannot stat");
    if (kind == TRACKED) snprintf(name, sizeof name, "%llu", (unsigned long long)s.st_ino);
    fds[fd].journal = open_journal(name);
    fds[fd].kind = kind;
    return fd;
}

static mode_t mode_of(int flags, va_list more) { return flags & O_CREAT ? va_arg(more, mode_t) : 0; }

#define OPEN(name)                                        \
    int name(const char *path, int flags, ...) {          \
        va_list more;                                     \
        va_start(more, flags);                            \
        mode_t mode = mode_of(flags, more);               \
        va_end(more);                                     \
        return opened(path, flags, mode);                 \
    }
OPEN(open)
OPEN(open64)

int close(int fd) {
    if (kind_of(fd) != OTHER) {
        syscall(SYS_close, fds[fd].journal);
        fds[fd].kind = OTHER;
    }
    return (int)syscall(SYS_close, fd);
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at) {
    if (kind_of(fd) != TRACKED) return syscall(SYS_pwrite64, fd, data, length, at);
    lock(fds[fd].journal);
    record(fd, WRITE, at, at + (off_t)length, data, length);
    ssize_t written = syscall(SYS_pwrite64, fd, data, length, at);
    unlock(fds[fd].journal);
    return written;
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t at) { return pwrite64(fd, data, length, at); }

ssize_t write(int fd, const void *data, size_t length) {
    if (kind_of(fd) != TRACKED) return syscall(SYS_write, fd, data, length);
    off_t at = lseek(fd, 0, SEEK_CUR);
    ssize_t written = pwrite64(fd, data, length, at);
    if (written > 0) lseek(fd, at + written, SEEK_SET);
    return written;
}

int ftruncate64(int fd, off64_t length) {
    if (kind_of(fd) != TRACKED) return (int)syscall(SYS_ftruncate, fd, length);
    lock(fds[fd].journal);
    record(fd, TRUNCATE, length, INT64_MAX, "", 0);
    int result = (int)syscall(SYS_ftruncate, fd, length);
    unlock(fds[fd].journal);
    return result;
}

int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

int fsync(int fd) {
    if (kind_of(fd) == OTHER) return (int)syscall(SYS_fsync, fd);
    if (lies) return 0;
    lock(fds[fd].journal);
    /* As long as a disk takes: a process that is killed here has synced nothing. */
    usleep(SYNC_MICROSECONDS);
    if (syscall(SYS_ftruncate, fds[fd].journal, 0)) die("cannot strike out its journal");
    unlock(fds[fd].journal);
    return 0;
}

int fdatasync(int fd) { return kind_of(fd) == OTHER ? (int)syscall(SYS_fdatasync, fd) : fsync(fd); }

int unlink(const char *path) {
    struct stat s;
    if (is_tracked(path) && !stat(path, &s)) {
        char saved[4200];
        snprintf(saved, sizeof saved, "%s/%llu.saved", undo, (unsigned long long)s.st_ino);
        if (linkat(AT_FDCWD, path, AT_FDCWD, saved, 0) && errno != EEXIST) die("cannot keep what is to be removed");
        note_name(UNLINK, path, s.st_ino);
    }
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

#define REFUSED(fd, what) if (kind_of(fd) == TRACKED) die(what " is not modelled")
ssize_t writev(int fd, const struct iovec *parts, int n) {
    REFUSED(fd, "writev");
    return syscall(SYS_writev, fd, parts, n);
}
int fallocate(int fd, int mode, off_t at, off_t length) {
    REFUSED(fd, "fallocate");
    return (int)syscall(SYS_fallocate, fd, mode, at, length);
}
int posix_fallocate(int fd, off_t at, off_t length) {
    REFUSED(fd, "posix_fallocate");
    return syscall(SYS_fallocate, fd, 0, at, length) ? errno : 0;
}
int rename(const char *from, const char *to) {
    if (is_tracked(from) || is_tracked(to)) die("rename is not modelled");
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

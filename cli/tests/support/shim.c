// A disk that keeps its promises and no more, preloaded into a host.
//
// Writes to files below $SHIM_ROOT are held in memory and reach the file at fsync or fdatasync. Now and then one of
// them leaks early, whole or torn, in any order. After `kill -9` the files are what a power failure may leave: everything
// synced, and some, none or pieces of the rest. Reads see held writes. Sizes and names are not held back: the files that
// matter are preallocated, and names are made durable by fsync of their directory at once.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define FILES_MAX 4096
#define SECTOR 512

struct held {
    struct held *next;
    off_t offset;
    size_t bytes;
    char data[];
};

// Held writes belong to the file, not to a descriptor: one file may be open twice.
struct file {
    dev_t device;
    ino_t inode;
    struct held *first, *last;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct file files[FILES_MAX];
static int file_count;
static int file_of[FILES_MAX];  // By descriptor: index + 1; 0: not ours.
static unsigned long long dice = 88172645463325252ull;
static const char *root;
static unsigned long held_count, leaked_count, torn_count;

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pread)(int, void *, size_t, off_t);
static int (*real_open)(const char *, int, ...);
static int (*real_openat)(int, const char *, int, ...);
static int (*real_close)(int);
static int (*real_ftruncate)(int, off_t);
static int (*real_rename)(const char *, const char *);
static int (*real_unlink)(const char *);

__attribute__((constructor)) static void begin(void) {
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_write = dlsym(RTLD_NEXT, "write");
    real_pread = dlsym(RTLD_NEXT, "pread64");
    real_open = dlsym(RTLD_NEXT, "open64");
    real_openat = dlsym(RTLD_NEXT, "openat64");
    real_close = dlsym(RTLD_NEXT, "close");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_rename = dlsym(RTLD_NEXT, "rename");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    root = getenv("SHIM_ROOT");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    dice ^= (unsigned long long)now.tv_nsec * 2654435761u + (unsigned long long)getpid();
}

static void forget(const char *path);

static unsigned roll(unsigned sides) {
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (unsigned)(dice >> 33) % sides;
}

static struct file *of(int fd) {
    return fd >= 0 && fd < FILES_MAX && file_of[fd] ? &files[file_of[fd] - 1] : NULL;
}

static void adopt(int fd) {
    char full[4096];
    struct stat about;
    if (!root || fd < 0 || fd >= FILES_MAX || fstat(fd, &about) || !S_ISREG(about.st_mode)) return;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, full, sizeof full - 1);
    if (length <= 0) return;
    full[length] = 0;
    if (strncmp(full, root, strlen(root)) || strstr(full, "ordinate.lock")) return;
    pthread_mutex_lock(&lock);
    int index = 0;
    while (index < file_count && (files[index].device != about.st_dev || files[index].inode != about.st_ino)) index++;
    if (index == file_count && file_count < FILES_MAX) {
        files[file_count++] = (struct file){about.st_dev, about.st_ino, NULL, NULL};
    }
    file_of[fd] = index < FILES_MAX ? index + 1 : 0;
    pthread_mutex_unlock(&lock);
}

static void put(int fd, const struct held *it, off_t from, size_t bytes) {
    // The descriptor may be O_DIRECT: go through another one, as the disk itself would.
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int plain = real_open(link, O_WRONLY | O_CLOEXEC);
    if (plain < 0) abort();
    while (bytes > 0) {
        ssize_t put = real_pwrite(plain, it->data + from, bytes, it->offset + from);
        if (put <= 0) abort();
        from += put;
        bytes -= (size_t)put;
    }
    real_close(plain);
}

// Lets something reach the disk that nobody has asked for yet.
static void leak(int fd, struct file *file) {
    unsigned count = 0;
    for (struct held *it = file->first; it; it = it->next) count++;
    if (!count || roll(4)) return;
    struct held *it = file->first;
    for (unsigned skip = roll(count); skip; skip--) it = it->next;
    size_t sectors = it->bytes / SECTOR;
    if (sectors > 1 && roll(2)) {
        size_t from = roll((unsigned)sectors), some = 1 + roll((unsigned)(sectors - from));
        put(fd, it, (off_t)(from * SECTOR), some * SECTOR);
        torn_count++;
    } else {
        put(fd, it, 0, it->bytes);
    }
    leaked_count++;
}

static void hold(int fd, struct file *file, const void *data, size_t bytes, off_t offset) {
    struct held *it = malloc(sizeof *it + bytes);
    if (!it) abort();
    it->next = NULL;
    it->offset = offset;
    it->bytes = bytes;
    memcpy(it->data, data, bytes);
    if (file->last) file->last->next = it;
    else file->first = it;
    file->last = it;
    held_count++;
    leak(fd, file);
}

static void settle(int fd, struct file *file) {
    for (struct held *it = file->first, *next; it; it = next) {
        next = it->next;
        put(fd, it, 0, it->bytes);
        free(it);
        // In the middle of a sync some of it is on the disk and some is not.
        if (next && !roll(8)) usleep(roll(500));
    }
    file->first = file->last = NULL;
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t offset) {
    pthread_mutex_lock(&lock);
    struct file *file = of(fd);
    if (file) {
        // A file that grows must know its size.
        struct stat about;
        if (fstat(fd, &about) == 0 && about.st_size < offset + (off_t)bytes) real_ftruncate(fd, offset + (off_t)bytes);
        hold(fd, file, data, bytes, offset);
        pthread_mutex_unlock(&lock);
        return (ssize_t)bytes;
    }
    pthread_mutex_unlock(&lock);
    return real_pwrite(fd, data, bytes, offset);
}
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset) { return pwrite64(fd, data, bytes, offset); }

ssize_t write(int fd, const void *data, size_t bytes) {
    if (!real_write) begin();
    if (fd >= 0 && fd < FILES_MAX && file_of[fd]) {
        off_t at = lseek(fd, 0, SEEK_CUR);
        ssize_t put = pwrite64(fd, data, bytes, at);
        if (put > 0) lseek(fd, put, SEEK_CUR);
        return put;
    }
    return real_write(fd, data, bytes);
}

ssize_t pread64(int fd, void *into, size_t bytes, off_t offset) {
    ssize_t got = real_pread(fd, into, bytes, offset);
    pthread_mutex_lock(&lock);
    struct file *file = got > 0 ? of(fd) : NULL;
    for (struct held *it = file ? file->first : NULL; it; it = it->next) {
        off_t from = it->offset > offset ? it->offset : offset;
        off_t end = it->offset + (off_t)it->bytes, until = offset + got;
        if (end < until) until = end;
        if (from < until) memcpy((char *)into + (from - offset), it->data + (from - it->offset), (size_t)(until - from));
    }
    pthread_mutex_unlock(&lock);
    return got;
}
ssize_t pread(int fd, void *into, size_t bytes, off_t offset) { return pread64(fd, into, bytes, offset); }

static int synced(int fd) {
    // A disk takes its time: what is acknowledged before it is done must have time to be lost.
    if (fd >= 0 && fd < FILES_MAX && file_of[fd]) usleep(500 + roll(4000));
    pthread_mutex_lock(&lock);
    struct file *file = of(fd);
    if (file) settle(fd, file);
    pthread_mutex_unlock(&lock);
    // The files lie on a page cache that survives the process: nothing more is needed, and syncing would only be slow.
    return 0;
}
int fsync(int fd) { return synced(fd); }
int fdatasync(int fd) { return synced(fd); }

static int opened(int fd) {
    if (fd >= 0) adopt(fd);
    return fd;
}

static mode_t mode_in(int flags, va_list rest) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; }

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = mode_in(flags, rest);
    va_end(rest);
    if (!real_open) begin();
    if (flags & O_TRUNC) forget(path);
    return opened(real_open(path, flags, mode));
}
int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = mode_in(flags, rest);
    va_end(rest);
    return open64(path, flags, mode);
}
int openat64(int folder, const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = mode_in(flags, rest);
    va_end(rest);
    if (!real_openat) begin();
    return opened(real_openat(folder, path, flags, mode));
}
int openat(int folder, const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = mode_in(flags, rest);
    va_end(rest);
    return openat64(folder, path, flags, mode);
}

int ftruncate64(int fd, off_t bytes) {
    pthread_mutex_lock(&lock);
    struct file *file = of(fd);
    // What is truncated was never worth syncing; what stays goes first, so that it is not truncated later.
    if (file) settle(fd, file);
    pthread_mutex_unlock(&lock);
    return real_ftruncate(fd, bytes);
}
int ftruncate(int fd, off_t bytes) { return ftruncate64(fd, bytes); }

// A file that is gone must not hand its held writes to the next one with its inode.
static void forget(const char *path) {
    struct stat about;
    if (!root || stat(path, &about)) return;
    pthread_mutex_lock(&lock);
    for (int index = 0; index < file_count; index++) {
        struct file *file = &files[index];
        if (file->device != about.st_dev || file->inode != about.st_ino) continue;
        for (struct held *it = file->first, *next; it; it = next) {
            next = it->next;
            free(it);
        }
        file->first = file->last = NULL;
    }
    pthread_mutex_unlock(&lock);
}

int unlink(const char *path) {
    forget(path);
    return real_unlink(path);
}

// A rename without an fsync before it loses the contents: held writes stay held, under the new name.
int rename(const char *from, const char *to) {
    forget(to);
    return real_rename(from, to);
}

int close(int fd) {
    if (!real_close) begin();
    if (fd >= 0 && fd < FILES_MAX) {
        pthread_mutex_lock(&lock);
        // What was not synced when a file is closed stays in the page cache, and goes with the power.
        file_of[fd] = 0;
        pthread_mutex_unlock(&lock);
    }
    return real_close(fd);
}

__attribute__((destructor)) static void end(void) {
    if (getenv("SHIM_REPORT")) {
        fprintf(stderr, "shim: %lu writes held, %lu leaked, %lu of them torn\n", held_count, leaked_count, torn_count);
    }
}

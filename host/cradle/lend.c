/*
 * Lends a virtual machine monitor a file as the memory of its guest: loaded into QEMU before its C library (LD_PRELOAD). README.md says why.
 *
 * QEMU opens memory for writing, even what it maps privately, and gives back what a guest has freed by a hole in the file, which others map as well. Here the
 * memory has a name that leads nowhere but to a descriptor that the node has opened for reading: no hole can be made. QEMU is told that one
 * was, and goes on to give its own page back: what the guest finds there next is the file's.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A descriptor follows. Nothing of that name can ever be made there: without this library QEMU has no memory, and ends. */
#define LENT "/proc/dsec-lent-"
#define HOLE (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

static int lent = -1;

static int open_or_lend(const char *path, int flags, mode_t mode) {
	if (strncmp(path, LENT, strlen(LENT)) != 0) return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_LARGEFILE, mode);
	char *end = NULL;
	long fd = strtol(path + strlen(LENT), &end, 10);
	int access = end > path + strlen(LENT) && *end == 0 && fd == (int)fd ? fcntl((int)fd, F_GETFL) : -1;
	if (access < 0 || (access & O_ACCMODE) != O_RDONLY || lent >= 0) {
		errno = EACCES;
		return -1;
	}
	fcntl((int)fd, F_SETFD, FD_CLOEXEC);
	lent = (int)fd;
	return lent;
}

int open64(const char *path, int flags, ...) {
	va_list words;
	va_start(words, flags);
	mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(words, mode_t) : 0;
	va_end(words);
	return open_or_lend(path, flags, mode);
}

/* What programs call that were compiled with checks of their calls. */
int __open64_2(const char *path, int flags);
int __open64_2(const char *path, int flags) {
	return open_or_lend(path, flags, 0);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
	if (fd >= 0 && fd == lent && mode == HOLE) return 0;
	return (int)syscall(SYS_fallocate, fd, mode, offset, length);
}

/* The same by the names of programs that were compiled without large files: on 64 bits there is no difference. */
int open(const char *path, int flags, ...) __attribute__((alias("open64")));
int __open_2(const char *path, int flags) __attribute__((alias("__open64_2")));
int fallocate(int fd, int mode, off_t offset, off_t length) __attribute__((alias("fallocate64")));

/* System calls that musl knows by their numbers only. Each returns -1 with errno when it fails. */
#ifndef CALLS_H
#define CALLS_H

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Closes every descriptor from `first` to `last`. */
static inline int close_between(int first, int last) {
	return (int)syscall(SYS_close_range, (unsigned)first, (unsigned)last, 0);
}

/* Closes `first` and every descriptor above it. */
static inline int close_from(int first) { return (int)syscall(SYS_close_range, (unsigned)first, ~0u, 0); }

/* Runs the program that is open as `fd`. */
static inline int execute(int fd, char *const *argv, char *const *environment) {
	return (int)syscall(SYS_execveat, fd, "", argv, environment, AT_EMPTY_PATH);
}

/* rename(2) with RENAME_* flags. */
static inline int rename_with(const char *from, const char *to, unsigned flags) {
	return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
}

#endif

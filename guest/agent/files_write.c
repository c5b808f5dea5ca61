/* Writing a file: a nameless one is filled, then takes the place of the old one, so that no reader ever sees a part. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"

#define LINKS_FOLLOWED 40
#define TEMPORARY ".dsec-"
#define RANDOM_BYTES 8

struct target {
	int directory;
	char name[PATH_ROOM];
};

struct temporary {
	int fd;
	bool named;
	char name[sizeof TEMPORARY + 2 * RANDOM_BYTES];
};

static int take_name(struct target *target, const char *path) {
	size_t begin, end;
	files_last(path, &begin, &end);
	size_t size = end - begin;
	bool directory = size == 0 || path[end] == '/' || (path[begin] == '.' && (size == 1 || (size == 2 && path[begin + 1] == '.')));
	if (directory) return EISDIR;
	if (size >= sizeof target->name) return ENAMETOOLONG;
	int parent = files_open_parent(target->directory, path);
	if (parent < 0) return errno;
	if (target->directory != AT_FDCWD) close(target->directory);
	target->directory = parent;
	memcpy(target->name, path + begin, size);
	target->name[size] = 0;
	return 0;
}

/* The file that the path means: links are followed, as everybody else who opens it for writing follows them. */
static int resolve(const char *path, struct target *target) {
	char link[PATH_ROOM];
	target->directory = AT_FDCWD;
	int error = take_name(target, path);
	for (int i = 0; error == 0 && i <= LINKS_FOLLOWED; i++) {
		ssize_t size = readlinkat(target->directory, target->name, link, sizeof link - 1);
		if (size < 0) return errno == EINVAL || errno == ENOENT ? 0 : errno;
		link[size] = 0;
		error = take_name(target, link);
	}
	return error != 0 ? error : ELOOP;
}

/* What may be replaced: nothing, or a regular file that the user may write. */
static int replaceable(const struct target *target) {
	struct stat status;
	if (fstatat(target->directory, target->name, &status, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? 0 : errno;
	if (S_ISDIR(status.st_mode)) return EISDIR;
	if (!S_ISREG(status.st_mode)) return EINVAL;
	return faccessat(target->directory, target->name, W_OK, 0) != 0 ? errno : 0;
}

static int random_name(struct temporary *temporary) {
	static const char digits[] = "0123456789abcdef";
	uint8_t bytes[RANDOM_BYTES];
	if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return EAGAIN;
	memcpy(temporary->name, TEMPORARY, sizeof TEMPORARY - 1);
	char *at = temporary->name + sizeof TEMPORARY - 1;
	for (size_t i = 0; i < sizeof bytes; i++) {
		*at++ = digits[bytes[i] >> 4];
		*at++ = digits[bytes[i] & 15];
	}
	*at = 0;
	return 0;
}

/* Nameless where the file system can: then even a kill leaves nothing. */
static int open_temporary(const struct target *target, struct temporary *temporary) {
	temporary->named = false;
	temporary->fd = openat(target->directory, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (temporary->fd >= 0) return 0;
	if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT) return errno;
	int error = random_name(temporary);
	if (error != 0) return error;
	temporary->fd = openat(target->directory, temporary->name, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (temporary->fd < 0) return errno;
	temporary->named = true;
	return 0;
}

static int put_all(int fd, const uint8_t *bytes, size_t size) {
	while (size > 0) {
		ssize_t wrote = write(fd, bytes, size);
		if (wrote < 0 && errno == EINTR) continue;
		if (wrote < 0) return errno;
		bytes += wrote;
		size -= (size_t)wrote;
	}
	return 0;
}

/* The same by way of memory, for file systems that cannot take from a pipe. */
static int copy(int fd) {
	static uint8_t piece[PIECE];
	for (;;) {
		ssize_t got = read(0, piece, sizeof piece);
		if (got < 0 && errno == EINTR) continue;
		if (got <= 0) return got == 0 ? 0 : errno;
		int error = put_all(fd, piece, (size_t)got);
		if (error != 0) return error;
	}
}

/* Stdin to its end, which counts only with the marker behind it: a pipe also ends when the sender breaks off. */
static int fill(int fd, int marker) {
	uint8_t whole;
	fcntl(0, F_SETPIPE_SZ, SPLICED);
	for (;;) {
		ssize_t moved = splice(0, NULL, fd, NULL, SPLICED, SPLICE_F_MOVE);
		if (moved > 0 || (moved < 0 && errno == EINTR)) continue;
		if (moved == 0) break;
		if (errno != EINVAL) return errno;
		int error = copy(fd);
		if (error != 0) return error;
		break;
	}
	return read(marker, &whole, 1) == 1 ? 0 : ECANCELED;
}

/* Gives a nameless file a name, directly the final one when that is free. */
static int name_temporary(const struct target *target, struct temporary *temporary, bool *done) {
	char self[sizeof "/proc/self/fd/" + 12];
	snprintf(self, sizeof self, "/proc/self/fd/%d", temporary->fd);
	*done = linkat(AT_FDCWD, self, target->directory, target->name, AT_SYMLINK_FOLLOW) == 0;
	if (*done) return 0;
	if (errno != EEXIST) return errno;
	int error = random_name(temporary);
	if (error != 0) return error;
	if (linkat(AT_FDCWD, self, target->directory, temporary->name, AT_SYMLINK_FOLLOW) != 0) return errno;
	temporary->named = true;
	return 0;
}

static int replace(const struct target *target, struct temporary *temporary, mode_t mode) {
	if (fchmod(temporary->fd, mode) != 0) return errno;
	bool done = false;
	int error = temporary->named ? 0 : name_temporary(target, temporary, &done);
	if (error != 0 || done) return error;
	if (renameat(target->directory, temporary->name, target->directory, target->name) != 0) return errno;
	temporary->named = false;
	return 0;
}

int files_write(const struct start *start, int marker) {
	struct target target;
	struct temporary temporary;
	int error = start->flag ? files_parents(start->path) : 0;
	if (error == 0) error = resolve(start->path, &target);
	if (error == 0) error = replaceable(&target);
	if (error == 0) error = open_temporary(&target, &temporary);
	if (error != 0) return error;
	error = fill(temporary.fd, marker);
	if (error == 0) error = replace(&target, &temporary, start->mode);
	if (temporary.named) unlinkat(target.directory, temporary.name, 0);
	return error;
}

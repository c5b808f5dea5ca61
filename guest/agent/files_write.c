/* Writing a file: a nameless one is filled, then takes the place of the old one, so that no reader ever sees a part. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files_replace.h"

#define LINKS_FOLLOWED 40

static int take_name(struct replacement *target, const char *path) {
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
static int resolve(const char *path, struct replacement *target) {
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
static int replaceable(const struct replacement *target) {
	struct stat status;
	if (fstatat(target->directory, target->name, &status, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? 0 : errno;
	if (S_ISDIR(status.st_mode)) return EISDIR;
	if (!S_ISREG(status.st_mode)) return EINVAL;
	return faccessat(target->directory, target->name, W_OK, 0) != 0 ? errno : 0;
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

int files_write(const struct start *start, int marker) {
	static struct replacement file = {.fd = -1};
	int error = start->flag ? files_parents(start->path) : 0;
	if (error == 0) error = resolve(start->path, &file);
	if (error == 0) error = replaceable(&file);
	if (error == 0) error = replacement_open(&file);
	if (error != 0) return error;
	error = fill(file.fd, marker);
	if (error == 0 && fchmod(file.fd, start->mode) != 0) error = errno;
	if (error == 0) error = replacement_place(&file);
	replacement_close(&file);
	return error;
}

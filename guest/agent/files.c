#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PARENT_MODE 0755

void files_last(const char *path, size_t *begin, size_t *end) {
	*end = strlen(path);
	while (*end > 0 && path[*end - 1] == '/') (*end)--;
	*begin = *end;
	while (*begin > 0 && path[*begin - 1] != '/') (*begin)--;
}

int files_open_parent(int at, const char *path) {
	char directory[PATH_ROOM];
	size_t begin, end;
	files_last(path, &begin, &end);
	if (begin >= sizeof directory) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(directory, path, begin);
	directory[begin] = 0;
	return openat(at, begin == 0 ? "." : directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

int files_put(const uint8_t *bytes, size_t size) {
	while (size > 0) {
		ssize_t wrote = write(1, bytes, size);
		if (wrote < 0 && errno == EINTR) continue;
		if (wrote < 0) return errno;
		bytes += wrote;
		size -= (size_t)wrote;
	}
	return 0;
}

/* One directory that may be there already. */
static int make_missing(const char *path) {
	struct stat status;
	if (mkdir(path, PARENT_MODE) == 0) return 0;
	int error = errno;
	if (stat(path, &status) != 0) return error;
	return S_ISDIR(status.st_mode) ? 0 : ENOTDIR;
}

int files_parents(const char *path) {
	char prefix[PATH_ROOM];
	size_t begin, end;
	files_last(path, &begin, &end);
	if (begin >= sizeof prefix) return ENAMETOOLONG;
	memcpy(prefix, path, begin);
	prefix[begin] = 0;
	for (size_t i = 1; i < begin; i++) {
		if (prefix[i] != '/' || prefix[i - 1] == '/') continue;
		prefix[i] = 0;
		int error = make_missing(prefix);
		if (error != 0) return error;
		prefix[i] = '/';
	}
	return 0;
}

/* Never opens what could hold it up, a FIFO or a device: looked at first, and once more when it is open. */
static int open_regular(const char *path) {
	struct stat status;
	int error = 0, fd = -1;
	for (int look = 0; error == 0 && look < 2; look++) {
		if (look == 1) fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (look == 1 && fd < 0) {
			error = errno;
		} else if ((look == 0 ? stat(path, &status) : fstat(fd, &status)) != 0) {
			error = errno;
		} else if (!S_ISREG(status.st_mode)) {
			error = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
		}
	}
	if (error == 0) return fd;
	if (fd >= 0) close(fd);
	errno = error;
	return -1;
}

static int read_file(const struct start *start) {
	static uint8_t piece[PIECE];
	int fd = open_regular(start->path);
	if (fd < 0) return errno;
	fcntl(1, F_SETPIPE_SZ, SPLICED);
	if (start->offset > 0 && lseek(fd, (off_t)start->offset, SEEK_SET) < 0) return errno;
	uint64_t left = start->length;
	while (left > 0) {
		ssize_t moved = splice(fd, NULL, 1, NULL, left < SPLICED ? (size_t)left : SPLICED, SPLICE_F_MOVE);
		if (moved < 0 && errno == EINTR) continue;
		if (moved < 0 && errno == EINVAL) break;
		if (moved <= 0) return moved == 0 ? 0 : errno;
		left -= (uint64_t)moved;
	}
	/* A file system that cannot give to a pipe. */
	while (left > 0) {
		ssize_t got = read(fd, piece, left < PIECE ? (size_t)left : PIECE);
		if (got < 0 && errno == EINTR) continue;
		if (got <= 0) return got == 0 ? 0 : errno;
		int error = files_put(piece, (size_t)got);
		if (error != 0) return error;
		left -= (uint64_t)got;
	}
	return 0;
}

int files_run(const struct start *start, int marker) {
	/* The limit on file sizes is an error to report, not a death. */
	signal(SIGXFSZ, SIG_IGN);
	switch (start->action) {
	case ACTION_READ:
		return read_file(start);
	case ACTION_WRITE:
		return files_write(start, marker);
	case ACTION_LIST:
		return files_list(start->path, start->depth, !start->flag);
	case ACTION_STAT:
		return files_stat(start->path);
	case ACTION_MKDIR:
		return files_mkdir(start);
	case ACTION_REMOVE:
		return files_remove(start->path, start->flag);
	case ACTION_CHMOD:
		return files_chmod(start);
	case ACTION_CHOWN:
		return files_chown(start);
	case ACTION_SYMLINK:
		return files_symlink(start);
	case ACTION_MOVE:
		return files_move(start);
	case ACTION_READ_TREE:
		return files_read_tree(start->path);
	case ACTION_WRITE_TREE:
		return files_write_tree(start);
	case ACTION_WATCH:
		return files_watch(start);
	default:
		return EINVAL;
	}
}

/* Files of a call: put there before it begins, fetched when nobody is left in the cell who could change them meanwhile. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bytes.h"
#include "cell.h"

#define PIECE 65536u

enum file_state { FILE_WHOLE, FILE_MISSING, FILE_LARGE };

static int own(const struct cell *cell, int fd) { return fchown(fd, cell->uid, (gid_t)cell->uid) != 0 ? errno : 0; }

static int make_parents(const struct cell *cell, char *name) {
	for (char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		int made = mkdirat(cell->work, name, 0755);
		int error = made != 0 && errno != EEXIST ? errno : 0;
		if (made == 0 && fchownat(cell->work, name, cell->uid, (gid_t)cell->uid, AT_SYMLINK_NOFOLLOW) != 0) error = errno;
		*slash = '/';
		if (error != 0) return error;
	}
	return 0;
}

static int copy_in(int fd, uint64_t size) {
	static uint8_t piece[PIECE];
	int error = 0;
	for (uint64_t left = size; left > 0;) {
		uint32_t some = left < PIECE ? (uint32_t)left : PIECE;
		int broken = cell_read(piece, some);
		if (broken != 0) return broken;
		/* What does not fit is read all the same: the stream goes on behind it. */
		if (error == 0 && write(fd, piece, some) != (ssize_t)some) error = errno == 0 ? ENOSPC : errno;
		left -= some;
	}
	return error;
}

static int take_one(const struct cell *cell) {
	uint8_t head[CELL_FILE_HEAD];
	char name[CELL_NAME_LIMIT + 1];
	struct cell_file file;
	int error = cell_read(head, sizeof head);
	if (error != 0) return error;
	if (cell_file_parse(head, &file) != 0) return EINVAL;
	error = cell_read(name, file.name_size);
	if (error != 0) return error;
	name[file.name_size] = 0;
	if (!cell_name_is_plain(name, file.name_size)) return EINVAL;
	error = make_parents(cell, name);
	if (error != 0) return error;
	int fd = openat(cell->work, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0) return errno;
	error = copy_in(fd, file.size);
	if (error == 0 && fchmod(fd, file.mode) != 0) error = errno;
	if (error == 0) error = own(cell, fd);
	close(fd);
	return error;
}

int cell_files_take(const struct cell *cell, const struct cell_request *request) {
	for (uint32_t at = 0; at < request->files; at++) {
		int error = take_one(cell);
		if (error != 0) return error;
	}
	return 0;
}

static int send_file(const char *name, enum file_state state, uint32_t mode, uint64_t size) {
	uint8_t record[CELL_FILE_HEAD + CELL_NAME_LIMIT] = {0};
	size_t length = strlen(name);
	put32(record, mode);
	put32(record + 4, state);
	put64(record + 8, size);
	memcpy(record + CELL_FILE_HEAD, name, length);
	return cell_send(PART_FILE, record, (uint32_t)(CELL_FILE_HEAD + length));
}

static int copy_out(int fd, uint64_t size) {
	static uint8_t piece[PIECE];
	for (uint64_t left = size; left > 0;) {
		ssize_t got = read(fd, piece, left < PIECE ? (size_t)left : PIECE);
		if (got <= 0) return got == 0 ? EIO : errno;
		int error = cell_send(PART_DATA, piece, (uint32_t)got);
		if (error != 0) return error;
		left -= (uint64_t)got;
	}
	return 0;
}

/* By the rights of the platform: so nothing but a plain file beneath the directory may be meant. */
static int give_one(const struct cell *cell, const char *name, uint64_t *room) {
	struct open_how how = {
		.flags = O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
	};
	struct stat status;
	int fd = (int)syscall(SYS_openat2, cell->work, name, &how, sizeof how);
	if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
		close_fd(&fd);
		return send_file(name, FILE_MISSING, 0, 0);
	}
	uint64_t size = (uint64_t)status.st_size;
	enum file_state state = size > *room ? FILE_LARGE : FILE_WHOLE;
	int error = send_file(name, state, status.st_mode & 0777, size);
	if (error == 0 && state == FILE_WHOLE) {
		error = copy_out(fd, size);
		*room -= size;
	}
	close(fd);
	return error;
}

int cell_files_give(const struct cell *cell, const struct cell_request *request) {
	uint64_t room = request->limits.file_bytes;
	const char *end = request->wanted + request->wanted_size;
	for (const char *name = request->wanted; name < end; name += strlen(name) + 1) {
		int error = give_one(cell, name, &room);
		if (error != 0) return error;
	}
	return 0;
}

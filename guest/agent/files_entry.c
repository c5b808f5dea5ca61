#include "files_entry.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "bytes.h"
#include "files.h"

/* What statx calls no automount: a look must not mount anything. */
#define LOOK (AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT)

static uint8_t output[PIECE + ENTRY_FIXED];
static size_t filled;

int entry_flush(void) {
	int error = files_put(output, filled);
	filled = 0;
	return error;
}

int entry_look(int directory, const char *name, struct stat *status) {
	return fstatat(directory, name, status, LOOK) != 0 ? errno : 0;
}

uint8_t entry_type(const struct stat *status) {
	switch (status->st_mode & S_IFMT) {
	case S_IFDIR:
		return ENTRY_DIRECTORY;
	case S_IFLNK:
		return ENTRY_SYMLINK;
	case S_IFIFO:
		return ENTRY_FIFO;
	case S_IFSOCK:
		return ENTRY_SOCKET;
	case S_IFCHR:
		return ENTRY_CHARACTER_DEVICE;
	case S_IFBLK:
		return ENTRY_BLOCK_DEVICE;
	default:
		return ENTRY_FILE;
	}
}

/* Nanoseconds since 1970, cut to what fits: a file system may hold any time. */
static int64_t nanoseconds(const struct timespec *time) {
	int64_t ns;
	bool fits = !__builtin_mul_overflow((int64_t)time->tv_sec, 1000000000, &ns) && !__builtin_add_overflow(ns, time->tv_nsec, &ns);
	return fits ? ns : time->tv_sec < 0 ? INT64_MIN : INT64_MAX;
}

static int make_room(size_t size) { return filled + size > sizeof output ? entry_flush() : 0; }

int entry_bytes(const uint8_t *bytes, size_t size) {
	int error = make_room(size);
	if (error != 0) return error;
	memcpy(output + filled, bytes, size);
	filled += size;
	return 0;
}

int entry_append(uint8_t type, const struct stat *status, struct shown shown, struct shown target) {
	if (shown.size > ENTRY_NAME_LIMIT || target.size > ENTRY_TARGET_LIMIT) return ENAMETOOLONG;
	size_t size = ENTRY_FIXED + shown.size + target.size;
	int error = make_room(size);
	if (error != 0) return error;
	uint8_t *at = output + filled;
	memset(at, 0, ENTRY_FIXED);
	put32(at, (uint32_t)(size - 4));
	at[4] = type;
	put16(at + 6, (uint16_t)shown.size);
	put32(at + 8, status->st_mode & 07777);
	put32(at + 12, status->st_uid);
	put32(at + 16, status->st_gid);
	put64(at + 20, status->st_size < 0 ? 0 : (uint64_t)status->st_size);
	put64(at + 28, (uint64_t)nanoseconds(&status->st_mtim));
	put16(at + 36, (uint16_t)target.size);
	memcpy(at + ENTRY_FIXED, shown.name, shown.size);
	if (target.size > 0) memcpy(at + ENTRY_FIXED + shown.size, target.name, target.size);
	filled += size;
	return 0;
}

int entry_put(int directory, const char *name, const struct stat *status, struct shown shown) {
	char target[ENTRY_TARGET_LIMIT + 1];
	ssize_t size = 0;
	if (S_ISLNK(status->st_mode)) {
		size = readlinkat(directory, name, target, sizeof target);
		if (size < 0) return errno == EINVAL ? ENOENT : errno;
	}
	return entry_append(entry_type(status), status, shown, (struct shown){target, (size_t)size});
}

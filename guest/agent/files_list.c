/* Directory entries in the coding of core/entries.ts. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bytes.h"
#include "files.h"

#define FIXED 40u
#define NAME_LIMIT 255u
#define TARGET_LIMIT 4095u
#define RECORD_LIMIT (FIXED + NAME_LIMIT + TARGET_LIMIT)
/* What statx calls no automount: a look must not mount anything. */
#define LOOK (AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT)

static uint8_t output[PIECE];
static size_t filled;

static int flush(void) {
	int error = files_put(output, filled);
	filled = 0;
	return error;
}

static uint8_t type_of(mode_t mode) {
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return 1;
	case S_IFLNK:
		return 2;
	case S_IFIFO:
		return 3;
	case S_IFSOCK:
		return 4;
	case S_IFCHR:
		return 5;
	case S_IFBLK:
		return 6;
	default:
		return 0;
	}
}

/* Milliseconds, rounded down also before 1970. */
static int64_t milliseconds(const struct timespec *time) { return (int64_t)time->tv_sec * 1000 + time->tv_nsec / 1000000; }

/* Appends one record about `name` in `directory`, listed under `shown`. ENOENT when it is gone meanwhile. */
static int put_entry(int directory, const char *name, const char *shown, size_t shown_size) {
	struct stat status;
	char target[TARGET_LIMIT + 1];
	ssize_t target_size = 0;
	if (shown_size > NAME_LIMIT) return ENAMETOOLONG;
	if (fstatat(directory, name, &status, LOOK) != 0) return errno;
	if (S_ISLNK(status.st_mode)) {
		target_size = readlinkat(directory, name, target, sizeof target);
		if (target_size < 0) return errno == EINVAL ? ENOENT : errno;
		if (target_size > (ssize_t)TARGET_LIMIT) return ENAMETOOLONG;
	}
	if (filled + RECORD_LIMIT > sizeof output) {
		int error = flush();
		if (error != 0) return error;
	}
	uint8_t *at = output + filled;
	size_t size = FIXED + shown_size + (size_t)target_size;
	memset(at, 0, FIXED);
	put32(at, (uint32_t)(size - 4));
	at[4] = type_of(status.st_mode);
	put16(at + 6, (uint16_t)shown_size);
	put32(at + 8, status.st_mode & 07777);
	put32(at + 12, status.st_uid);
	put32(at + 16, status.st_gid);
	put64(at + 20, status.st_size < 0 ? 0 : (uint64_t)status.st_size);
	put64(at + 28, (uint64_t)milliseconds(&status.st_mtim));
	put16(at + 36, (uint16_t)target_size);
	memcpy(at + FIXED, shown, shown_size);
	memcpy(at + FIXED + shown_size, target, (size_t)target_size);
	filled += size;
	return 0;
}

static bool is_dots(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

int files_list(const char *path) {
	static char buffer[PIECE] __attribute__((aligned(8)));
	int directory = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	if (directory < 0) return errno;
	for (;;) {
		ssize_t got = getdents64(directory, buffer, sizeof buffer);
		if (got < 0) return errno;
		if (got == 0) return flush();
		for (ssize_t at = 0; at < got;) {
			const struct dirent64 *entry = (const struct dirent64 *)(buffer + at);
			at += entry->d_reclen;
			if (is_dots(entry->d_name)) continue;
			int error = put_entry(directory, entry->d_name, entry->d_name, strlen(entry->d_name));
			/* Removed since the directory was read: not there. */
			if (error != 0 && error != ENOENT) return error;
		}
	}
}

int files_stat(const char *path) {
	size_t begin, end;
	files_last(path, &begin, &end);
	int error = put_entry(AT_FDCWD, path, path + begin, end - begin);
	return error != 0 ? error : flush();
}

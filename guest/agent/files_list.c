/* Directory entries in the coding of core/entries.ts. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bytes.h"
#include "files.h"

#define FIXED 40u
#define NAME_LIMIT 4095u
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

/* Nanoseconds since 1970, cut to what fits: a file system may hold any time. */
static int64_t nanoseconds(const struct timespec *time) {
	int64_t ns;
	if (!__builtin_mul_overflow((int64_t)time->tv_sec, 1000000000, &ns) && !__builtin_add_overflow(ns, time->tv_nsec, &ns)) return ns;
	return time->tv_sec < 0 ? INT64_MIN : INT64_MAX;
}

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
	put64(at + 28, (uint64_t)nanoseconds(&status.st_mtim));
	put16(at + 36, (uint16_t)target_size);
	memcpy(at + FIXED, shown, shown_size);
	memcpy(at + FIXED + shown_size, target, (size_t)target_size);
	filled += size;
	return 0;
}

static bool is_dots(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

struct level {
	int fd;
	size_t name_size; /* of the path to this directory in `listing.name`, with its slash */
	ssize_t held, at; /* entries read of it and not looked at: those of the deepest level */
	off_t resume;
};

struct listing {
	struct level levels[LIST_DEPTH_LIMIT];
	uint32_t depth, limit;
	bool hidden;
	char name[NAME_LIMIT + 1];
	char entries[PIECE] __attribute__((aligned(8)));
};

static struct listing listing;

/* Makes the open directory `fd` the deepest level. */
static void enter(int fd, size_t name_size) {
	listing.levels[listing.depth++] = (struct level){.fd = fd, .name_size = name_size};
}

/* Puts one entry, and enters it when it is a directory that belongs to the list. */
static int take(const struct dirent64 *entry) {
	struct level *level = &listing.levels[listing.depth - 1];
	size_t size = strlen(entry->d_name);
	if (is_dots(entry->d_name) || (!listing.hidden && entry->d_name[0] == '.')) return 0;
	if (level->name_size + size > NAME_LIMIT) return ENAMETOOLONG;
	memcpy(listing.name + level->name_size, entry->d_name, size);
	int error = put_entry(level->fd, entry->d_name, listing.name, level->name_size + size);
	/* Removed since the directory was read: not there. */
	if (error != 0) return error == ENOENT ? 0 : error;
	if (listing.depth == listing.limit || (entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN)) return 0;
	int fd = openat(level->fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : errno;
	if (level->name_size + size == NAME_LIMIT) {
		close(fd);
		return ENAMETOOLONG;
	}
	listing.name[level->name_size + size] = '/';
	level->resume = entry->d_off;
	enter(fd, level->name_size + size + 1);
	return 0;
}

/* The next entry of the deepest level: NULL with errno 0 at its end. */
static const struct dirent64 *next(struct level *level) {
	errno = 0;
	if (level->at == level->held) {
		level->at = 0;
		level->held = getdents64(level->fd, listing.entries, sizeof listing.entries);
		if (level->held <= 0) {
			level->held = 0;
			return NULL;
		}
	}
	const struct dirent64 *entry = (const struct dirent64 *)(listing.entries + level->at);
	level->at += entry->d_reclen;
	return entry;
}

/* The deepest level was listed; the one above goes on behind it, reading its entries anew. */
static int leave(void) {
	close(listing.levels[--listing.depth].fd);
	if (listing.depth == 0) return 0;
	struct level *above = &listing.levels[listing.depth - 1];
	above->held = above->at = 0;
	return lseek(above->fd, above->resume, SEEK_SET) < 0 ? errno : 0;
}

int files_list(const char *path, uint32_t depth, bool hidden) {
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) return errno;
	listing.limit = depth;
	listing.hidden = hidden;
	enter(fd, 0);
	while (listing.depth > 0) {
		const struct dirent64 *entry = next(&listing.levels[listing.depth - 1]);
		int error = entry != NULL ? take(entry) : errno != 0 ? errno : leave();
		if (error != 0) return error;
	}
	return flush();
}

int files_stat(const char *path) {
	size_t begin, end;
	files_last(path, &begin, &end);
	int error = put_entry(AT_FDCWD, path, path + begin, end - begin);
	return error != 0 ? error : flush();
}

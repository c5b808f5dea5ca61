/*
 * Removing: never through a link, with bounded memory and descriptors however deep a hostile tree is. Below DEPTH_LIMIT a
 * directory is moved up to the top of the tree and removed from there, so that no path of `..` is ever trusted.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"

#define DEPTH_LIMIT 32
/* Passes over a directory that others keep filling before giving up. */
#define PASS_LIMIT 64
#define NAME_ROOM 256

struct level {
	int fd;
	int passes;
	unsigned moved; /* of the removal, at the last pass */
	off_t resume; /* where to go on after a directory below */
	char name[NAME_ROOM];
};

struct removal {
	struct level levels[DEPTH_LIMIT];
	int depth;
	unsigned moved;
};

static bool is_dots(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

static int enter(struct removal *removal, int parent, const char *name) {
	size_t size = strlen(name);
	if (size >= NAME_ROOM) return ENAMETOOLONG;
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) return errno;
	struct level *level = &removal->levels[removal->depth++];
	level->fd = fd;
	level->passes = 0;
	level->moved = removal->moved;
	level->resume = 0;
	memcpy(level->name, name, size + 1);
	return 0;
}

/* A directory too deep to enter becomes a child of the top. */
static int move_up(struct removal *removal, int from, const char *name) {
	char moved[32];
	for (int i = 0; i < PASS_LIMIT; i++) {
		snprintf(moved, sizeof moved, ".dsec-remove-%u", removal->moved++);
		if (renameat(from, name, removal->levels[0].fd, moved) == 0) return 0;
		if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR) return errno;
	}
	return EEXIST;
}

/* Removes one entry. EAGAIN: it was a full directory, and is now the deepest level. */
static int remove_entry(struct removal *removal, const struct dirent64 *entry) {
	struct level *level = &removal->levels[removal->depth - 1];
	if (entry->d_type != DT_DIR) {
		if (unlinkat(level->fd, entry->d_name, 0) == 0 || errno == ENOENT) return 0;
		if (errno != EISDIR) return errno;
	}
	if (unlinkat(level->fd, entry->d_name, AT_REMOVEDIR) == 0 || errno == ENOENT) return 0;
	/* Replaced by something else since it was read: the next pass sees what it is. */
	if (errno == ENOTDIR) return unlinkat(level->fd, entry->d_name, 0) == 0 || errno == ENOENT ? 0 : errno;
	if (errno != ENOTEMPTY && errno != EEXIST) return errno;
	if (removal->depth == DEPTH_LIMIT) return move_up(removal, level->fd, entry->d_name);
	level->resume = entry->d_off;
	int error = enter(removal, level->fd, entry->d_name);
	return error == 0 ? EAGAIN : error == ENOENT ? 0 : error;
}

/* Goes once through the deepest level from where it stands. EAGAIN: a deeper one was entered. */
static int sweep(struct removal *removal) {
	static char buffer[PIECE] __attribute__((aligned(8)));
	int fd = removal->levels[removal->depth - 1].fd;
	for (;;) {
		ssize_t got = getdents64(fd, (void *)buffer, sizeof buffer);
		if (got <= 0) return got == 0 ? 0 : errno;
		for (ssize_t at = 0; at < got;) {
			const struct dirent64 *entry = (const struct dirent64 *)(buffer + at);
			at += entry->d_reclen;
			if (is_dots(entry->d_name)) continue;
			int error = remove_entry(removal, entry);
			if (error != 0) return error;
		}
	}
}

/* The deepest level was swept: remove it, or sweep again what came or was missed. */
static int leave(struct removal *removal, int top_parent) {
	struct level *level = &removal->levels[removal->depth - 1];
	int parent = removal->depth == 1 ? top_parent : removal->levels[removal->depth - 2].fd;
	if (unlinkat(parent, level->name, AT_REMOVEDIR) != 0 && errno != ENOENT) {
		if (errno != ENOTEMPTY && errno != EEXIST) return errno;
		/* What was moved up fills the top again, and is the tree getting smaller. */
		if (level->moved == removal->moved && ++level->passes == PASS_LIMIT) return errno;
		level->moved = removal->moved;
		return lseek(level->fd, 0, SEEK_SET) < 0 ? errno : 0;
	}
	close(level->fd);
	removal->depth--;
	if (removal->depth == 0) return 0;
	struct level *above = &removal->levels[removal->depth - 1];
	return lseek(above->fd, above->resume, SEEK_SET) < 0 ? errno : 0;
}

static int remove_tree(int parent, const char *name) {
	static struct removal removal;
	int error = enter(&removal, parent, name);
	while (error == 0 && removal.depth > 0) {
		error = sweep(&removal);
		if (error == EAGAIN) {
			error = 0;
			continue;
		}
		if (error == 0) error = leave(&removal, parent);
	}
	return error;
}

int files_remove(const char *path, bool recursive) {
	char name[NAME_ROOM];
	size_t begin, end;
	files_last(path, &begin, &end);
	size_t size = end - begin;
	if (size == 0) return EBUSY;
	if (size >= sizeof name) return ENAMETOOLONG;
	memcpy(name, path + begin, size);
	name[size] = 0;
	if (is_dots(name)) return EINVAL;
	int parent = files_open_parent(AT_FDCWD, path);
	if (parent < 0) return errno;
	struct stat status;
	if (fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) != 0) return errno;
	bool directory = S_ISDIR(status.st_mode);
	/* A slash at the end asks for a directory: a link there is neither followed nor taken for one. */
	if (!directory && path[end] == '/') return ENOTDIR;
	if (unlinkat(parent, name, directory ? AT_REMOVEDIR : 0) == 0) return 0;
	if (!directory || !recursive || (errno != ENOTEMPTY && errno != EEXIST)) return errno;
	return remove_tree(parent, name);
}

#include "files_walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "files.h"

struct level {
	int fd;
	size_t path_size; /* of the path to this directory, with its slash */
	off_t resume;     /* where to go on after a directory below */
};

static struct {
	struct level levels[WALK_DEPTH_LIMIT];
	uint32_t depth;
	dev_t system;
	char path[ENTRY_NAME_LIMIT + 1];
	/* Entries of the deepest level that were read and not looked at. */
	ssize_t held, at;
	char entries[PIECE] __attribute__((aligned(8)));
} state;

static bool is_dots(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

static void enter(int fd, size_t path_size) {
	state.levels[state.depth++] = (struct level){.fd = fd, .path_size = path_size};
	state.held = state.at = 0;
}

/* Makes a directory the deepest level, unless it is gone or not to be gone into. */
static int descend(const struct walk *walk, const struct dirent64 *entry, const struct stat *status, size_t path_size) {
	struct level *level = &state.levels[state.depth - 1];
	if (walk->one_system && status->st_dev != state.system) return 0;
	if (state.depth == walk->limit) return walk->cut ? 0 : ENAMETOOLONG;
	off_t resume = entry->d_off;
	int fd = openat(level->fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : errno;
	if (path_size == ENTRY_NAME_LIMIT) {
		close(fd);
		return ENAMETOOLONG;
	}
	state.path[path_size] = '/';
	level->resume = resume;
	enter(fd, path_size + 1);
	return 0;
}

static int take(const struct walk *walk, const struct dirent64 *entry) {
	struct level *level = &state.levels[state.depth - 1];
	size_t size = strlen(entry->d_name);
	struct stat status;
	if (is_dots(entry->d_name) || (!walk->hidden && entry->d_name[0] == '.')) return 0;
	if (level->path_size + size > ENTRY_NAME_LIMIT) return ENAMETOOLONG;
	memcpy(state.path + level->path_size, entry->d_name, size);
	struct shown shown = {state.path, level->path_size + size};
	int error = entry_look(level->fd, entry->d_name, &status);
	if (error == 0) error = walk->visit(level->fd, entry->d_name, &status, shown);
	/* Removed since the directory was read: not there. */
	if (error != 0) return error == ENOENT ? 0 : error;
	return S_ISDIR(status.st_mode) ? descend(walk, entry, &status, shown.size) : 0;
}

/* The next entry of the deepest level: NULL with errno 0 at its end. */
static const struct dirent64 *next(int fd) {
	errno = 0;
	if (state.at == state.held) {
		state.at = 0;
		state.held = getdents64(fd, (void *)state.entries, sizeof state.entries);
		if (state.held <= 0) {
			state.held = 0;
			return NULL;
		}
	}
	const struct dirent64 *entry = (const struct dirent64 *)(state.entries + state.at);
	state.at += entry->d_reclen;
	return entry;
}

/* The deepest level is done; the one above goes on behind it, reading its entries anew. */
static int leave(void) {
	close(state.levels[--state.depth].fd);
	if (state.depth == 0) return 0;
	struct level *above = &state.levels[state.depth - 1];
	state.held = state.at = 0;
	return lseek(above->fd, above->resume, SEEK_SET) < 0 ? errno : 0;
}

int files_walk(int fd, const struct walk *walk) {
	struct stat status;
	if (fstat(fd, &status) != 0) return errno;
	state.system = status.st_dev;
	enter(fd, 0);
	while (state.depth > 0) {
		const struct dirent64 *entry = next(state.levels[state.depth - 1].fd);
		int error = entry != NULL ? take(walk, entry) : errno != 0 ? errno : leave();
		if (error != 0) return error;
	}
	return 0;
}

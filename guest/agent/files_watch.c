/* What happens in a directory, as records of core/watch.ts: inotify, with a watch on every directory below where that is asked for. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "bytes.h"
#include "files.h"
#include "files_replace.h"
#include "files_walk.h"

#define RECORD_FIXED 12u
#define SEEN (IN_CREATE | IN_DELETE | IN_MODIFY | IN_ATTRIB | IN_MOVED_FROM | IN_MOVED_TO)
#define SELF (IN_DELETE_SELF | IN_MOVE_SELF)
/* How long the second half of a move may keep the first waiting: they are put into the queue together. */
#define MOVE_WAIT_MS 50

enum { READY, CREATED, MODIFIED, REMOVED, MOVED, ATTRIBUTES, OVERFLOW };

static struct {
	int fd;
	int root; /* the watch of the root */
	/* By its path and not by a descriptor: an end is told of when nobody holds what has ended. */
	const char *root_path;
	ino_t root_inode;
	bool recursive;
	/* The path of each watch below the root, by its number; those of one instance are small and never used again. */
	char **paths;
	int room;
	/* The first half of a move. */
	uint32_t cookie;
	bool directory;
	char from[ENTRY_NAME_LIMIT + 1];
} watch;

static int put(uint8_t type, bool directory, const char *path, const char *from) {
	uint8_t head[RECORD_FIXED] = {0};
	size_t size = strlen(path), from_size = strlen(from);
	put32(head, (uint32_t)(RECORD_FIXED - 4 + size + from_size));
	head[4] = type;
	head[5] = directory ? 1 : 0;
	put16(head + 6, (uint16_t)size);
	put16(head + 8, (uint16_t)from_size);
	int error = entry_bytes(head, sizeof head);
	if (error == 0) error = entry_bytes((const uint8_t *)path, size);
	return error != 0 ? error : entry_bytes((const uint8_t *)from, from_size);
}

static bool keep_path(int number, const char *path) {
	if (number >= watch.room) {
		int room = number + 64;
		char **paths = realloc(watch.paths, (size_t)room * sizeof *paths);
		if (paths == NULL) return false;
		memset(paths + watch.room, 0, (size_t)(room - watch.room) * sizeof *paths);
		watch.paths = paths;
		watch.room = room;
	}
	char *copy = strdup(path);
	if (copy == NULL) return false;
	free(watch.paths[number]);
	watch.paths[number] = copy;
	return true;
}

static void forget_path(int number) {
	free(watch.paths[number]);
	watch.paths[number] = NULL;
}

/* Where a path below the root is. False: no such path can be. */
static bool place(const char *path, char full[PATH_ROOM]) {
	int size = snprintf(full, PATH_ROOM, "%s%s%s", watch.root_path, *path == 0 ? "" : "/", path);
	return size >= 0 && (size_t)size < PATH_ROOM;
}

/* What is gone, or no directory any more, or too deep for any path, needs no watch. */
static int add(const char *path) {
	char full[PATH_ROOM];
	if (!place(path, full)) return 0;
	int number = inotify_add_watch(watch.fd, full, SEEN | IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK);
	if (number < 0) {
		/* Not the disk is full, but the number of watches that one user may have. */
		if (errno == ENOSPC) return EUSERS;
		return errno == ENOENT || errno == ENOTDIR || errno == EACCES ? 0 : errno;
	}
	return keep_path(number, path) ? 0 : ENOMEM;
}

static char below[ENTRY_NAME_LIMIT + 1];
static size_t below_size;
static bool telling;

/* Watched before it is read: what is made in it later is told by its watch, what was there by the walk. */
static int visit(int directory, const char *name, const struct stat *status, struct shown shown) {
	(void)directory;
	(void)name;
	bool is_directory = S_ISDIR(status->st_mode);
	if (below_size + shown.size > ENTRY_NAME_LIMIT) return ENAMETOOLONG;
	memcpy(below + below_size, shown.name, shown.size);
	below[below_size + shown.size] = 0;
	int error = telling ? put(CREATED, is_directory, below, "") : 0;
	return error == 0 && is_directory ? add(below) : error;
}

/* Watches all directories below `path`, and tells of what is in them. */
static int walk(const char *path, bool tell) {
	char full[PATH_ROOM];
	if (!place(path, full)) return 0;
	int fd = open(full, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC | (*path == 0 ? 0 : O_NOFOLLOW));
	if (fd < 0) return errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EACCES ? 0 : errno;
	below_size = (size_t)snprintf(below, sizeof below, "%s%s", path, *path == 0 ? "" : "/");
	telling = tell;
	if (below_size >= sizeof below) {
		close(fd);
		return 0;
	}
	return files_walk(fd, &(struct walk){.limit = WALK_DEPTH_LIMIT, .cut = true, .hidden = true, .visit = visit});
}

static bool is_under(const char *path, const char *directory) {
	size_t size = strlen(directory);
	return strncmp(path, directory, size) == 0 && (path[size] == 0 || path[size] == '/');
}

/* A directory was moved: its watches go with it, or end when it left. */
static int rename_watches(const char *from, const char *to) {
	char path[2 * ENTRY_NAME_LIMIT + 2];
	for (int number = 0; number < watch.room; number++) {
		if (watch.paths[number] == NULL || number == watch.root || !is_under(watch.paths[number], from)) continue;
		if (to == NULL) {
			inotify_rm_watch(watch.fd, number);
			/* What is in the queue already is not told any more. */
			forget_path(number);
			continue;
		}
		snprintf(path, sizeof path, "%s%s", to, watch.paths[number] + strlen(from));
		if (strlen(path) <= ENTRY_NAME_LIMIT && !keep_path(number, path)) return ENOMEM;
	}
	return 0;
}

static int appeared(const char *path, bool directory) {
	int error = put(CREATED, directory, path, "");
	if (error != 0 || !directory || !watch.recursive) return error;
	error = add(path);
	return error != 0 ? error : walk(path, true);
}

/* The first half of a move whose second half does not come: it left. */
static int give_up_move(void) {
	if (watch.cookie == 0) return 0;
	watch.cookie = 0;
	int error = put(REMOVED, watch.directory, watch.from, "");
	return error == 0 && watch.directory && watch.recursive ? rename_watches(watch.from, NULL) : error;
}

static int arrived(const struct inotify_event *event, const char *path, bool directory) {
	if (watch.cookie == 0 || watch.cookie != event->cookie) return appeared(path, directory);
	watch.cookie = 0;
	int error = put(MOVED, directory, path, watch.from);
	return error == 0 && directory && watch.recursive ? rename_watches(watch.from, path) : error;
}

static bool is_gone(void) {
	struct stat status;
	return stat(watch.root_path, &status) != 0 || status.st_ino != watch.root_inode;
}

/*
 * A file that has no name yet (O_TMPFILE) is told of under a number that the kernel makes up, and nobody could find it there. It is
 * created when it is linked.
 */
static bool is_nameless(const char *name, const char *path) {
	if (*name != '#' || name[1] == 0 || name[1 + strspn(name + 1, "0123456789")] != 0) return false;
	char full[PATH_ROOM];
	struct stat status;
	return place(path, full) && lstat(full, &status) != 0 && errno == ENOENT;
}

/* ECHILD: the root is gone. */
static int take(const struct inotify_event *event) {
	char path[ENTRY_NAME_LIMIT + 1];
	bool directory = (event->mask & IN_ISDIR) != 0;
	if (event->mask & IN_Q_OVERFLOW) {
		int error = put(OVERFLOW, false, "", "");
		/* Nobody told of what was made meanwhile, nor of the end of the root. */
		if (error == 0 && is_gone()) return ECHILD;
		return error == 0 && watch.recursive ? walk("", false) : error;
	}
	bool second_half = (event->mask & IN_MOVED_TO) != 0 && watch.cookie == event->cookie;
	if (!second_half) {
		int error = give_up_move();
		if (error != 0) return error;
	}
	if (event->wd < 0 || event->wd >= watch.room || watch.paths[event->wd] == NULL) return 0;
	if (event->mask & IN_IGNORED) {
		forget_path(event->wd);
		return event->wd == watch.root ? ECHILD : 0;
	}
	const char *above = watch.paths[event->wd];
	const char *name = event->len > 0 ? event->name : "";
	/* A file on its way to its name appears when it has it: the second half of its move finds no first. */
	if (!directory && replacement_is_named_so(name)) return 0;
	int size = snprintf(path, sizeof path, "%s%s%s", above, *above == 0 || *name == 0 ? "" : "/", name);
	if (size < 0 || (size_t)size >= sizeof path) return 0;
	if (event->mask & SELF) return event->wd == watch.root ? ECHILD : 0;
	if (event->mask & IN_MOVED_TO) return arrived(event, path, directory);
	if (event->mask & IN_MOVED_FROM) {
		watch.cookie = event->cookie;
		watch.directory = directory;
		memcpy(watch.from, path, (size_t)size + 1);
		return 0;
	}
	if (event->mask & IN_CREATE) return appeared(path, directory);
	if (event->mask & IN_DELETE) return put(REMOVED, directory, path, "");
	/* A directory below is told of by its parent, and not by its own watch once more. */
	if (*name == 0 && event->wd != watch.root) return 0;
	if (is_nameless(name, path)) return 0;
	return put(event->mask & IN_ATTRIB ? ATTRIBUTES : MODIFIED, directory, path, "");
}

static int take_batch(void) {
	static char events[PIECE] __attribute__((aligned(__alignof__(struct inotify_event))));
	if (watch.cookie != 0) {
		struct pollfd wait = {.fd = watch.fd, .events = POLLIN};
		if (poll(&wait, 1, MOVE_WAIT_MS) == 0) return give_up_move();
	}
	ssize_t got = read(watch.fd, events, sizeof events);
	if (got < 0) return errno == EINTR ? 0 : errno;
	for (ssize_t at = 0; at < got;) {
		const struct inotify_event *event = (const struct inotify_event *)(events + at);
		int error = take(event);
		if (error != 0) return error;
		at += (ssize_t)(sizeof *event + event->len);
	}
	return 0;
}

/* Watches the root: a directory, whose paths are below it, or one file, whose path is empty. */
static int begin(const char *path) {
	struct stat status;
	if (stat(path, &status) != 0) return errno;
	watch.recursive = watch.recursive && S_ISDIR(status.st_mode);
	watch.root_path = path;
	watch.root_inode = status.st_ino;
	watch.fd = inotify_init1(IN_CLOEXEC);
	if (watch.fd < 0) return errno;
	watch.root = inotify_add_watch(watch.fd, path, SEEN | SELF);
	if (watch.root < 0) return errno == ENOSPC ? EUSERS : errno;
	if (!keep_path(watch.root, "")) return ENOMEM;
	int error = watch.recursive ? walk("", false) : 0;
	return error != 0 ? error : put(READY, false, "", "");
}

int files_watch(const struct start *start) {
	watch.recursive = start->flag;
	int error = begin(start->path);
	while (error == 0) {
		error = entry_flush();
		if (error == 0) error = take_batch();
	}
	if (error == ECHILD) error = put(REMOVED, true, "", "");
	int failed = entry_flush();
	return error != 0 ? error : failed;
}

/* A tree as a stream of entries: core/tree.ts draws it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bytes.h"
#include "files.h"
#include "files_walk.h"
#include "files_tree.h"

/* Names of files that may come again as hard links. Beyond it such a file comes once more as a file of its own. */
#define LINKS_LIMIT 65536u

struct extent {
	uint64_t offset, size;
};

/* A file with several names, by what the file system calls it; the first name lies in `names`. */
struct linked {
	dev_t device;
	ino_t inode;
	char *name;
	size_t name_size;
};

static struct {
	struct linked *all;
	size_t count, room;
} links;

static const struct linked *find_link(const struct stat *status) {
	for (size_t i = 0; i < links.count; i++) {
		if (links.all[i].inode == status->st_ino && links.all[i].device == status->st_dev) return &links.all[i];
	}
	return NULL;
}

/* Without memory nothing is kept, and nothing is lost but that two names are one file. */
static void keep_link(const struct stat *status, struct shown shown) {
	if (links.count == LINKS_LIMIT) return;
	if (links.count == links.room) {
		size_t room = links.room == 0 ? 64 : links.room * 2;
		struct linked *all = realloc(links.all, room * sizeof *all);
		if (all == NULL) return;
		links.all = all;
		links.room = room;
	}
	char *name = malloc(shown.size);
	if (name == NULL) return;
	memcpy(name, shown.name, shown.size);
	links.all[links.count++] = (struct linked){status->st_dev, status->st_ino, name, shown.size};
}

static int put_head(uint8_t type, uint32_t size) {
	uint8_t head[TREE_HEAD] = {0};
	put32(head, TREE_HEAD - 4 + size);
	head[4] = type;
	return entry_bytes(head, sizeof head);
}

/* The parts of a file that are no holes; one that holds all of it when there are none, or too many. */
static int find_extents(int fd, uint64_t size, struct extent *extents, uint32_t *count) {
	*count = 0;
	for (uint64_t at = 0; at < size;) {
		off_t from = lseek(fd, (off_t)at, SEEK_DATA);
		if (from < 0 && errno == ENXIO) return 0;
		off_t to = from < 0 ? -1 : lseek(fd, from, SEEK_HOLE);
		bool rest = to < 0 || *count == TREE_EXTENTS - 1;
		if (from < 0 && errno != EINVAL) return errno;
		uint64_t begin = from < 0 ? at : (uint64_t)from;
		if (begin >= size) return 0;
		uint64_t end = rest || (uint64_t)to > size ? size : (uint64_t)to;
		extents[(*count)++] = (struct extent){begin, end - begin};
		at = end;
	}
	return 0;
}

static int put_map(const struct extent *extents, uint32_t count) {
	for (uint32_t done = 0; done < count || done == 0;) {
		uint32_t some = count - done < TREE_MAP_LIMIT ? count - done : TREE_MAP_LIMIT;
		int error = put_head(TREE_MAP, some * TREE_EXTENT);
		for (uint32_t i = 0; error == 0 && i < some; i++) {
			uint8_t bytes[TREE_EXTENT];
			put64(bytes, extents[done + i].offset);
			put64(bytes + 8, extents[done + i].size);
			error = entry_bytes(bytes, sizeof bytes);
		}
		if (error != 0) return error;
		done += some;
		if (count == 0) return 0;
	}
	return 0;
}

static int put_extent(int fd, struct extent extent) {
	static uint8_t piece[TREE_DATA_LIMIT];
	for (uint64_t done = 0; done < extent.size;) {
		uint64_t left = extent.size - done;
		ssize_t got = pread(fd, piece, left < sizeof piece ? (size_t)left : sizeof piece, (off_t)(extent.offset + done));
		if (got < 0 && errno == EINTR) continue;
		if (got < 0) return errno;
		/* Shorter than it was when its size was told: what would follow belongs to something else. */
		if (got == 0) return ESTALE;
		int error = put_head(TREE_DATA, (uint32_t)got);
		if (error == 0) error = entry_bytes(piece, (size_t)got);
		if (error != 0) return error;
		done += (uint64_t)got;
	}
	return 0;
}

/* A file that is open, so that its entry and its bytes are of one file whatever happens to its name. */
static int put_file(int fd, struct shown shown) {
	static struct extent extents[TREE_EXTENTS];
	struct stat status;
	uint32_t count;
	if (fstat(fd, &status) != 0) return errno;
	if (!S_ISREG(status.st_mode)) return ESTALE;
	int error = entry_append(ENTRY_FILE, &status, shown, (struct shown){0});
	if (error == 0) error = find_extents(fd, (uint64_t)status.st_size, extents, &count);
	if (error != 0) return error;
	bool sparse = status.st_size > 0 && (count != 1 || extents[0].size != (uint64_t)status.st_size);
	if (sparse) error = put_map(extents, count);
	for (uint32_t i = 0; error == 0 && i < count; i++) error = put_extent(fd, extents[i]);
	return error;
}

static int visit(int directory, const char *name, const struct stat *status, struct shown shown) {
	/* Sockets and devices mean nothing elsewhere. */
	if (S_ISSOCK(status->st_mode) || S_ISCHR(status->st_mode) || S_ISBLK(status->st_mode)) return 0;
	if (status->st_nlink > 1 && !S_ISDIR(status->st_mode)) {
		const struct linked *earlier = find_link(status);
		struct stat bare = *status;
		bare.st_size = 0;
		if (earlier != NULL) return entry_append(TREE_LINK, &bare, shown, (struct shown){earlier->name, earlier->name_size});
	}
	int error;
	if (S_ISREG(status->st_mode)) {
		int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (fd < 0) return errno == ELOOP ? ESTALE : errno;
		error = put_file(fd, shown);
		close(fd);
	} else {
		struct stat bare = *status;
		bare.st_size = 0;
		error = entry_put(directory, name, &bare, shown);
	}
	if (error == 0 && status->st_nlink > 1 && !S_ISDIR(status->st_mode)) keep_link(status, shown);
	return error;
}

static int note(int error, struct shown shown) {
	if (error != 0 && error != ENOENT) {
		ssize_t ignored = write(2, shown.name, shown.size);
		(void)ignored;
	}
	return error;
}

static int visit_noting(int directory, const char *name, const struct stat *status, struct shown shown) {
	return note(visit(directory, name, status, shown), shown);
}

/* A directory is the root of its tree; anything else is a tree of one entry with its own name. */
int files_read_tree(const char *path) {
	size_t begin, end;
	struct stat status;
	fcntl(1, F_SETPIPE_SZ, SPLICED);
	files_last(path, &begin, &end);
	int error = entry_look(AT_FDCWD, path, &status);
	if (error != 0) return error;
	if (S_ISDIR(status.st_mode)) {
		int fd = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0) return errno;
		status.st_size = 0;
		error = entry_append(ENTRY_DIRECTORY, &status, (struct shown){"", 0}, (struct shown){0});
		struct walk walk = {.limit = WALK_DEPTH_LIMIT, .hidden = true, .visit = visit_noting, .one_system = true};
		if (error == 0) error = files_walk(fd, &walk);
	} else {
		error = visit(AT_FDCWD, path, &status, (struct shown){path + begin, end - begin});
	}
	if (error == 0) error = put_head(TREE_END, 0);
	return error != 0 ? error : entry_flush();
}

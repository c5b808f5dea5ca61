/*
 * A stream of entries becomes a tree. Every entry is reached from the root by one component after the other, none of which may be
 * a link: neither an entry nor whoever works in the tree meanwhile can lead a step outside.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "bytes.h"
#include "files.h"
#include "files_replace.h"
#include "files_tree.h"

#define PARENT_MODE 0755
/* Memory for what directories get at the end: their times change while they are filled. */
#define DIRECTORIES_LIMIT (64u << 20)

struct attributes {
	mode_t mode;
	uid_t uid;
	gid_t gid;
	int64_t mtime_ns;
};

/* A directory that was made, and what it gets at the end. */
struct made {
	struct attributes attributes;
	char *path;
};

static struct {
	int root;
	bool owners;
	bool made_root;
	/* Where the entry before lay: trees come a directory at a time. */
	char parent_path[ENTRY_NAME_LIMIT + 1];
	int parent;
	struct made *made;
	size_t made_count, made_room, made_bytes;
	/* The file under way: its extents, as far as they are told, and where its next byte goes. */
	bool in_file, mapped;
	struct replacement file;
	struct attributes attributes;
	uint64_t size, at;
	uint64_t extents[TREE_EXTENTS][2];
	uint32_t extent, extent_count;
} state;

/* Says on stderr at which entry it ended. */
static int blame(int error, const char *path, size_t size) {
	if (error != 0) {
		ssize_t ignored = write(2, path, size);
		(void)ignored;
	}
	return error;
}

static struct timespec time_of(int64_t ns) {
	int64_t seconds = ns / 1000000000, rest = ns % 1000000000;
	return rest < 0 ? (struct timespec){seconds - 1, rest + 1000000000} : (struct timespec){seconds, rest};
}

static struct attributes attributes_of(const struct tree_record *record) {
	return (struct attributes){record->mode, record->uid, record->gid, record->mtime_ns};
}

/* Owner before mode: a change of owner takes the bits that lend rights away. */
static int dress(int fd, const struct attributes *attributes) {
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, time_of(attributes->mtime_ns)};
	if (state.owners && fchown(fd, attributes->uid, attributes->gid) != 0) return errno;
	return fchmod(fd, attributes->mode) != 0 || futimens(fd, times) != 0 ? errno : 0;
}

static int dress_name(int directory, const char *name, const struct attributes *attributes) {
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, time_of(attributes->mtime_ns)};
	if (state.owners && fchownat(directory, name, attributes->uid, attributes->gid, AT_SYMLINK_NOFOLLOW) != 0) return errno;
	return utimensat(directory, name, times, AT_SYMLINK_NOFOLLOW) != 0 ? errno : 0;
}

/* The last component of a path below the root; what is before it, without a slash, is `*above` bytes long. */
static const char *last_of(const char *path, size_t *above) {
	const char *slash = strrchr(path, '/');
	*above = slash == NULL ? 0 : (size_t)(slash - path);
	return slash == NULL ? path : slash + 1;
}

/* Opens the directory that is `size` bytes of `path` below the root, making what is missing where `make` says so. -1: errno. */
static int descend(const char *path, size_t size, bool make) {
	char component[NAME_MAX_BYTES + 1];
	int fd = fcntl(state.root, F_DUPFD_CLOEXEC, 0);
	for (size_t at = 0; fd >= 0 && at < size;) {
		const char *slash = memchr(path + at, '/', size - at);
		size_t length = slash == NULL ? size - at : (size_t)(slash - path) - at;
		memcpy(component, path + at, length);
		component[length] = 0;
		int below = -1;
		if (!make || mkdirat(fd, component, PARENT_MODE) == 0 || errno == EEXIST) {
			below = openat(fd, component, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		}
		close(fd);
		fd = below;
		at += length + 1;
	}
	return fd;
}

/* The directory of an entry, kept for the next. -1: errno. */
static int parent_of(const char *path, size_t size) {
	if (state.parent >= 0 && strlen(state.parent_path) == size && memcmp(state.parent_path, path, size) == 0) return state.parent;
	close_fd(&state.parent);
	state.parent = descend(path, size, true);
	if (state.parent >= 0) {
		memcpy(state.parent_path, path, size);
		state.parent_path[size] = 0;
	}
	return state.parent;
}

static int remember(const char *path, const struct attributes *attributes) {
	size_t size = strlen(path) + 1;
	if (state.made_bytes + size + sizeof *state.made > DIRECTORIES_LIMIT) return ENOMEM;
	if (state.made_count == state.made_room) {
		size_t room = state.made_room == 0 ? 64 : state.made_room * 2;
		struct made *all = realloc(state.made, room * sizeof *all);
		if (all == NULL) return ENOMEM;
		state.made = all;
		state.made_room = room;
	}
	char *copy = malloc(size);
	if (copy == NULL) return ENOMEM;
	memcpy(copy, path, size);
	state.made[state.made_count++] = (struct made){*attributes, copy};
	state.made_bytes += size + sizeof *state.made;
	return 0;
}

/* The directories that were made, those below first: what is put into one changes its time. */
static int dress_directories(void) {
	for (size_t i = state.made_count; i-- > 0;) {
		const struct made *made = &state.made[i];
		int parent = descend(made->path, strlen(made->path), false);
		if (parent < 0) return errno;
		int fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		int error = fd < 0 ? errno : dress(fd, &made->attributes);
		close_fd(&fd);
		close(parent);
		if (error != 0) return blame(error, made->path, strlen(made->path));
	}
	return 0;
}

/* Removes what stands where another kind of entry is to be. A full directory stays: ENOTEMPTY. */
static int clear_way(int parent, const char *name) {
	struct stat status;
	if (fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? 0 : errno;
	return unlinkat(parent, name, S_ISDIR(status.st_mode) ? AT_REMOVEDIR : 0) != 0 ? errno : 0;
}

/* A directory that is there stays as it is, and is filled. */
static int make_directory(int parent, const char *path, const char *name, const struct attributes *attributes) {
	struct stat status;
	if (fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) == 0) {
		if (S_ISDIR(status.st_mode)) return 0;
		if (unlinkat(parent, name, 0) != 0) return errno;
	}
	/* Its own mode comes last: it may forbid to fill it. */
	if (mkdirat(parent, name, 0700) != 0) return errno;
	return remember(path, attributes);
}

static int make_symlink(int parent, const char *name, const struct tree_record *record) {
	char target[ENTRY_TARGET_LIMIT + 1];
	struct attributes attributes = attributes_of(record);
	memcpy(target, record->target, record->target_size);
	target[record->target_size] = 0;
	int error = clear_way(parent, name);
	if (error == 0 && symlinkat(target, parent, name) != 0) error = errno;
	return error != 0 ? error : dress_name(parent, name, &attributes);
}

/* A further name of an earlier entry. */
static int make_link(int parent, const char *path, const char *name, const struct tree_record *record) {
	char target[ENTRY_TARGET_LIMIT + 1];
	size_t above;
	memcpy(target, record->target, record->target_size);
	target[record->target_size] = 0;
	if (strcmp(target, path) == 0) return 0;
	const char *last = last_of(target, &above);
	int directory = descend(target, above, false);
	if (directory < 0) return errno;
	int error = clear_way(parent, name);
	if (error == 0 && linkat(directory, last, parent, name, 0) != 0) error = errno;
	close(directory);
	return error;
}

static int make_fifo(int parent, const char *name, const struct attributes *attributes) {
	int error = clear_way(parent, name);
	/* Its mode at once: whoever may write in the directory can put a link there, which a later change would follow. */
	if (error == 0 && mkfifoat(parent, name, attributes->mode) != 0) error = errno;
	return error != 0 ? error : dress_name(parent, name, attributes);
}

static int begin_file(int parent, const char *name, const struct tree_record *record) {
	state.attributes = attributes_of(record);
	state.file.directory = parent;
	memcpy(state.file.name, name, strlen(name) + 1);
	int error = replacement_open(&state.file);
	if (error != 0) return error;
	state.in_file = true;
	state.mapped = false;
	state.size = record->size;
	state.extents[0][0] = 0;
	state.extents[0][1] = record->size;
	state.extent = 0;
	state.extent_count = 1;
	state.at = 0;
	return 0;
}

/* Every byte that the map has must have come. */
static int end_file(void) {
	if (!state.in_file) return 0;
	state.in_file = false;
	while (state.extent < state.extent_count && state.at == state.extents[state.extent][1]) {
		state.extent++;
		state.at = 0;
	}
	int error = state.extent < state.extent_count ? EBADMSG : 0;
	if (error == 0 && ftruncate(state.file.fd, (off_t)state.size) != 0) error = errno;
	if (error == 0) error = dress(state.file.fd, &state.attributes);
	if (error == 0) error = replacement_place(&state.file);
	replacement_close(&state.file);
	return blame(error, state.file.name, strlen(state.file.name));
}

/* Extents come in order and within the file; the first record of a file's map replaces the one that is all of it. */
static int take_map(const struct tree_record *record) {
	if (!state.in_file || state.at > 0 || state.extent > 0) return EBADMSG;
	if (!state.mapped) state.extent_count = 0;
	state.mapped = true;
	for (uint32_t at = 0; at < record->byte_count; at += TREE_EXTENT) {
		uint64_t from = get64(record->bytes + at), size = get64(record->bytes + at + 8);
		const uint64_t *before = state.extent_count == 0 ? NULL : state.extents[state.extent_count - 1];
		if (state.extent_count == TREE_EXTENTS || from > state.size || size > state.size - from) return EBADMSG;
		if (before != NULL && from < before[0] + before[1]) return EBADMSG;
		state.extents[state.extent_count][0] = from;
		state.extents[state.extent_count++][1] = size;
	}
	return 0;
}

static int take_data(const struct tree_record *record) {
	const uint8_t *bytes = record->bytes;
	uint32_t size = record->byte_count;
	if (!state.in_file) return EBADMSG;
	while (size > 0) {
		if (state.extent == state.extent_count) return EBADMSG;
		uint64_t left = state.extents[state.extent][1] - state.at;
		size_t some = left < size ? (size_t)left : size;
		if (some == 0) {
			state.extent++;
			state.at = 0;
			continue;
		}
		ssize_t wrote = pwrite(state.file.fd, bytes, some, (off_t)(state.extents[state.extent][0] + state.at));
		if (wrote < 0 && errno == EINTR) continue;
		if (wrote < 0) return errno;
		bytes += wrote;
		size -= (uint32_t)wrote;
		state.at += (uint64_t)wrote;
	}
	return 0;
}

static int take_entry(const struct tree_record *record) {
	char path[ENTRY_NAME_LIMIT + 1];
	struct attributes attributes = attributes_of(record);
	size_t above;
	memcpy(path, record->name, record->name_size);
	path[record->name_size] = 0;
	/* The root: when it was there before, it stays as it is. */
	if (record->name_size == 0) return state.made_root ? remember("", &attributes) : 0;
	const char *name = last_of(path, &above);
	int parent = parent_of(path, above);
	if (parent < 0) return errno;
	switch (record->type) {
	case ENTRY_FILE:
		return begin_file(parent, name, record);
	case ENTRY_DIRECTORY:
		return make_directory(parent, path, name, &attributes);
	case ENTRY_SYMLINK:
		return make_symlink(parent, name, record);
	case ENTRY_FIFO:
		return make_fifo(parent, name, &attributes);
	case TREE_LINK:
		return make_link(parent, path, name, record);
	default:
		return EPERM;
	}
}

static int take(const struct tree_record *record, bool *whole) {
	if (record->type == TREE_DATA) return take_data(record);
	if (record->type == TREE_MAP) return take_map(record);
	int error = end_file();
	if (error != 0) return error;
	if (record->type != TREE_END) return blame(take_entry(record), (const char *)record->name, record->name_size);
	*whole = true;
	return dress_directories();
}

/* The end of the input behind the end of the tree: who sends it must not find its reader gone. */
static int expect_end(size_t held) {
	uint8_t more;
	ssize_t got;
	do {
		got = read(0, &more, 1);
	} while (got < 0 && errno == EINTR);
	return got < 0 ? errno : got > 0 || held > 0 ? EBADMSG : 0;
}

static int take_all(void) {
	static uint8_t received[TREE_RECORD_LIMIT];
	size_t held = 0;
	for (bool whole = false; !whole;) {
		ssize_t got = read(0, received + held, sizeof received - held);
		if (got < 0 && errno == EINTR) continue;
		if (got <= 0) return got == 0 ? ECANCELED : errno;
		held += (size_t)got;
		size_t at = 0;
		while (!whole) {
			struct tree_record record;
			int64_t extent = tree_parse(received + at, held - at, &record);
			if (extent < 0) return EBADMSG;
			if (extent == 0) break;
			int error = take(&record, &whole);
			if (error != 0) return error;
			at += (size_t)extent;
		}
		held -= at;
		memmove(received, received + at, held);
	}
	return expect_end(held);
}

int files_write_tree(const struct start *start) {
	fcntl(0, F_SETPIPE_SZ, SPLICED);
	/* Every mode here is meant. */
	umask(0);
	/* Here and not where it is declared: a megabyte of it would lie in the program. */
	state.root = state.parent = state.file.fd = -1;
	state.owners = start->flag;
	int error = files_parents(start->path);
	if (error != 0) return error;
	state.made_root = mkdir(start->path, 0700) == 0;
	if (!state.made_root && errno != EEXIST) return errno;
	state.root = open(start->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (state.root < 0) return errno;
	/* What a tree does not say of its root is what directories usually are. */
	if (state.made_root && fchmodat(state.root, ".", PARENT_MODE, 0) != 0) return errno;
	error = take_all();
	replacement_close(&state.file);
	return error;
}

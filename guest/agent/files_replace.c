#include "files_replace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define PREFIX ".dsec-"
#define RANDOM_BYTES 8

_Static_assert(sizeof PREFIX + 2 * RANDOM_BYTES <= TEMPORARY_ROOM, "a temporary name has room");

static int random_name(struct replacement *file) {
	static const char digits[] = "0123456789abcdef";
	uint8_t bytes[RANDOM_BYTES];
	if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return EAGAIN;
	memcpy(file->temporary, PREFIX, sizeof PREFIX - 1);
	char *at = file->temporary + sizeof PREFIX - 1;
	for (size_t i = 0; i < sizeof bytes; i++) {
		*at++ = digits[bytes[i] >> 4];
		*at++ = digits[bytes[i] & 15];
	}
	*at = 0;
	return 0;
}

bool replacement_is_named_so(const char *name) {
	if (strncmp(name, PREFIX, sizeof PREFIX - 1) != 0) return false;
	const char *digits = name + sizeof PREFIX - 1;
	return strlen(digits) == 2u * RANDOM_BYTES && strspn(digits, "0123456789abcdef") == 2u * RANDOM_BYTES;
}

int replacement_open(struct replacement *file) {
	file->named = false;
	file->fd = openat(file->directory, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (file->fd >= 0) return 0;
	if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT) return errno;
	int error = random_name(file);
	if (error != 0) return error;
	file->fd = openat(file->directory, file->temporary, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (file->fd < 0) return errno;
	file->named = true;
	return 0;
}

/* Gives a nameless file a name, directly the final one when that is free. */
static int give_name(struct replacement *file, bool *done) {
	char self[sizeof "/proc/self/fd/" + 12];
	snprintf(self, sizeof self, "/proc/self/fd/%d", file->fd);
	*done = linkat(AT_FDCWD, self, file->directory, file->name, AT_SYMLINK_FOLLOW) == 0;
	if (*done) return 0;
	if (errno != EEXIST) return errno;
	int error = random_name(file);
	if (error != 0) return error;
	if (linkat(AT_FDCWD, self, file->directory, file->temporary, AT_SYMLINK_FOLLOW) != 0) return errno;
	file->named = true;
	return 0;
}

int replacement_place(struct replacement *file) {
	bool done = false;
	int error = file->named ? 0 : give_name(file, &done);
	if (error != 0 || done) return error;
	if (renameat(file->directory, file->temporary, file->directory, file->name) != 0) return errno;
	file->named = false;
	return 0;
}

void replacement_close(struct replacement *file) {
	if (file->fd >= 0) close(file->fd);
	if (file->named) unlinkat(file->directory, file->temporary, 0);
	file->fd = -1;
	file->named = false;
}

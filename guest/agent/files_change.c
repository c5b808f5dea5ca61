/* Changes of one entry: each is a system call or two, made whole or not at all. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calls.h"
#include "files.h"
#include "user.h"

static int parents(const struct start *start, const char *path) { return start->flag ? files_parents(path) : 0; }

int files_mkdir(const struct start *start) {
	struct stat status;
	int error = parents(start, start->path);
	if (error != 0) return error;
	if (mkdir(start->path, start->mode) != 0) {
		error = errno;
		bool there = start->flag && error == EEXIST && stat(start->path, &status) == 0 && S_ISDIR(status.st_mode);
		return there ? 0 : error;
	}
	/* The mode that was asked for, whatever the mask. */
	return chmod(start->path, start->mode) != 0 ? errno : 0;
}

int files_chmod(const struct start *start) { return chmod(start->path, start->mode) != 0 ? errno : 0; }

int files_chown(const struct start *start) {
	static struct identity owner;
	int error = identity_resolve(start->owner, &owner);
	/* A name that is not there is a wrong word, not a missing file. */
	if (error != 0) return error == ENOENT ? EINVAL : error;
	return chown(start->path, owner.uid, owner.gid) != 0 ? errno : 0;
}

int files_symlink(const struct start *start) {
	int error = parents(start, start->path);
	if (error != 0) return error;
	return symlink(start->target, start->path) != 0 ? errno : 0;
}

int files_move(const struct start *start) {
	int error = parents(start, start->target);
	if (error != 0) return error;
	unsigned flags = start->keep ? RENAME_NOREPLACE : 0;
	return rename_with(start->path, start->target, flags) != 0 ? errno : 0;
}

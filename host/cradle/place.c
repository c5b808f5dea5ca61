#include "place.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WITHIN = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV };

static int open_within(int root, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve)
{
	struct open_how how = { .flags = flags | O_CLOEXEC, .mode = mode, .resolve = resolve };

	return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

int place_dir(int root, const char *name)
{
	int fd = open_within(root, name, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0, WITHIN | RESOLVE_NO_SYMLINKS);

	if (fd >= 0 || errno != ENOENT)
		return fd;
	if (mkdirat(root, name, 0755))
		return -1;
	return open_within(root, name, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0, WITHIN | RESOLVE_NO_SYMLINKS);
}

static int open_parent(int root, const char *dir)
{
	int fd = open_within(root, dir, O_PATH | O_DIRECTORY, 0, WITHIN);

	if (fd >= 0 || errno != ENOENT)
		return fd;
	if (mkdirat(root, dir, 0755))
		return -1;
	return open_within(root, dir, O_PATH | O_DIRECTORY, 0, WITHIN);
}

/* Makes the file, or the missing end of a chain of links; if that fails, the file in place of the link. */
static int make_file(int root, const char *dir, const char *name, const char *path)
{
	int parent, fd;

	parent = open_parent(root, dir);
	if (parent < 0)
		return -1;
	fd = open_within(root, path, O_RDONLY | O_CREAT, 0644, WITHIN);
	if (fd < 0 && errno == ENOENT && unlinkat(parent, name, 0) == 0)
		fd = openat(parent, name, O_RDONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	close(parent);
	return fd;
}

int place_file(int root, const char *dir, const char *name)
{
	char path[64];
	int fd;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	fd = open_within(root, path, O_PATH, 0, WITHIN);
	if (fd >= 0 || errno != ENOENT)
		return fd;
	return make_file(root, dir, name, path);
}

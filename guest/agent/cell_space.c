/* What a call can write: one fresh file system in memory behind every place in the root that is not read-only. */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cell.h"

/* Places in the root, and the directories of the space that are mounted on them; the root of the space lies on the last. */
static const struct {
	const char *name, *place;
	mode_t mode;
} places[] = {{"work", "/work", 0700}, {"shm", "/dev/shm", 01777}, {"var", "/var/tmp", 01777}, {"tmp", "/tmp", 01777}};
#define PLACES (sizeof places / sizeof places[0])

static int make_space(struct cell *cell) {
	char size[24];
	snprintf(size, sizeof size, "%llu", (unsigned long long)cell->space_bytes);
	int context = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
	if (context < 0) return errno;
	int error = syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "size", size, 0) != 0 ||
				    syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "mode", "0755", 0) != 0 ||
				    syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0
			    ? errno
			    : 0;
	if (error == 0) {
		cell->space = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
		if (cell->space < 0) error = errno;
	}
	close(context);
	return error;
}

static int fill_space(struct cell *cell) {
	for (size_t at = 0; at < PLACES; at++) {
		if (mkdirat(cell->space, places[at].name, 0700) != 0) return errno;
		if (fchmodat(cell->space, places[at].name, places[at].mode, 0) != 0) return errno;
	}
	cell->work = openat(cell->space, places[0].name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (cell->work < 0 || fchown(cell->work, cell->uid, (gid_t)cell->uid) != 0) return errno;
	return 0;
}

/* First as a whole on a place that is covered by a part of it in the end: a mount can be bound only from where it is visible. */
static int mount_space(const struct cell *cell) {
	const char *last = places[PLACES - 1].place;
	char part[32];
	if (syscall(SYS_move_mount, cell->space, "", AT_FDCWD, last, MOVE_MOUNT_F_EMPTY_PATH) != 0) return errno;
	for (size_t at = 0; at < PLACES; at++) {
		snprintf(part, sizeof part, "%s/%s", last, places[at].name);
		if (mount(part, places[at].place, NULL, MS_BIND, NULL) != 0) return errno;
	}
	return 0;
}

int cell_space_open(struct cell *cell) {
	int error = make_space(cell);
	if (error == 0) error = fill_space(cell);
	if (error == 0) error = mount_space(cell);
	/* The directory stays open to put files there, and to fetch them when everybody in the cell is gone. */
	close_fd(&cell->space);
	return error;
}

int cell_space_close(struct cell *cell) {
	close_fd(&cell->work);
	for (size_t at = PLACES; at-- > 0;) {
		if (umount2(places[at].place, MNT_DETACH) != 0) return errno;
	}
	/* The whole, below its last part. */
	return umount2(places[PLACES - 1].place, MNT_DETACH) != 0 ? errno : 0;
}

/*
 * What a cell is made of: a process that holds its namespaces, and mounts. All of the container's root is read-only in it; what a
 * call can write is one fresh file system in memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls.h"
#include "cell.h"

#define CELL_NAMESPACES (CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET)
#define QUIET (MS_NOSUID | MS_NODEV)
/* inotify is counted by user: a call can use up its own user's and nobody else's. */
#define INOTIFY_INSTANCES "16"

/* The mounts on files of /proc, which hide or replace what the kernel shows of the machine: a new /proc gets them, too. */
#define COVERS 64
static char covers[COVERS][40];
static int cover_count;

/* Places in the root, and the directories of the space that are mounted on them; the root of the space lies on the last. */
static const struct {
	const char *name, *place;
	mode_t mode;
} places[] = {{"work", "/work", 0700}, {"shm", "/dev/shm", 01777}, {"var", "/var/tmp", 01777}, {"tmp", "/tmp", 01777}};
#define PLACES (sizeof places / sizeof places[0])

static int copy_tree(const char *path) {
	return (int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
}

static int move_to(int tree, const char *path) {
	return (int)syscall(SYS_move_mount, tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH);
}

/* The fifth word of a line of mountinfo is where the mount lies. */
static void learn_covers(void) {
	FILE *mounts = fopen("/proc/self/mountinfo", "re");
	char line[4096], place[sizeof covers[0]];
	while (mounts != NULL && cover_count < COVERS && fgets(line, sizeof line, mounts) != NULL) {
		if (sscanf(line, "%*s %*s %*s %*s /proc/%31s", place + 6) != 1) continue;
		memcpy(place, "/proc/", 6);
		strcpy(covers[cover_count++], place);
	}
	if (mounts != NULL) fclose(mounts);
}

int cell_prepare_container(void) {
	static const char *const needed[] = {"/work", "/tmp", "/var", "/var/tmp"};
	struct mount_attr sealed = {.attr_set = MOUNT_ATTR_RDONLY};
	for (size_t at = 0; at < sizeof needed / sizeof needed[0]; at++) {
		if (mkdir(needed[at], 0755) != 0 && errno != EEXIST) return errno;
	}
	if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return errno;
	if (syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &sealed, sizeof sealed) != 0) return errno;
	learn_covers();
	return 0;
}

static int make_space(struct cell *cell, uint64_t bytes) {
	char size[24];
	snprintf(size, sizeof size, "%llu", (unsigned long long)bytes);
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
	if (move_to(cell->space, last) != 0) return errno;
	for (size_t at = 0; at < PLACES; at++) {
		snprintf(part, sizeof part, "%s/%s", last, places[at].name);
		if (mount(part, places[at].place, NULL, MS_BIND, NULL) != 0) return errno;
	}
	return 0;
}

static int mount_proc(void) {
	int trees[COVERS];
	for (int at = 0; at < cover_count; at++) trees[at] = copy_tree(covers[at]);
	if (mount("proc", "/proc", "proc", QUIET | MS_NOEXEC, NULL) != 0) return errno;
	int fd = open("/proc/sys/user/max_inotify_instances", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, INOTIFY_INSTANCES, 2) != 2) return errno;
	close(fd);
	for (int at = 0; at < cover_count; at++) {
		if (trees[at] >= 0 && move_to(trees[at], covers[at]) != 0) return errno;
		close_fd(&trees[at]);
	}
	return 0;
}

static int mount_all(const struct cell *cell) {
	int error = mount_space(cell);
	if (error == 0) error = mount_proc();
	/* A kernel may be built without message queues. */
	if (error == 0 && mount("mqueue", "/dev/mqueue", "mqueue", QUIET | MS_NOEXEC, NULL) != 0 && errno != ENODEV) error = errno;
	return error;
}

/*
 * Process 1 of the cell. It ends when its keeper does, and with it all that is in the cell. Children that it inherits are collected
 * by the kernel, since it ignores their end.
 */
static _Noreturn void init_main(const struct cell *cell, int ready) {
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "dsec-cell");
	signal(SIGCHLD, SIG_IGN);
	int error = loopback_raise() ? 0 : EIO;
	if (error == 0) error = mount_all(cell);
	/* Whoever enters its namespaces must be allowed to look at it; nobody in the cell is its user. */
	prctl(PR_SET_DUMPABLE, 1);
	ssize_t ignored = write(ready, &error, sizeof error);
	(void)ignored;
	close_from(0);
	for (;;) pause();
}

int cell_make_room(struct cell *cell, uint64_t space_bytes) {
	int ready[2], error = make_space(cell, space_bytes);
	if (error == 0) error = fill_space(cell);
	if (error != 0) return error;
	if (pipe2(ready, O_CLOEXEC) != 0) return errno;
	cell->init = (pid_t)syscall(SYS_clone, CELL_NAMESPACES | SIGCHLD, NULL, NULL, NULL, 0);
	if (cell->init == 0) {
		close(ready[0]);
		init_main(cell, ready[1]);
	}
	error = cell->init < 0 ? errno : 0;
	close(ready[1]);
	if (error == 0 && read(ready[0], &error, sizeof error) != sizeof error) error = ECHILD;
	close(ready[0]);
	/* Its mounts are the cell's; the directory stays open to put files there, and to fetch them when everybody in the cell is gone. */
	close_fd(&cell->space);
	if (error == 0) {
		cell->init_fd = (int)syscall(SYS_pidfd_open, cell->init, 0);
		if (cell->init_fd < 0) error = errno;
	}
	return error;
}

int cell_enter(const struct cell *cell) {
	if (setns(cell->init_fd, CELL_NAMESPACES & ~CLONE_NEWPID) != 0 || chdir(cell->cwd) != 0) return errno;
	return 0;
}

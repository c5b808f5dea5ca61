/*
 * The room of cells: a process that holds their namespaces, and what is mounted for them. All of the container's root is read-only
 * in it. A room serves one cell after another as long as nothing in it tells that there was one before (cell_traces.c).
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
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"
#include "cell.h"

/* That of mounts is the keeper's own. */
#define ROOM_NAMESPACES (CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET)
/* A child that has ended leaves its number a moment later. */
#define EMPTY_ATTEMPTS 2000
#define EMPTY_PAUSE_NS 500000
#define QUIET (MS_NOSUID | MS_NODEV)
#define QUEUES "/dev/mqueue"
/* inotify is counted by user: a call can use up its own user's and nobody else's. */
#define INOTIFY_INSTANCES "16"

/* The mounts on files of /proc, which hide or replace what the kernel shows of the machine: a new /proc gets them, too. */
#define COVERS 64
static char covers[COVERS][40];
static int cover_count;

static int copy_tree(const char *path) {
	return (int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
}

static int move_to(int tree, const char *path) {
	return (int)syscall(SYS_move_mount, tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH);
}

/* Whatever signal comes meanwhile: one that stops the call says nothing about the room. */
static bool read_whole(int fd, void *bytes, size_t size) {
	ssize_t got;
	do got = read(fd, bytes, size);
	while (got < 0 && errno == EINTR);
	return got == (ssize_t)size;
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

/* `last_pid`: where the number of the process before is told, by which the next one has its own; -1 where the kernel has no such place. */
static int mount_proc(int *last_pid) {
	int trees[COVERS];
	for (int at = 0; at < cover_count; at++) trees[at] = copy_tree(covers[at]);
	if (mount("proc", "/proc", "proc", QUIET | MS_NOEXEC, NULL) != 0) return errno;
	int fd = open("/proc/sys/user/max_inotify_instances", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, INOTIFY_INSTANCES, 2) != 2) return errno;
	close(fd);
	*last_pid = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
	for (int at = 0; at < cover_count; at++) {
		if (trees[at] >= 0 && move_to(trees[at], covers[at]) != 0) return errno;
		close_fd(&trees[at]);
	}
	return 0;
}

/* A kernel may be built without message queues. Whoever reads the directory must not leave the time of that. */
static int mount_queues(void) {
	struct timespec never[2] = {{0}};
	if (mount("mqueue", QUEUES, "mqueue", QUIET | MS_NOEXEC | MS_NOATIME, NULL) != 0) return errno == ENODEV ? 0 : errno;
	return utimensat(AT_FDCWD, QUEUES, never, 0) != 0 ? errno : 0;
}

/* Whether nobody else is in the room, whose processes are numbered from the beginning again then. */
static uint8_t empty_again(int last_pid) {
	const struct timespec pause = {.tv_nsec = EMPTY_PAUSE_NS};
	for (int attempt = 0; attempt < EMPTY_ATTEMPTS; attempt++) {
		if (kill(-1, 0) != 0 && errno == ESRCH) return last_pid >= 0 && pwrite(last_pid, "1", 1, 0) == 1;
		nanosleep(&pause, NULL);
	}
	return 0;
}

/*
 * Process 1 of the room, which answers its keeper and nobody else. It ends when its keeper does, and with it all that is in the room.
 * Children that it inherits are collected by the kernel, since it ignores their end.
 */
static _Noreturn void init_main(int keeper) {
	int last_pid = -1;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "dsec-cell");
	signal(SIGCHLD, SIG_IGN);
	int error = loopback_raise() ? 0 : EIO;
	if (error == 0) error = mount_proc(&last_pid);
	if (error == 0) error = mount_queues();
	/* Whoever enters its namespaces must be allowed to look at it; nobody in the cell is its user. */
	prctl(PR_SET_DUMPABLE, 1);
	if (dup2(keeper, 0) != 0 || (last_pid >= 0 && dup2(last_pid, 1) != 1)) error = errno;
	close_from(last_pid >= 0 ? 2 : 1);
	ssize_t ignored = write(0, &error, sizeof error);
	uint8_t asked;
	while (read(0, &asked, 1) == 1) {
		uint8_t empty = empty_again(last_pid >= 0 ? 1 : -1);
		ignored = write(0, &empty, 1);
	}
	(void)ignored;
	_exit(0);
}

static bool room_is_empty(const struct cell *cell) {
	uint8_t empty = 0;
	return write(cell->init_socket, &empty, 1) == 1 && read_whole(cell->init_socket, &empty, 1) && empty == 1;
}

static int make_room(struct cell *cell) {
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return errno;
	cell->init_socket = pair[0];
	cell->init = (pid_t)syscall(SYS_clone, ROOM_NAMESPACES | SIGCHLD, NULL, NULL, NULL, 0);
	if (cell->init == 0) init_main(pair[1]);
	int error = cell->init < 0 ? errno : 0;
	close(pair[1]);
	if (error == 0 && !read_whole(pair[0], &error, sizeof error)) error = ECHILD;
	if (error == 0 && (cell->init_fd = (int)syscall(SYS_pidfd_open, cell->init, 0)) < 0) error = errno;
	/* The next children of this process are born there. Queues and shared memory are looked for from here. */
	if (error == 0 && setns(cell->init_fd, CLONE_NEWPID | CLONE_NEWIPC) != 0) error = errno;
	return error == 0 ? cell_traces_learn() : error;
}

int cell_room_open(struct cell *cell) {
	bool fresh = cell->init == 0;
	if (!fresh && (!room_is_empty(cell) || !cell_traces_none())) {
		int error = cell_room_close(cell);
		if (error != 0) return error;
		fresh = true;
	}
	int error = fresh ? make_room(cell) : 0;
	return error == 0 ? cell_space_open(cell) : error;
}

int cell_room_close(struct cell *cell) {
	if (cell->init <= 0) return 0;
	if (kill(cell->init, SIGKILL) != 0) return errno;
	/* Its end waits for those of all others in the room; who made them must have collected them first. */
	int error = cell->program > 0 ? process_collect(cell->program) : 0;
	cell->program = 0;
	if (error == 0) error = process_collect(cell->init);
	if (error != 0) return error;
	cell->init = 0;
	close_fd(&cell->init_fd);
	close_fd(&cell->init_socket);
	cell_traces_forget();
	/* No process has children in a namespace that has ended. */
	if (setns(cell->self_fd, CLONE_NEWPID) != 0) return errno;
	if (umount2(QUEUES, MNT_DETACH) != 0 && errno != EINVAL) return errno;
	return umount2("/proc", MNT_DETACH) != 0 ? errno : 0;
}

int cell_enter(const struct cell *cell) {
	if (setns(cell->init_fd, CLONE_NEWNS | (ROOM_NAMESPACES & ~CLONE_NEWPID)) != 0 || chdir(cell->cwd) != 0) return errno;
	return 0;
}

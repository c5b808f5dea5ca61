#include "minimal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

/* Any directory that every host has: only this private namespace sees what is mounted there, and only for a moment. */
#define BUILD_SITE "/sys"

static const struct {
	const char *name;
	unsigned minor;
	unsigned major;
} NODES[] = {
	{ "dev/null", 3, 1 }, { "dev/zero", 5, 1 },    { "dev/full", 7, 1 },
	{ "dev/random", 8, 1 }, { "dev/urandom", 9, 1 }, { "dev/tty", 0, 5 },
};

static const struct {
	const char *name;
	const char *target;
} LINKS[] = {
	{ "dev/fd", "/proc/self/fd" },         { "dev/stdin", "/proc/self/fd/0" }, { "dev/stdout", "/proc/self/fd/1" },
	{ "dev/stderr", "/proc/self/fd/2" },   { "dev/ptmx", "pts/ptmx" },         { "dev/core", "/proc/kcore" },
};

static const char *const ROOT_DIRS[] = { "new", "private", "stage", "empty", "view", "proc", "sys", "dev" };
static const char *const DEV_DIRS[] = { "dev/pts", "dev/shm", "dev/mqueue" };

static int make_dirs(const char *const *names, size_t count, struct fault *fault)
{
	for (size_t at = 0; at < count; at++)
		if (mkdir(names[at], 0755))
			return fault_set(fault, "minimal namespace: mkdir %s", names[at]);
	return 0;
}

static int make_devices(struct fault *fault)
{
	for (size_t at = 0; at < sizeof NODES / sizeof *NODES; at++)
		if (mknod(NODES[at].name, S_IFCHR | 0666, makedev(NODES[at].major, NODES[at].minor)))
			return fault_set(fault, "minimal namespace: mknod %s", NODES[at].name);
	for (size_t at = 0; at < sizeof LINKS / sizeof *LINKS; at++)
		if (symlink(LINKS[at].target, LINKS[at].name))
			return fault_set(fault, "minimal namespace: link %s", LINKS[at].name);
	return make_dirs(DEV_DIRS, sizeof DEV_DIRS / sizeof *DEV_DIRS, fault);
}

static int mount_at(const char *type, const char *target, unsigned long flags, const char *options, struct fault *fault)
{
	return mount(type, target, type, flags, options) ? fault_set(fault, "minimal namespace: mount %s", target) : 0;
}

static int make_read_only(const char *target, struct fault *fault)
{
	struct mount_attr attributes = { .attr_set = MOUNT_ATTR_RDONLY };

	if (mount_setattr(AT_FDCWD, target, 0, &attributes, sizeof attributes))
		return fault_set(fault, "minimal namespace: %s read-only", target);
	return 0;
}

/* In a process whose pid namespace ends with it: this /proc will show no process. */
static int mount_kernel_views(struct fault *fault)
{
	const unsigned long quiet = MS_NOSUID | MS_NODEV | MS_NOEXEC;

	if (mount_at("proc", "proc", quiet, NULL, fault))
		return -1;
	return mount_at("sysfs", "sys", quiet | MS_RDONLY, NULL, fault);
}

static int mount_kernel_views_apart(struct fault *fault)
{
	struct clone_args args = { .flags = CLONE_NEWPID, .exit_signal = SIGCHLD };
	long pid = syscall(SYS_clone3, &args, sizeof args);
	int status;

	if (pid == 0)
		_exit(mount_kernel_views(fault) ? fault->error : 0);
	if (pid < 0 || waitpid((pid_t)pid, &status, 0) != pid)
		return fault_set(fault, "minimal namespace: clone");
	if (status == 0)
		return 0;
	errno = WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
	return fault_set(fault, "minimal namespace: mount /proc and /sys");
}

/*
 * The processors of the machine are in /sys, which all sandboxes share: the file that stands for them goes over it once. What is
 * in /proc has to go over that of each sandbox.
 */
static int mount_view(int view, struct fault *fault)
{
	if (view < 0)
		return 0;
	if (move_mount(view, "", AT_FDCWD, "view", MOVE_MOUNT_F_EMPTY_PATH) || mount(NULL, "view", NULL, MS_PRIVATE, NULL))
		return fault_set(fault, "minimal namespace: mount the view");
	if (mount("view/online", "sys/devices/system/cpu/online", NULL, MS_BIND, NULL) && errno != ENOENT)
		return fault_set(fault, "minimal namespace: mount the view of processors");
	return 0;
}

/* In the new root as working directory, not yet read-only. */
static int fill(int view, struct fault *fault)
{
	if (make_dirs(ROOT_DIRS, sizeof ROOT_DIRS / sizeof *ROOT_DIRS, fault) ||
	    mount_at("tmpfs", "dev", MS_NOSUID | MS_NOEXEC, "mode=0755,size=64k", fault) || make_devices(fault) ||
	    make_read_only("dev", fault))
		return -1;
	return mount_kernel_views_apart(fault) ? -1 : mount_view(view, fault);
}

static int build(int view, struct fault *fault)
{
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return fault_set(fault, "minimal namespace: unshare");
	if (mount_at("tmpfs", BUILD_SITE, MS_NOSUID | MS_NODEV, "mode=0755,size=64k", fault))
		return -1;
	if (chdir(BUILD_SITE))
		return fault_set(fault, "minimal namespace: chdir");
	umask(0);
	if (fill(view, fault))
		return -1;
	umask(022);
	if (syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) || chdir("/"))
		return fault_set(fault, "minimal namespace: pivot_root");
	/* Masks and mount points are cloned from this root; a sandbox must not be able to write through a mask. */
	return make_read_only("/", fault);
}

int minimal_make(int host_ns, int host_proc, const char *view, struct fault *fault)
{
	int tree = view == NULL ? -1 : open_tree(AT_FDCWD, view, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	int built, fd;

	if (view != NULL && tree < 0)
		return fault_set(fault, "view %s: open", view);
	built = build(tree, fault);
	fd = built ? -1 : openat(host_proc, "self/ns/mnt", O_RDONLY | O_CLOEXEC);
	if (!built && fd < 0)
		fault_set(fault, "minimal namespace: open");
	if (tree >= 0)
		close(tree);
	/* Requests name paths of the host. */
	if (setns(host_ns, CLONE_NEWNS)) {
		fault_set(fault, "return to the host's mount namespace");
		if (fd >= 0)
			close(fd);
		return -1;
	}
	return fd;
}

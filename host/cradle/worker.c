#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "cgroups.h"
#include "child.h"
#include "minimal.h"
#include "overlay.h"

enum {
	SANDBOX_NAMESPACES = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS,
	/* How late a cancellation may be seen while the child works. */
	CANCEL_POLL_MS = 50,
	/* A killed child is gone at once unless the kernel is stuck: the cradle must not be stuck with it. */
	KILL_WAIT_MS = 10000,
};

/* What a create holds while it is made. */
struct work {
	const struct cradle *cradle;
	const struct request *request;
	struct progress *progress;
	struct parts parts;
	int cgroups[MAX_CGROUPS];
	unsigned cgroup_count;
	int listener;
	int child;
	int sync;
	int user_ns;
	int root;
};

static int open_parent(const char *path, const char **name)
{
	char dir[4096];
	const char *slash = strrchr(path, '/');
	size_t length = (size_t)(slash - path) + 1;

	*name = slash + 1;
	if (**name == 0 || length >= sizeof dir) {
		errno = EINVAL;
		return -1;
	}
	memcpy(dir, path, length);
	dir[length] = 0;
	return open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* By way of its directory's descriptor: socket addresses hold 107 bytes, paths may be longer. */
static int bind_in(int dir, const char *name, int listener)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int length = snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", dir, name);

	if (length >= (int)sizeof address.sun_path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	return bind(listener, (struct sockaddr *)&address, sizeof address);
}

static int make_socket(struct work *w, struct fault *fault)
{
	const char *path = w->request->socket_path, *name;
	int dir = open_parent(path, &name);
	bool bound;

	if (dir < 0)
		return fault_set(fault, "socket %s: open its directory", path);
	w->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/* Noted first, as with cgroups: a worker may die in between. */
	w->progress->socket_bound = true;
	umask(0177);
	bound = w->listener >= 0 && bind_in(dir, name, w->listener) == 0;
	if (!bound) {
		w->progress->socket_bound = false;
		fault_set(fault, "socket %s: bind", path);
	}
	umask(022);
	close(dir);
	if (!bound)
		return -1;
	return listen(w->listener, 16) ? fault_set(fault, "socket %s: listen", path) : 0;
}

static int make_child(struct work *w, struct fault *fault)
{
	struct clone_args args = {
		.flags = SANDBOX_NAMESPACES | CLONE_PARENT | CLONE_PIDFD | CLONE_PARENT_SETTID,
		.pidfd = (uint64_t)(uintptr_t)&w->child,
		.parent_tid = (uint64_t)(uintptr_t)&w->progress->child,
	};
	int pair[2];
	long pid;

	/* The child copies the namespace it is cloned from: the small one, never the host's. */
	if (setns(w->cradle->minimal_ns, CLONE_NEWNS))
		return fault_set(fault, "enter the minimal namespace");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return fault_set(fault, "make the worker's socket pair");
	w->sync = pair[0];
	pid = syscall(SYS_clone3, &args, sizeof args);
	if (pid == 0) {
		struct inheritance inheritance = { w->listener, w->cgroups, w->cgroup_count, pair[1] };

		/* Its own copy would hide the worker's death from it. */
		close(pair[0]);
		child_run(w->cradle, w->request, &inheritance);
	}
	close(pair[1]);
	return pid < 0 ? fault_set(fault, "clone the sandbox") : 0;
}

static int write_map(int process, const char *file, uint32_t uid_base, struct fault *fault)
{
	char map[64];
	int length = snprintf(map, sizeof map, "0 %u %u\n", uid_base, (unsigned)ID_RANGE);
	int fd = openat(process, file, O_WRONLY | O_CLOEXEC);
	ssize_t written;

	if (fd < 0)
		return fault_set(fault, "open %s", file);
	written = write(fd, map, (size_t)length);
	if (written != length)
		fault_set(fault, "write %s", file);
	close(fd);
	return written == length ? 0 : -1;
}

static int go(const struct work *w, struct fault *fault)
{
	return send(w->sync, "g", 1, MSG_NOSIGNAL) == 1 ? 0 : fault_set(fault, "wake the child");
}

static int map_ids(struct work *w, struct fault *fault)
{
	char path[16];
	int process, result = -1;

	snprintf(path, sizeof path, "%d", w->progress->child);
	process = openat(w->cradle->host_proc, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (process < 0)
		return fault_set(fault, "open /proc/%s", path);
	if (write_map(process, "uid_map", w->request->uid_base, fault) == 0 &&
	    write_map(process, "gid_map", w->request->uid_base, fault) == 0) {
		w->user_ns = openat(process, "ns/user", O_RDONLY | O_CLOEXEC);
		result = w->user_ns < 0 ? fault_set(fault, "open the user namespace") : 0;
	}
	close(process);
	return result ? -1 : go(w, fault);
}

static int make_root(struct work *w, struct fault *fault)
{
	if (parts_shift(&w->parts, w->user_ns, fault))
		return -1;
	w->root = overlay_make(w->cradle->overlay_mode, &w->parts, fault);
	if (w->root < 0)
		return -1;
	if (setns(w->child, CLONE_NEWNS))
		return fault_set(fault, "enter the sandbox's mount namespace");
	if (move_mount(w->root, "", AT_FDCWD, MINIMAL_NEW_ROOT, MOVE_MOUNT_F_EMPTY_PATH))
		return fault_set(fault, "move the root into the sandbox");
	return go(w, fault);
}

static bool is_gone(int pidfd, int wait_ms)
{
	struct pollfd process = { .fd = pidfd, .events = POLLIN };

	return poll(&process, 1, wait_ms) == 1;
}

static int check_cancelled(const struct work *w, struct fault *fault)
{
	if (!atomic_load(&w->progress->cancelled))
		return 0;
	errno = ECANCELED;
	return fault_set(fault, "cancelled");
}

/* Exec closes the child's end. So does death: an agent that is gone already was never one. */
static int await_agent(struct work *w, struct fault *fault)
{
	struct pollfd sync = { .fd = w->sync, .events = POLLIN };
	ssize_t got;

	while (poll(&sync, 1, CANCEL_POLL_MS) == 0)
		if (check_cancelled(w, fault))
			return -1;
	got = recv(w->sync, fault, sizeof *fault, 0);
	if (got == (ssize_t)sizeof *fault)
		return -1;
	if (got != 0)
		return fault_set(fault, "hear from the child");
	if (is_gone(w->child, 0)) {
		errno = ECHILD;
		return fault_set(fault, "the agent died at its start");
	}
	return 0;
}

static int build(struct work *w, struct fault *fault)
{
	if (cgroups_make(w->request, w->progress, w->cgroups, &w->cgroup_count, fault) || check_cancelled(w, fault))
		return -1;
	if (parts_open(w->request, &w->parts, fault) || make_socket(w, fault) || check_cancelled(w, fault))
		return -1;
	if (make_child(w, fault) || map_ids(w, fault) || check_cancelled(w, fault))
		return -1;
	return make_root(w, fault) || await_agent(w, fault) ? -1 : 0;
}

static void take_down(const struct request *request, struct progress *progress)
{
	if (progress->socket_bound)
		unlink(request->socket_path);
	progress->socket_bound = false;
	cgroups_remove(request, progress);
}

/* Paths of a request are the host's; a worker may be anywhere after a create. One that cannot return is of no more use. */
static void return_to_host(const struct cradle *cradle)
{
	if (setns(cradle->host_ns, CLONE_NEWNS))
		_exit(1);
}

static void tell(const struct cradle *cradle, struct progress *progress)
{
	atomic_store(&progress->done, true);
	eventfd_write(cradle->bell, 1);
}

void worker_undo(const struct cradle *cradle, const struct request *request, struct progress *progress)
{
	take_down(request, progress);
	tell(cradle, progress);
}

static void close_open(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void close_all(struct work *w)
{
	const int fds[] = { w->listener, w->child, w->sync, w->user_ns, w->root, w->parts.writable };

	for (size_t at = 0; at < sizeof fds / sizeof *fds; at++)
		close_open(fds[at]);
	for (unsigned at = 0; at < w->parts.layer_count; at++)
		close_open(w->parts.layers[at]);
	for (unsigned at = 0; at < w->cgroup_count; at++)
		close_open(w->cgroups[at]);
}

static void kill_child(const struct work *w)
{
	if (w->child < 0)
		return;
	pidfd_send_signal(w->child, SIGKILL, NULL, 0);
	is_gone(w->child, KILL_WAIT_MS);
}

void worker_create(const struct cradle *cradle, const struct request *request, struct progress *progress)
{
	struct fault fault = { 0 };
	struct work work = {
		.cradle = cradle, .request = request, .progress = progress, .parts = { .writable = -1 },
		.listener = -1, .child = -1, .sync = -1, .user_ns = -1, .root = -1,
	};

	if (build(&work, &fault) == 0) {
		tell(cradle, progress);
		return_to_host(cradle);
	} else {
		kill_child(&work);
		return_to_host(cradle);
		take_down(request, progress);
		progress->fault = fault;
		tell(cradle, progress);
	}
	close_all(&work);
}

#include "blank.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "child.h"

enum {
	SANDBOX_NAMESPACES = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS,
	/* How late a cancellation may be seen while the child works. */
	CANCEL_POLL_MS = 50,
	/* A killed child is gone at once unless the kernel is stuck: the cradle must not be stuck with it. */
	KILL_WAIT_MS = 10000,
	/* What an agent takes at once: guest/agent/blank.h. */
	FILLING_BYTES = 4096,
	LISTEN_BACKLOG = 16,
};

static int open_parent(const char *path, const char **name)
{
	char dir[PATH_MAX];
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

/* The listening socket, or -1. */
static int make_socket(const char *path, struct progress *progress, struct fault *fault)
{
	const char *name;
	int dir = open_parent(path, &name);
	int listener;

	if (dir < 0)
		return fault_set(fault, "socket %s: open its directory", path);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/* Noted first, as with cgroups: a worker may die in between. */
	progress->socket_bound = true;
	umask(0177);
	if (listener < 0 || bind_in(dir, name, listener)) {
		progress->socket_bound = false;
		fault_set(fault, "socket %s: bind", path);
	} else if (listen(listener, LISTEN_BACKLOG)) {
		fault_set(fault, "socket %s: listen", path);
		unlinkat(dir, name, 0);
		progress->socket_bound = false;
	}
	umask(022);
	close(dir);
	if (progress->socket_bound)
		return listener;
	if (listener >= 0)
		close(listener);
	return -1;
}

/*
 * The kernel charges what a sandbox holds of inotify, message queues and queued signals to whoever made its user namespace, too. Made
 * by the host's root they would share its share, all together and with the host: so each is made under the id of its own root.
 */
static long clone_as(uint32_t owner, struct clone_args *args)
{
	long pid = -1;

	/* Else the capabilities would go with the id. */
	if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) == 0 && setresuid((uid_t)-1, owner, (uid_t)-1) == 0)
		pid = syscall(SYS_clone3, args, sizeof *args);
	if (pid != 0 && setresuid((uid_t)-1, 0, (uid_t)-1))
		_exit(1);
	return pid;
}

static int clone_child(const struct cradle *cradle, const struct request *request, struct progress *progress,
		       struct blank *blank, int listener, struct fault *fault)
{
	struct clone_args args = {
		.flags = SANDBOX_NAMESPACES | CLONE_PARENT | CLONE_PIDFD | CLONE_PARENT_SETTID,
		.pidfd = (uint64_t)(uintptr_t)&blank->process,
		.parent_tid = (uint64_t)(uintptr_t)&progress->child,
	};
	int pair[2];
	long pid;

	/* The child copies the namespace it is cloned from: the small one, never the host's. */
	if (setns(cradle->minimal_ns, CLONE_NEWNS))
		return fault_set(fault, "enter the minimal namespace");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return fault_set(fault, "make the worker's socket pair");
	blank->socket = pair[0];
	pid = clone_as(request->uid_base, &args);
	if (pid == 0) {
		/* Its own copy would hide the worker's death from it. */
		close(pair[0]);
		child_run(cradle, request, &(struct inheritance){ listener, pair[1] });
	}
	close(pair[1]);
	blank->pid = (pid_t)pid;
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

static int map_ids(const struct cradle *cradle, struct blank *blank, struct fault *fault)
{
	char path[16];
	int process, result = -1;

	snprintf(path, sizeof path, "%d", blank->pid);
	process = openat(cradle->host_proc, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (process < 0)
		return fault_set(fault, "open /proc/%s", path);
	if (write_map(process, "uid_map", blank->uid_base, fault) == 0 &&
	    write_map(process, "gid_map", blank->uid_base, fault) == 0) {
		blank->user_ns = openat(process, "ns/user", O_RDONLY | O_CLOEXEC);
		result = blank->user_ns < 0 ? fault_set(fault, "open the user namespace") : 0;
	}
	close(process);
	if (result == 0 && send(blank->socket, "g", 1, MSG_NOSIGNAL) != 1)
		return fault_set(fault, "wake the child");
	return result;
}

int blank_make(const struct cradle *cradle, const struct request *request, struct progress *progress,
	       struct blank *blank, struct fault *fault)
{
	size_t length = strlen(request->socket_path);
	int listener, result;

	if (length >= sizeof blank->socket_path) {
		errno = ENAMETOOLONG;
		return fault_set(fault, "socket: its path");
	}
	*blank = (struct blank){ .uid_base = request->uid_base, .process = -1, .user_ns = -1, .socket = -1 };
	listener = make_socket(request->socket_path, progress, fault);
	if (listener < 0)
		return -1;
	memcpy(blank->socket_path, request->socket_path, length + 1);
	result = clone_child(cradle, request, progress, blank, listener, fault);
	close(listener);
	return result ? -1 : map_ids(cradle, blank, fault);
}

static bool process_is_gone(int pidfd, int wait_ms)
{
	struct pollfd process = { .fd = pidfd, .events = POLLIN };

	return poll(&process, 1, wait_ms) == 1;
}

bool blank_is_gone(const struct blank *blank)
{
	return process_is_gone(blank->process, 0);
}

int check_cancelled(const struct progress *progress, struct fault *fault)
{
	if (!atomic_load(&progress->cancelled))
		return 0;
	errno = ECANCELED;
	return fault_set(fault, "cancelled");
}

/* Size of the next message, 0 at the end of the child's side; -1 for a fault, which may be one that the child reports. */
static ssize_t hear(const struct blank *blank, const struct progress *progress, struct fault *fault)
{
	struct pollfd socket = { .fd = blank->socket, .events = POLLIN };
	struct fault said;
	ssize_t got;

	while (poll(&socket, 1, CANCEL_POLL_MS) == 0)
		if (check_cancelled(progress, fault))
			return -1;
	got = recv(blank->socket, &said, sizeof said, 0);
	if (got == (ssize_t)sizeof said) {
		*fault = said;
		return -1;
	}
	/* A reset: the other end went with something unread. */
	if (got < 0 && errno != ECONNRESET)
		return fault_set(fault, "hear from the child");
	return got < 0 ? 0 : got;
}

static int died(struct fault *fault)
{
	errno = ECHILD;
	return fault_set(fault, "the agent died at its start");
}

int blank_await(const struct blank *blank, const struct progress *progress, struct fault *fault)
{
	ssize_t got = hear(blank, progress, fault);

	return got == 0 ? died(fault) : got < 0 ? -1 : 0;
}

/* Host name and arguments, each with its NUL. Returns their size, or 0. */
static size_t write_texts(const struct request *request, unsigned doors, char texts[FILLING_BYTES])
{
	size_t used = (size_t)snprintf(texts, FILLING_BYTES, "%s%c--cgroups=%u", request->hostname, 0, doors) + 1;

	for (unsigned at = 0; at < request->argument_count; at++) {
		size_t size = strlen(request->arguments[at]) + 1;

		if (size > FILLING_BYTES - used)
			return 0;
		memcpy(texts + used, request->arguments[at], size);
		used += size;
	}
	return used;
}

int blank_fill(const struct blank *blank, const struct request *request, const struct progress *progress,
	       const int *passed, unsigned count, struct fault *fault)
{
	char texts[FILLING_BYTES];
	union {
		char bytes[CMSG_SPACE((1 + MAX_CGROUPS) * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec piece = { texts, write_texts(request, count - 1, texts) };
	struct msghdr message = {
		.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = CMSG_SPACE(count * sizeof(int)),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	if (piece.iov_len == 0) {
		errno = E2BIG;
		return fault_set(fault, "arguments of more than %d bytes", FILLING_BYTES);
	}
	*header = (struct cmsghdr){ CMSG_LEN(count * sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
	memcpy(CMSG_DATA(header), passed, count * sizeof(int));
	if (sendmsg(blank->socket, &message, MSG_NOSIGNAL) < 0)
		return fault_set(fault, "fill the blank");
	/* The agent closes its end when it is done. So does death. */
	if (hear(blank, progress, fault) < 0)
		return -1;
	return blank_is_gone(blank) ? died(fault) : 0;
}

void blank_release(struct blank *blank)
{
	const int fds[] = { blank->process, blank->user_ns, blank->socket };

	for (size_t at = 0; at < sizeof fds / sizeof *fds; at++)
		if (fds[at] >= 0)
			close(fds[at]);
	blank->uid_base = 0;
}

void blank_drop(struct blank *blank)
{
	if (blank->uid_base == 0)
		return;
	if (blank->process >= 0) {
		pidfd_send_signal(blank->process, SIGKILL, NULL, 0);
		process_is_gone(blank->process, KILL_WAIT_MS);
	}
	if (blank->socket_path[0] != 0)
		unlink(blank->socket_path);
	blank_release(blank);
}

/* The program of a cell: made before its call where that saves time, ended with all that it started. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"
#include "cell.h"
#include "program.h"
#include "spawner.h"

/* Where the fork server of a container listens; no cell has a way into the network namespace that this name belongs to. */
#define SERVER_NAME "\0dsec-fork-server"
/* A program that is there before its call reads its words here. */
#define GO 3
#define STREAM_COUNT 3

int cell_open_ends(struct cell *cell) {
	for (int at = 0; at < STREAM_COUNT; at++) {
		int pair[2];
		if (pipe2(pair, O_CLOEXEC) != 0) return errno;
		cell->ends[at] = pair[at == 0 ? 1 : 0];
		cell->program_ends[at] = pair[at == 0 ? 0 : 1];
		fcntl(cell->ends[at], F_SETFL, O_NONBLOCK);
		/* Programs open their streams by name, too. */
		if (fchown(pair[0], cell->uid, (gid_t)cell->uid) != 0) return errno;
	}
	return 0;
}

static void close_program_ends(struct cell *cell) {
	for (int at = 0; at < STREAM_COUNT; at++) close_fd(&cell->program_ends[at]);
}

static int give_up_rights(const struct cell *cell) {
	int error = cell_cgroups_join(cell);
	if (error == 0 && unshare(CLONE_NEWCGROUP) != 0) error = errno;
	if (error == 0) error = cell_enter(cell);
	if (error == 0) error = confine_rights(cell->options, NULL);
	if (error != 0) return error;
	gid_t gid = (gid_t)cell->uid;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || setgroups(0, NULL) != 0) return errno;
	if (setresgid(gid, gid, gid) != 0 || setresuid(cell->uid, cell->uid, cell->uid) != 0) return errno;
	return 0;
}

static int arrange_streams(const struct cell *cell, int go, int report) {
	int moved[STREAM_COUNT + 2];
	for (int at = 0; at < STREAM_COUNT; at++) moved[at] = cell->program_ends[at];
	moved[STREAM_COUNT] = go;
	moved[STREAM_COUNT + 1] = report;
	for (int at = 0; at < STREAM_COUNT + 2; at++) {
		if (moved[at] >= 0 && (moved[at] = fcntl(moved[at], F_DUPFD_CLOEXEC, 64)) < 0) return errno;
	}
	for (int at = 0; at < STREAM_COUNT; at++) {
		if (dup2(moved[at], at) < 0) return errno;
	}
	if (go >= 0 && dup2(moved[STREAM_COUNT], GO) < 0) return errno;
	if (dup3(moved[STREAM_COUNT + 1], GO + 1, O_CLOEXEC) < 0) return errno;
	if (go < 0) close(GO);
	return close_from(GO + 2) != 0 ? errno : 0;
}

/* What a start says when it fails: an errno, and whose. */
struct launch_failure {
	int error;
	bool unrunnable;
};

static _Noreturn void run(const struct cell *cell, const struct start *words, int go, int report) {
	static struct identity identity;
	struct launch_failure failure = {.error = 0};
	setsid();
	signal(SIGPIPE, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	int error = become_killable();
	if (error == 0) error = give_up_rights(cell);
	if (error == 0) error = arrange_streams(cell, go, report);
	if (error == 0) {
		identity = (struct identity){.uid = cell->uid, .gid = (gid_t)cell->uid};
		snprintf(identity.home, sizeof identity.home, "%s", cell->cwd);
		error = program_exec(words, &identity).error;
		failure.unrunnable = true;
	}
	failure.error = error;
	ssize_t ignored = write(GO + 1, &failure, sizeof failure);
	(void)ignored;
	_exit(127);
}

/* Starts a program in the cell. 0 once it runs. */
static int launch(struct cell *cell, const struct start *words, int go, bool *unrunnable) {
	int report[2], error = 0;
	if (pipe2(report, O_CLOEXEC) != 0) return errno;
	cell->program = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
	if (cell->program == 0) run(cell, words, go, report[1]);
	if (cell->program < 0 || (cell->watch = (int)syscall(SYS_pidfd_open, cell->program, 0)) < 0) error = errno;
	close(report[1]);
	close_program_ends(cell);
	struct launch_failure failure;
	if (error == 0 && read(report[0], &failure, sizeof failure) == sizeof failure) {
		error = failure.error;
		*unrunnable = failure.unrunnable;
	}
	close(report[0]);
	return error;
}

/* What the fork server is told: the user, then as descriptors where words come from, the streams, the cell, its cgroups. */
static int ask_server(struct cell *cell, int go) {
	int fds[CGROUP_LIMIT + 5], count = 0;
	fds[count++] = go;
	for (int at = 0; at < STREAM_COUNT; at++) fds[count++] = cell->program_ends[at];
	fds[count++] = cell->init_fd;
	for (int at = 0; at < cell->cgroup_count; at++) fds[count++] = cell->cgroups[at].door;
	char text[16];
	struct iovec piece = {text, (size_t)snprintf(text, sizeof text, "%u", cell->uid)};
	union {
		char bytes[CMSG_SPACE(sizeof fds)];
		struct cmsghdr align;
	} control = {0};
	struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes};
	message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
	struct cmsghdr *passed = CMSG_FIRSTHDR(&message);
	passed->cmsg_level = SOL_SOCKET;
	passed->cmsg_type = SCM_RIGHTS;
	passed->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
	memcpy(CMSG_DATA(passed), fds, (size_t)count * sizeof(int));
	return sendmsg(cell->served, &message, MSG_NOSIGNAL) < 0 ? errno : 0;
}

static int fork_from_server(struct cell *cell, int go) {
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	memcpy(address.sun_path, SERVER_NAME, sizeof SERVER_NAME - 1);
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof SERVER_NAME - 1);
	cell->served = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (cell->served < 0 || connect(cell->served, (struct sockaddr *)&address, size) != 0) return errno;
	int error = ask_server(cell, go);
	close_program_ends(cell);
	/* It answers when the program has left the server's rights behind. */
	char answer[4];
	if (error == 0 && recv(cell->served, answer, sizeof answer, 0) <= 0) error = ECHILD;
	cell->watch = cell->served;
	return error;
}

int cell_program_ready(struct cell *cell, const struct start *start) {
	if (!start->flag && start->argv_size == 0) return 0;
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return errno;
	cell->go = pair[0];
	bool unrunnable;
	int error = start->flag ? fork_from_server(cell, pair[1]) : launch(cell, start, pair[1], &unrunnable);
	close(pair[1]);
	return error;
}

/* One message: u32 size of the run of arguments, that run, the run of variables. */
static int send_words(struct cell *cell, const struct cell_request *request) {
	uint32_t size = request->argv_size;
	struct iovec pieces[] = {
		{&size, sizeof size}, {(void *)request->argv, request->argv_size}, {(void *)request->env, request->env_size}};
	struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 3};
	int room = (int)(2 * CELL_TEXTS_LIMIT);
	setsockopt(cell->go, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
	int error = sendmsg(cell->go, &message, MSG_NOSIGNAL) < 0 ? errno : 0;
	close_fd(&cell->go);
	return error;
}

int cell_program_go(struct cell *cell, const struct cell_request *request, bool *unrunnable) {
	if (cell->go >= 0) return send_words(cell, request);
	struct start words = {
		.argv = request->argv, .argv_size = request->argv_size, .env = request->env, .env_size = request->env_size};
	return launch(cell, &words, -1, unrunnable);
}

bool cell_program_ended(struct cell *cell, int *status) {
	if (cell->served < 0) {
		if (cell->program == 0 || waitpid(cell->program, status, WNOHANG) == 0) return false;
		cell->program = 0;
		return true;
	}
	ssize_t got = recv(cell->served, status, sizeof *status, MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
	/* A server that is gone takes its programs along. */
	if (got != sizeof *status) *status = SIGKILL;
	close_fd(&cell->served);
	cell->watch = -1;
	return true;
}

int process_collect(pid_t pid) {
	while (waitpid(pid, NULL, 0) != pid) {
		if (errno != EINTR) return errno;
	}
	return 0;
}

int cell_end(struct cell *cell) {
	if (cell->init <= 0) return 0;
	/* Where a kernel cannot end all of a cgroup at once, the room ends with the cell. */
	if (!cell_cgroups_kill(cell)) return cell_room_close(cell);
	int error = cell->program > 0 ? process_collect(cell->program) : 0;
	cell->program = 0;
	return error == 0 ? cell_cgroups_settle(cell) : error;
}

void cell_forget(struct cell *cell) {
	for (int at = 0; at < STREAM_COUNT; at++) close_fd(&cell->ends[at]);
	close_program_ends(cell);
	close_fd(&cell->go);
	/* Of a program that the server made it is the same. */
	if (cell->watch == cell->served) cell->watch = -1;
	close_fd(&cell->served);
	close_fd(&cell->watch);
}

#include "spawner.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls.h"
#include "cell.h"

#define SOCKET 3

/* Whole pages, so that it can be wiped without touching it. */
static uint8_t body[INLINE_BODY] __attribute__((aligned(4096)));

void spawner_wipe(void) { madvise(body, sizeof body, MADV_DONTNEED); }

static void close_received(struct spawn *spawn) {
	for (int i = 0; i < PASSED_LIMIT; i++) close_fd(&spawn->fds[i]);
}

/* The descriptors come in a fixed order; the absent ones are left out. */
static bool sort_descriptors(struct msghdr *message, const struct spawn_message *head, struct spawn *spawn) {
	struct cmsghdr *passed = CMSG_FIRSTHDR(message);
	if (passed == NULL || passed->cmsg_type != SCM_RIGHTS) return false;
	int fds[PASSED_LIMIT];
	size_t count = (passed->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	if (count > PASSED_LIMIT) return false;
	memcpy(fds, CMSG_DATA(passed), count * sizeof(int));
	size_t taken = 0;
	for (int i = 0; i < PASSED_LIMIT && taken < count; i++) {
		if (head->passed >> i & 1) spawn->fds[i] = fds[taken++];
	}
	for (size_t i = taken; i < count; i++) close(fds[i]);
	return taken == count && (size_t)__builtin_popcount(head->passed) == count;
}

/* One request. False: the agent is gone. */
static bool receive(struct spawn *spawn) {
	struct spawn_message head = {0};
	struct iovec pieces[2] = {{&head, sizeof head}, {body, sizeof body}};
	union {
		char bytes[CMSG_SPACE(PASSED_LIMIT * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct msghdr message = {
		.msg_iov = pieces, .msg_iovlen = 2, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
	ssize_t got = recvmsg(SOCKET, &message, MSG_CMSG_CLOEXEC);
	if (got == 0 || (got < 0 && errno != EINTR)) return false;
	*spawn = (struct spawn){.body_size = 0};
	for (int i = 0; i < PASSED_LIMIT; i++) spawn->fds[i] = -1;
	if (got < (ssize_t)sizeof head) return true;
	spawn->body = body;
	spawn->body_size = head.body_size;
	bool in_file = head.passed >> PASSED_FILE & 1;
	bool whole = in_file || (size_t)got == sizeof head + head.body_size;
	if (!sort_descriptors(&message, &head, spawn) || !whole) close_received(spawn);
	return true;
}

static void serve(const struct options *options) {
	struct spawn spawn;
	while (receive(&spawn)) {
		if (spawn.fds[PASSED_REPORT] < 0) continue;
		/* A child of the agent, not of this process: its init reaps it and learns what it used. */
		pid_t pid = (pid_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, 0);
		if (pid == 0) child_main(options, &spawn);
		if (pid < 0) {
			struct report report = {.stage = STAGE_SPAWN, .value = errno};
			ssize_t ignored = write(spawn.fds[PASSED_REPORT], &report, sizeof report);
			(void)ignored;
		}
		close_received(&spawn);
		/* The next child is somebody else's, and its user may look into it: a shorter request would not cover this one. */
		memset(body, 0, sizeof body < spawn.body_size ? sizeof body : spawn.body_size);
	}
}

/* Children inherit these: as a fresh process has them, but for SIGPIPE, which they reset themselves. */
static void reset_signals(void) {
	for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Before any child: a call that nobody hears of waits for ever. */
static bool tell_listener(int socket, int listener) {
	struct report report = {.stage = SAYS_LISTENER};
	struct iovec piece = {&report, sizeof report};
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {.bytes = {0}};
	struct msghdr message = {
		.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
	struct cmsghdr *passed = CMSG_FIRSTHDR(&message);
	passed->cmsg_level = SOL_SOCKET;
	passed->cmsg_type = SCM_RIGHTS;
	passed->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(passed), &listener, sizeof listener);
	return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)sizeof report;
}

/* The directories of cells stay where they are. */
static int close_others(const struct options *options) {
	if (options->cgroups > 0 && close_between(SOCKET + 1, SOCKET + options->cgroups) != 0) return -1;
	return close_from(SOCKET + 1 + options->cgroups + options->cells);
}

void spawner_main(const struct options *options, int socket) {
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "dsec-spawner");
	reset_signals();
	int listener = -1;
	int error = confine_place(options);
	/* What makes cells needs its rights; what it starts gives them up one by one. */
	if (error == 0) error = options->cells > 0 ? cell_prepare_container() : confine_rights(options, &listener);
	if (error != 0) {
		struct report report = {.stage = STAGE_CONFINE, .value = error};
		ssize_t ignored = write(socket, &report, sizeof report);
		(void)ignored;
		_exit(1);
	}
	if (listener >= 0 && !tell_listener(socket, listener)) _exit(1);
	if (dup2(socket, SOCKET) != SOCKET || close_others(options) != 0) _exit(1);
	serve(options);
	_exit(0);
}

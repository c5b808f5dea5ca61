#include "spawner.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SOCKET 3

static uint8_t body[INLINE_BODY];

static void close_received(struct spawn *spawn) {
	close_fd(&spawn->report);
	close_fd(&spawn->out);
	close_fd(&spawn->err);
	close_fd(&spawn->input);
	close_fd(&spawn->marker);
	close_fd(&spawn->file);
}

/* The descriptors come in a fixed order; the absent ones are left out. */
static bool sort_descriptors(struct msghdr *message, const struct spawn_message *head, struct spawn *spawn) {
	struct cmsghdr *passed = CMSG_FIRSTHDR(message);
	if (passed == NULL || passed->cmsg_type != SCM_RIGHTS) return false;
	int fds[PASSED_LIMIT];
	size_t count = (passed->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	if (count > PASSED_LIMIT) return false;
	memcpy(fds, CMSG_DATA(passed), count * sizeof(int));
	int *slots[PASSED_LIMIT] = {&spawn->report, &spawn->out, &spawn->err};
	size_t wanted = 3;
	if (head->has_input) slots[wanted++] = &spawn->input;
	if (head->has_marker) slots[wanted++] = &spawn->marker;
	if (head->has_file) slots[wanted++] = &spawn->file;
	for (size_t i = 0; i < count; i++) {
		if (i < wanted) {
			*slots[i] = fds[i];
		} else {
			close(fds[i]);
		}
	}
	return count == wanted;
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
	*spawn = (struct spawn){.report = -1, .out = -1, .err = -1, .input = -1, .marker = -1, .file = -1};
	if (got < (ssize_t)sizeof head) return true;
	spawn->body = body;
	spawn->body_size = head.body_size;
	bool whole = head.has_file || (size_t)got == sizeof head + head.body_size;
	if (!sort_descriptors(&message, &head, spawn) || !whole) close_received(spawn);
	return true;
}

static void serve(const struct options *options) {
	struct spawn spawn;
	while (receive(&spawn)) {
		if (spawn.report < 0) continue;
		/* A child of the agent, not of this process: its init reaps it and learns what it used. */
		pid_t pid = (pid_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, 0);
		if (pid == 0) child_main(options, &spawn);
		if (pid < 0) {
			struct report report = {.stage = STAGE_SPAWN, .value = errno};
			ssize_t ignored = write(spawn.report, &report, sizeof report);
			(void)ignored;
		}
		close_received(&spawn);
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

void spawner_main(const struct options *options, int socket) {
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "dsec-spawner");
	reset_signals();
	int error = confine(options->cgroups);
	if (error != 0) {
		struct report report = {.stage = STAGE_CONFINE, .value = error};
		ssize_t ignored = write(socket, &report, sizeof report);
		(void)ignored;
		_exit(1);
	}
	if (dup2(socket, SOCKET) != SOCKET || close_range(SOCKET + 1, ~0u, 0) != 0) _exit(1);
	serve(options);
	_exit(0);
}

/*
 * Connections to the ports of the sandbox: tasks without a process. The agent lives in the sandbox's network namespace and
 * connects to its loopback; the socket is what the pipes are to a command. Bytes, windows and acknowledgements are those of
 * every task.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent.h"
#include "start.h"

static int begin(uint16_t port, bool six) {
	struct sockaddr_in four = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in6 loop6 = {
		.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0) return -1;
	/* What comes in pieces goes on in pieces: whoever sends them has decided so. */
	int on = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	const struct sockaddr *address = six ? (const struct sockaddr *)&loop6 : (const struct sockaddr *)&four;
	if (connect(fd, address, six ? sizeof loop6 : sizeof four) == 0 || errno == EINPROGRESS) return fd;
	int error = errno;
	close(fd);
	errno = error;
	return -1;
}

static void watch(struct agent *agent, struct task *task, int fd) {
	task->input.fd = fd;
	agent_watch(agent, fd, EPOLLOUT | EPOLLET, ON_INPUT, task);
}

/* Servers listen on one loopback address or both; which of them refused first is what the caller hears. */
static void refused(struct agent *agent, struct task *task, int error) {
	close_fd(&task->input.fd);
	if (task->second_address) error = ECONNREFUSED;
	if (error == ECONNREFUSED && !task->second_address) {
		task->second_address = true;
		int fd = begin(task->port, true);
		if (fd >= 0) {
			watch(agent, task, fd);
			return;
		}
	}
	task_fail(agent, task, STAGE_CONNECT, error);
}

void port_connect(struct agent *agent, struct task *task) {
	int fd = begin(task->port, false);
	if (fd >= 0) {
		watch(agent, task, fd);
	} else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
		task_fail(agent, task, STAGE_LIMIT, errno);
	} else {
		refused(agent, task, errno);
	}
}

void port_answered(struct agent *agent, struct task *task) {
	int error = 0;
	socklen_t size = sizeof error;
	struct sockaddr_storage peer;
	socklen_t peer_size = sizeof peer;
	getsockopt(task->input.fd, SOL_SOCKET, SO_ERROR, &error, &size);
	if (error != 0) {
		refused(agent, task, error);
		return;
	}
	/* Woken for something else: the answer is still to come. */
	if (getpeername(task->input.fd, (struct sockaddr *)&peer, &peer_size) != 0) return;
	int fd = fcntl(task->input.fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0) {
		task_fail(agent, task, STAGE_LIMIT, errno);
		return;
	}
	task->state = TASK_RUNNING;
	task->deadline_us = NEVER;
	task->input.socket = true;
	task->started_due = true;
	task->streams[STDOUT].fd = fd;
	agent_watch(agent, fd, EPOLLIN | EPOLLRDHUP | EPOLLET, ON_STDOUT, task);
	task_due(agent, task);
}

static void end(struct agent *agent, struct task *task, uint8_t cause, int error) {
	task->ending = (struct ending){.cause = cause, .value = error, .wall_us = agent->now_us - task->began_us};
	task_finish(agent, task);
}

void port_expired(struct agent *agent, struct task *task) {
	if (task->state == TASK_CONNECTING) {
		task_fail(agent, task, STAGE_CONNECT, ETIMEDOUT);
	} else {
		end(agent, task, CAUSE_TIMEOUT, 0);
	}
}

void port_broke(struct agent *agent, struct task *task, int error) {
	close_fd(&task->streams[STDOUT].fd);
	input_close(&task->input);
	end(agent, task, CAUSE_EXITED, error);
}

void port_settle(struct agent *agent, struct task *task) {
	struct stream *out = &task->streams[STDOUT];
	if (task->state != TASK_RUNNING || out->fd >= 0) return;
	/* The write took the news of a reset with it; what the read then found was no end. In EPIPE the end had come before. */
	if (task->input.error != 0 && task->input.error != EPIPE) {
		out->ended = false;
		port_broke(agent, task, task->input.error);
		return;
	}
	if (task->input.fd < 0) end(agent, task, CAUSE_EXITED, task->input.error);
}

void port_abort(struct task *task) {
	struct linger at_once = {.l_onoff = 1, .l_linger = 0};
	int fd = task->input.fd >= 0 ? task->input.fd : task->streams[STDOUT].fd;
	if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

/* The agent's side of the spawner: keeping one alive and handing it the tasks that wait. */
#include <errno.h>
#include <string.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "spawner.h"
#include "start.h"

/* A start that takes longer hangs: the spawner, or the child before it became the command. */
#define STUCK_US 20000000u
#define RETRY_FIRST_US 20000u
#define RETRY_DOUBLINGS 6
/* A spawner that lived this long was not a failure. */
#define HEALTHY_US 1000000u

void spawner_start(struct agent *agent) {
	struct spawner *spawner = &agent->spawner;
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
		spawner->retry_us = agent->now_us + RETRY_FIRST_US;
		agent_timer(agent, spawner->retry_us);
		return;
	}
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
	if (pid == 0) spawner_main(&agent->options, pair[1]);
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		spawner->retry_us = agent->now_us + RETRY_FIRST_US;
		agent_timer(agent, spawner->retry_us);
		return;
	}
	fcntl(pair[0], F_SETFL, O_NONBLOCK);
	*spawner = (struct spawner){
		.fd = pair[0], .pid = pid, .writable = true, .failures = spawner->failures, .born_us = agent->now_us};
	agent_watch(agent, pair[0], EPOLLIN | EPOLLOUT | EPOLLET, ON_SPAWNER, NULL);
}

/* The one thing a spawner ever says: that it could not confine itself. It fails every start that waits for it. */
void spawner_event(struct agent *agent) {
	struct report report;
	while (agent->spawner.fd >= 0 && recv(agent->spawner.fd, &report, sizeof report, MSG_DONTWAIT) == sizeof report) {
		while (!list_empty(&agent->waiting)) {
			struct task *task = OWNER_OF(agent->waiting.next, struct task, waiting);
			task_fail(agent, task, STAGE_CONFINE, report.value);
		}
		for (uint32_t slot = 0; slot < agent->slots; slot++) {
			struct task *task = &agent->tasks[slot];
			if (task->state == TASK_WAITING && task->pid == 0) task_fail(agent, task, STAGE_CONFINE, report.value);
		}
	}
}

void spawner_gone(struct agent *agent) {
	struct spawner *spawner = &agent->spawner;
	spawner_event(agent);
	close_fd(&spawner->fd);
	bool healthy = agent->now_us - spawner->born_us >= HEALTHY_US;
	spawner->pid = 0;
	spawner->writable = false;
	if (healthy) {
		spawner->failures = 0;
		spawner_start(agent);
		return;
	}
	uint8_t doublings = spawner->failures < RETRY_DOUBLINGS ? spawner->failures++ : RETRY_DOUBLINGS;
	spawner->retry_us = agent->now_us + ((uint64_t)RETRY_FIRST_US << doublings);
	agent_timer(agent, spawner->retry_us);
}

void spawner_check(struct agent *agent) {
	struct spawner *spawner = &agent->spawner;
	if (spawner->pid == 0) {
		if (agent->now_us >= spawner->retry_us) {
			spawner_start(agent);
		} else {
			agent_timer(agent, spawner->retry_us);
		}
		return;
	}
	for (uint32_t slot = 0; agent->starting > 0 && slot < agent->slots; slot++) {
		struct task *task = &agent->tasks[slot];
		if (task->state != TASK_WAITING || task->report < 0) continue;
		if (task->began_us + STUCK_US > agent->now_us) {
			agent_timer(agent, task->began_us + STUCK_US);
		} else {
			if (task->pid == 0) {
				kill(spawner->pid, SIGKILL);
				/* A stopped child may keep its socket open: what is sent there is lost. */
				spawner->writable = false;
			}
			task_stuck(agent, task);
		}
	}
}

struct pipes {
	int ours[5], theirs[5];
	int count;
	int body;
};

enum { PIPE_REPORT, PIPE_OUT, PIPE_ERR, PIPE_INPUT, PIPE_MARKER };

static void close_pipes(struct pipes *pipes) {
	for (int i = 0; i < pipes->count; i++) {
		close(pipes->ours[i]);
		close(pipes->theirs[i]);
	}
	close_fd(&pipes->body);
}

static bool open_pipes(struct pipes *pipes, int count) {
	*pipes = (struct pipes){.body = -1};
	for (int i = 0; i < count; i++) {
		int ends[2];
		if (pipe2(ends, O_CLOEXEC) != 0) {
			close_pipes(pipes);
			return false;
		}
		bool inward = i < PIPE_INPUT;
		pipes->ours[i] = inward ? ends[0] : ends[1];
		pipes->theirs[i] = inward ? ends[1] : ends[0];
		/* The flag is of one end: the command's stays blocking. */
		fcntl(pipes->ours[i], F_SETFL, O_NONBLOCK);
		pipes->count = i + 1;
	}
	return true;
}

static bool open_body(struct pipes *pipes, const struct task *task) {
	if (task->body_size <= INLINE_BODY) return true;
	pipes->body = memfd_create("start", MFD_CLOEXEC);
	if (pipes->body < 0) return false;
	return write(pipes->body, task->body, task->body_size) == (ssize_t)task->body_size;
}

static bool send_spawn(struct agent *agent, const struct task *task, const struct pipes *pipes) {
	bool file = pipes->body >= 0;
	struct spawn_message head = {
		.body_size = task->body_size,
		.has_input = pipes->count > PIPE_INPUT,
		.has_marker = pipes->count > PIPE_MARKER,
		.has_file = file,
	};
	struct iovec pieces[2] = {{&head, sizeof head}, {task->body, task->body_size}};
	union {
		char bytes[CMSG_SPACE(PASSED_LIMIT * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	int fds = pipes->count + (file ? 1 : 0);
	struct msghdr message = {
		.msg_iov = pieces,
		.msg_iovlen = file ? 1 : 2,
		.msg_control = control.bytes,
		.msg_controllen = CMSG_SPACE((size_t)fds * sizeof(int)),
	};
	struct cmsghdr *passed = CMSG_FIRSTHDR(&message);
	passed->cmsg_level = SOL_SOCKET;
	passed->cmsg_type = SCM_RIGHTS;
	passed->cmsg_len = CMSG_LEN((size_t)fds * sizeof(int));
	memcpy(CMSG_DATA(passed), pipes->theirs, (size_t)pipes->count * sizeof(int));
	if (file) memcpy(CMSG_DATA(passed) + (size_t)pipes->count * sizeof(int), &pipes->body, sizeof(int));
	return sendmsg(agent->spawner.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

static void adopt_pipes(struct agent *agent, struct task *task, struct pipes *pipes) {
	task->report = pipes->ours[PIPE_REPORT];
	task->streams[STDOUT].fd = pipes->ours[PIPE_OUT];
	task->streams[STDERR].fd = pipes->ours[PIPE_ERR];
	agent_watch(agent, task->report, EPOLLIN, ON_REPORT, task);
	agent_watch(agent, task->streams[STDOUT].fd, EPOLLIN | EPOLLET, ON_STDOUT, task);
	agent_watch(agent, task->streams[STDERR].fd, EPOLLIN | EPOLLET, ON_STDERR, task);
	if (pipes->count > PIPE_INPUT) {
		task->input.fd = pipes->ours[PIPE_INPUT];
		agent_watch(agent, task->input.fd, EPOLLOUT | EPOLLET, ON_INPUT, task);
	}
	if (pipes->count > PIPE_MARKER) task->input.marker = pipes->ours[PIPE_MARKER];
	for (int i = 0; i < pipes->count; i++) close(pipes->theirs[i]);
	close_fd(&pipes->body);
}

/* False: the spawner takes no more now. */
static bool hand_over(struct agent *agent, struct task *task) {
	int count = task->input.absent ? PIPE_INPUT : task->action == ACTION_WRITE ? PIPE_MARKER + 1 : PIPE_INPUT + 1;
	struct pipes pipes;
	if (!open_pipes(&pipes, count)) {
		task_fail(agent, task, STAGE_LIMIT, errno);
		return true;
	}
	if (!open_body(&pipes, task)) {
		int error = errno;
		close_pipes(&pipes);
		task_fail(agent, task, STAGE_LIMIT, error);
		return true;
	}
	if (send_spawn(agent, task, &pipes)) {
		link_leave(&task->waiting);
		task->began_us = agent->now_us;
		adopt_pipes(agent, task, &pipes);
		agent_timer(agent, task->began_us + STUCK_US);
		return true;
	}
	int error = errno;
	close_pipes(&pipes);
	agent->spawner.writable = false;
	/* A dead spawner is noticed when it is reaped; a full one says when it has room. */
	if (error == EAGAIN || error == EPIPE || error == ECONNRESET || error == ENOTCONN) return false;
	agent->spawner.writable = true;
	task_fail(agent, task, STAGE_LIMIT, error);
	return true;
}

void spawner_feed(struct agent *agent) {
	while (agent->spawner.writable && !list_empty(&agent->waiting)) {
		if (!hand_over(agent, OWNER_OF(agent->waiting.next, struct task, waiting))) return;
	}
}

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
	if (pid == 0) {
		/* What passed through them is nobody else's. */
		agent_drop_buffers(agent);
		spawner_main(&agent->options, pair[1]);
	}
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

/* False: it has said nothing more. A descriptor that comes with it is the listener of its filter. */
static bool hear(int spawner, struct report *report, int *listener) {
	struct iovec piece = {report, sizeof *report};
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct msghdr message = {
		.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
	*listener = -1;
	if (recvmsg(spawner, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *report) return false;
	struct cmsghdr *passed = CMSG_FIRSTHDR(&message);
	if (passed != NULL && passed->cmsg_type == SCM_RIGHTS) memcpy(listener, CMSG_DATA(passed), sizeof *listener);
	return true;
}

/* What a spawner says: who hears of its filter, or that it could not confine itself, which fails every start that waits for it. */
void spawner_event(struct agent *agent) {
	struct report report;
	int listener;
	while (agent->spawner.fd >= 0 && hear(agent->spawner.fd, &report, &listener)) {
		if (listener >= 0) notices_add(agent, listener);
		if (report.stage == SAYS_LISTENER) continue;
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

/* Both ends of what a start passes, -1 where there is none. */
struct ends {
	int ours[PASSED_LIMIT], theirs[PASSED_LIMIT];
};

static void close_ends(int ends[PASSED_LIMIT]) {
	for (int i = 0; i < PASSED_LIMIT; i++) close_fd(&ends[i]);
}

static int open_pipe(struct ends *ends, enum passed which) {
	int pair[2];
	if (pipe2(pair, O_CLOEXEC) != 0) return errno;
	bool inward = which < PASSED_INPUT;
	ends->ours[which] = inward ? pair[0] : pair[1];
	ends->theirs[which] = inward ? pair[1] : pair[0];
	/* The flag is of one end: the command's stays blocking. */
	fcntl(ends->ours[which], F_SETFL, O_NONBLOCK);
	return 0;
}

/* Reading and writing wait for different events, and a descriptor is watched once: the input has one of its own. */
static int open_terminal(struct ends *ends, const struct task *task) {
	int error = terminal_open(task->terminal, &ends->ours[PASSED_OUT], &ends->theirs[PASSED_OUT]);
	if (error != 0 || task->input.absent) return error;
	ends->ours[PASSED_INPUT] = fcntl(ends->ours[PASSED_OUT], F_DUPFD_CLOEXEC, 0);
	return ends->ours[PASSED_INPUT] < 0 ? errno : 0;
}

static int open_session(const struct agent *agent, struct ends *ends) {
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return errno;
	ends->ours[PASSED_CONTROL] = pair[0];
	ends->theirs[PASSED_CONTROL] = pair[1];
	fcntl(pair[0], F_SETFL, O_NONBLOCK);
	ends->theirs[PASSED_SHELL] = fcntl(agent->options.shell, F_DUPFD_CLOEXEC, 0);
	return ends->theirs[PASSED_SHELL] < 0 ? errno : 0;
}

static int open_streams(struct ends *ends, const struct task *task) {
	if (task->terminal.rows != 0) return open_terminal(ends, task);
	int error = open_pipe(ends, PASSED_OUT);
	if (error == 0) error = open_pipe(ends, PASSED_ERR);
	if (error == 0 && !task->input.absent) error = open_pipe(ends, PASSED_INPUT);
	if (error == 0 && !task->input.absent && task->action == ACTION_WRITE) error = open_pipe(ends, PASSED_MARKER);
	return error;
}

static int open_body(struct ends *ends, const struct task *task) {
	if (task->body_size <= INLINE_BODY) return 0;
	int file = ends->theirs[PASSED_FILE] = memfd_create("start", MFD_CLOEXEC);
	if (file < 0) return errno;
	ssize_t wrote = write(file, task->body, task->body_size);
	return wrote == (ssize_t)task->body_size ? 0 : wrote < 0 ? errno : ENOMEM;
}

static int open_ends(const struct agent *agent, struct ends *ends, const struct task *task) {
	for (int i = 0; i < PASSED_LIMIT; i++) ends->ours[i] = ends->theirs[i] = -1;
	int error = open_pipe(ends, PASSED_REPORT);
	if (error == 0) error = open_streams(ends, task);
	if (error == 0 && task->action == ACTION_SESSION) error = open_session(agent, ends);
	if (error == 0) error = open_body(ends, task);
	if (error != 0) {
		close_ends(ends->ours);
		close_ends(ends->theirs);
	}
	return error;
}

static bool send_spawn(struct agent *agent, const struct task *task, const int theirs[PASSED_LIMIT]) {
	struct spawn_message head = {.body_size = task->body_size};
	int passing[PASSED_LIMIT];
	size_t count = 0;
	for (int i = 0; i < PASSED_LIMIT; i++) {
		if (theirs[i] < 0) continue;
		passing[count++] = theirs[i];
		head.passed |= 1u << i;
	}
	struct iovec pieces[2] = {{&head, sizeof head}, {task->body, task->body_size}};
	union {
		char bytes[CMSG_SPACE(PASSED_LIMIT * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct msghdr message = {
		.msg_iov = pieces,
		.msg_iovlen = theirs[PASSED_FILE] >= 0 ? 1 : 2,
		.msg_control = control.bytes,
		.msg_controllen = CMSG_SPACE(count * sizeof(int)),
	};
	struct cmsghdr *passed = CMSG_FIRSTHDR(&message);
	passed->cmsg_level = SOL_SOCKET;
	passed->cmsg_type = SCM_RIGHTS;
	passed->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(passed), passing, count * sizeof(int));
	return sendmsg(agent->spawner.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

static void adopt_ends(struct agent *agent, struct task *task, const int ours[PASSED_LIMIT]) {
	bool terminal = task->terminal.rows != 0;
	task->report = ours[PASSED_REPORT];
	agent_watch(agent, task->report, EPOLLIN, ON_REPORT, task);
	for (int i = 0; i < STREAMS; i++) {
		struct stream *stream = &task->streams[i];
		stream->fd = ours[PASSED_OUT + i];
		stream->terminal = terminal;
		/* A terminal has no second output. */
		stream->ended = stream->fd < 0;
		if (stream->fd >= 0) agent_watch(agent, stream->fd, EPOLLIN | EPOLLET, (enum source)(ON_STDOUT + i), task);
	}
	task->input.fd = ours[PASSED_INPUT];
	task->input.marker = ours[PASSED_MARKER];
	task->input.terminal = terminal;
	if (task->input.fd >= 0) agent_watch(agent, task->input.fd, EPOLLOUT | EPOLLET, ON_INPUT, task);
}

/* False: the spawner takes no more now. */
static bool hand_over(struct agent *agent, struct task *task) {
	struct ends ends;
	int error = open_ends(agent, &ends, task);
	if (error == 0 && task->action == ACTION_SESSION && !session_open(agent, task, ends.ours[PASSED_CONTROL])) {
		close_ends(ends.ours);
		close_ends(ends.theirs);
		error = ENOMEM;
	}
	if (error != 0) {
		task_fail(agent, task, STAGE_LIMIT, error);
		return true;
	}
	bool sent = send_spawn(agent, task, ends.theirs);
	error = errno;
	close_ends(ends.theirs);
	if (sent) {
		link_leave(&task->waiting);
		task->began_us = agent->now_us;
		adopt_ends(agent, task, ends.ours);
		agent_timer(agent, task->began_us + STUCK_US);
		return true;
	}
	/* The socket of a session is the session's, and goes with it. */
	if (task->shell != NULL) ends.ours[PASSED_CONTROL] = -1;
	session_release(task);
	close_ends(ends.ours);
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

/* Lines of a session: tasks without a process of their own. One at a time is with the shell; the others wait in order. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "session.h"
#include "tree.h"

/* How long a shell has to come back from a line whose time is over, and how often it is told meanwhile. */
#define GRACE_US 2000000u
#define TELL_US 20000u

static int open_text(const char *text) {
	int fd = memfd_create("line", MFD_CLOEXEC);
	size_t length = strlen(text);
	if (fd < 0) return -1;
	for (size_t at = 0; at < length;) {
		ssize_t wrote = write(fd, text + at, length - at);
		if (wrote <= 0) {
			close(fd);
			return -1;
		}
		at += (size_t)wrote;
	}
	return fd;
}

/* Our end is watched and never blocks, the other one waits for the shell. False with errno. */
static bool open_line_pipe(struct agent *agent, struct task *task, int *ours, int *theirs, enum source source) {
	int pair[2];
	if (pipe2(pair, O_CLOEXEC) != 0) return false;
	bool inward = source != ON_INPUT;
	*ours = inward ? pair[0] : pair[1];
	*theirs = inward ? pair[1] : pair[0];
	fcntl(*ours, F_SETFL, O_NONBLOCK);
	/* The session's user opens it anew. Nobody has a path to it but who may look into the runner. */
	fchmod(*theirs, 0666);
	agent_watch(agent, *ours, (inward ? EPOLLIN : EPOLLOUT) | EPOLLET, source, task);
	return true;
}

static bool open_ends(struct agent *agent, struct task *task, const char *text) {
	int *ends = task->line_ends;
	ends[LINE_TEXT] = open_text(text);
	if (ends[LINE_TEXT] < 0) return false;
	if (!open_line_pipe(agent, task, &task->streams[STDOUT].fd, &ends[LINE_OUT], ON_STDOUT)) return false;
	if (!open_line_pipe(agent, task, &task->streams[STDERR].fd, &ends[LINE_ERR], ON_STDERR)) return false;
	return task->input.absent || open_line_pipe(agent, task, &task->input.fd, &ends[LINE_INPUT], ON_INPUT);
}

static void close_ends(struct agent *agent, struct task *task) {
	agent->waiting_bytes -= task->line_size;
	task->line_size = 0;
	for (int i = 0; i < LINE_ENDS; i++) close_fd(&task->line_ends[i]);
}

uint8_t line_accept(struct agent *agent, struct task *task, const struct start *start) {
	struct task *owner = task_find(agent, start->session);
	bool live = owner != NULL && owner->action == ACTION_SESSION && owner->state == TASK_RUNNING && owner->shell != NULL;
	if (!live || owner->shell->over || owner->shell->ending) {
		errno = ESRCH;
		return STAGE_SESSION;
	}
	size_t length = strlen(start->line);
	if (agent->waiting_bytes + length > WAITING_LIMIT) {
		errno = ENOMEM;
		return STAGE_LIMIT;
	}
	if (!open_ends(agent, task, start->line)) return STAGE_LIMIT;
	task->line_size = (uint32_t)length;
	agent->waiting_bytes += length;
	task->shell = owner->shell;
	task_begun(agent, task, owner->shell->shell);
	list_append(&owner->shell->lines, &task->queued);
	line_advance(agent, owner->shell);
	return 0;
}

/* What runs already when a line begins is not the line's. */
static void remember_older(struct session *session) {
	size_t count = tree_children(session->task->pid, session->older, OLDER_LIMIT);
	count += tree_children(session->shell, session->older + count, OLDER_LIMIT - count);
	/* The shell is a child of the runner, and not one of those. */
	session->older_count = 0;
	for (size_t i = 0; i < count; i++) {
		if (session->older[i] != session->shell) session->older[session->older_count++] = session->older[i];
	}
}

static bool give(struct session *session, const struct task *line) {
	struct line_message head = {.sequence = ++session->sequence};
	int passing[LINE_ENDS];
	size_t count = 0;
	for (int i = 0; i < LINE_ENDS; i++) {
		if (line->line_ends[i] < 0) continue;
		passing[count++] = line->line_ends[i];
		head.passed |= 1u << i;
	}
	struct iovec piece = {&head, sizeof head};
	union {
		char bytes[CMSG_SPACE(LINE_ENDS * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct msghdr message = {
		.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = CMSG_SPACE(count * sizeof(int))};
	struct cmsghdr *passed = CMSG_FIRSTHDR(&message);
	passed->cmsg_level = SOL_SOCKET;
	passed->cmsg_type = SCM_RIGHTS;
	passed->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(passed), passing, count * sizeof(int));
	return sendmsg(session->runner, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

static uint64_t line_limit(const struct task *task) {
	return task->time_limit_us > 0 ? task->began_us + task->time_limit_us : NEVER;
}

void line_advance(struct agent *agent, struct session *session) {
	if (session->current != NULL || session->over || !session->open || list_empty(&session->lines)) return;
	struct task *line = OWNER_OF(session->lines.next, struct task, queued);
	link_leave(&line->queued);
	session->current = line;
	session->told_us = 0;
	session->cpu_us = tree_cpu_us(session->shell);
	remember_older(session);
	line->began_us = agent->now_us;
	line->deadline_us = line_limit(line);
	agent_timer(agent, line->deadline_us);
	/* A runner that takes nothing is dead or stopped: the one is noticed when it is reaped, the other at the line's time limit. */
	(void)give(session, line);
	close_ends(agent, line);
}

void line_release(struct agent *agent, struct task *task) {
	if (task->action != ACTION_LINE) return;
	struct session *session = task->shell;
	link_leave(&task->queued);
	close_ends(agent, task);
	task->shell = NULL;
	if (session != NULL && session->current == task) {
		session->current = NULL;
		line_advance(agent, session);
	}
}

void line_end(struct agent *agent, struct task *task, uint8_t cause, int32_t value) {
	struct session *session = task->shell;
	bool ran = session != NULL && session->current == task;
	uint64_t cpu_us = ran ? tree_cpu_us(session->shell) : 0;
	link_leave(&task->queued);
	close_ends(agent, task);
	if (ran) session->current = NULL;
	task->shell = NULL;
	uint8_t with_session = cause & CAUSE_WITH_SESSION;
	task->ending = (struct ending){
		.cause = task->timed_out ? CAUSE_TIMEOUT | with_session : cause,
		/* As of a program that its time limit killed: what the shell says of it is that it was interrupted. */
		.value = task->timed_out ? -SIGKILL : value,
		.wall_us = ran ? agent->now_us - task->began_us : 0,
		.cpu_us = ran && cpu_us > session->cpu_us ? cpu_us - session->cpu_us : 0,
	};
	task->deadline_us = NEVER;
	task_finish(agent, task);
}

/*
 * To what descends from a process of the session, but for these children and what they started. The number of those. With `tell` the shell is told
 * to give its line up when they are known: what it starts after that is spared, for a shell that was told before it had begun its line
 * would go on behind it.
 */
static size_t signal_below(const struct agent *tell, const struct session *session, pid_t root, const pid_t *but, size_t but_count, int signal) {
	struct tree tree;
	size_t count = 0;
	bool known = tree_read(&tree);
	if (tell != NULL) session_give_up(tell, session);
	if (!known) return 0;
	tree_mark(&tree, root, but, but_count);
	for (size_t i = 0; i < tree.count; i++) {
		const struct process *process = &tree.all[i];
		if (!process->inside || process->pid == session->shell || process->state == 'Z') continue;
		count++;
		kill(process->pid, signal);
	}
	tree_free(&tree);
	return count;
}

/* To what the line started and is still there. */
static size_t signal_processes(const struct agent *tell, const struct session *session, int signal) {
	return signal_below(tell, session, session->task->pid, session->older, session->older_count, signal);
}

static void tell_later(struct agent *agent, struct task *task) {
	uint64_t next = agent->now_us + TELL_US, limit = line_limit(task);
	if (next >= task->shell->told_us) next = NEVER;
	task->deadline_us = next < limit ? next : limit;
	agent_timer(agent, task->deadline_us);
}

/*
 * A shell that was told to give its line up just before it began it, or while it started a program, has done neither: it is told
 * again, and so is what it has started since. What it had started before has been told.
 */
static void tell_again(struct agent *agent, struct task *task) {
	struct session *session = task->shell;
	if (session_has_shell(agent, session)) {
		signal_below(agent, session, session->shell, session->told, session->told_count, SIGINT);
	}
	tell_later(agent, task);
}

void line_signal(struct agent *agent, struct task *task, int signal) {
	struct session *session = task->shell;
	if (session == NULL || task->state != TASK_RUNNING) return;
	if (session->current != task) {
		/* It has not begun, and now it never will. */
		if (signal == SIGKILL || signal == SIGINT || signal == SIGTERM) line_end(agent, task, CAUSE_SIGNALED, -signal);
		return;
	}
	bool interrupt = signal == SIGINT && session_has_shell(agent, session);
	if (interrupt) {
		session->told_us = agent->now_us + GRACE_US;
		session->told_count = tree_children(session->shell, session->told, OLDER_LIMIT);
	}
	/* The shell must know before the process that it waits for is gone. */
	size_t others = signal_processes(interrupt ? agent : NULL, session, signal);
	/* Where nothing else runs, the shell, or what has taken its place, is what the line runs. */
	if (!interrupt && others == 0) session_signal_shell(session, signal);
	if (interrupt && !task->timed_out) tell_later(agent, task);
}

void line_expire(struct agent *agent, struct task *task) {
	struct session *session = task->shell;
	if (session == NULL || session->current != task) return;
	if (!task->timed_out && !task->forgotten && agent->now_us < line_limit(task)) {
		tell_again(agent, task);
		return;
	}
	if (!task->timed_out) session->late_us = agent->now_us + GRACE_US;
	task->timed_out = true;
	if (agent->now_us >= session->late_us) {
		session->task->timed_out = true;
		session_end(agent, session->task);
		return;
	}
	signal_processes(agent, session, SIGKILL);
	task->deadline_us = agent->now_us + TELL_US;
	agent_timer(agent, task->deadline_us);
}

void line_forget(struct agent *agent, struct task *task) {
	struct session *session = task->shell;
	if (session == NULL || session->current != task) {
		task_free(agent, task);
		return;
	}
	/* Nobody reads what it writes any more; the shell is to come back from it as from a line whose time is over. */
	task->forgotten = true;
	line_expire(agent, task);
}

/* The agent's side of sessions: what the runner says, and the end of everything that a session started. */
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tree.h"

/* Between two looks at what is left of a session. */
#define PASS_US 2000u
/* Passes that only stop processes, so that none makes others while they are being killed. */
#define STOP_PASSES 50
/* What is heard in one turn: whoever speaks for the runner must not keep the agent from everything else. */
#define HEARD_AT_ONCE 16
/* From then on what is left waits for the kernel: it dies when that lets it. */
#define SLOW_PASS_US 50000u

bool session_open(struct agent *agent, struct task *task, int runner) {
	struct session *session = pages_map(sizeof *session);
	if (session == NULL) return false;
	session->task = task;
	session->runner = runner;
	session->shell_fd = -1;
	list_init(&session->lines);
	task->shell = session;
	agent_watch(agent, runner, EPOLLIN, ON_SESSION, task);
	return true;
}

void session_release(struct task *task) {
	if (task->action != ACTION_SESSION || task->shell == NULL) return;
	close_fd(&task->shell->runner);
	close_fd(&task->shell->shell_fd);
	pages_unmap(task->shell, sizeof *task->shell);
	task->shell = NULL;
}

static void shell_over(struct agent *agent, struct session *session, int32_t value) {
	if (session->over) return;
	session->over = true;
	struct task *task = session->task;
	task->ending.cause = task->timed_out ? CAUSE_TIMEOUT : value < 0 ? CAUSE_SIGNALED : CAUSE_EXITED;
	task->ending.value = value;
	struct task *line = session->current;
	if (line != NULL) line_end(agent, line, task->ending.cause | CAUSE_WITH_SESSION, value);
	while (!list_empty(&session->lines)) {
		line_end(agent, OWNER_OF(session->lines.next, struct task, queued), CAUSE_SESSION_ENDED, 0);
	}
	session_end(agent, task);
}

/* Only a child of the runner can be it: whoever speaks for the runner must not point at others. */
static void know_shell(struct session *session, pid_t pid) {
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0) return;
	if (tree_parent(pid) != session->task->pid) {
		close(fd);
		return;
	}
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	session->shell = pid;
	session->shell_fd = fd;
}

void session_signal_shell(const struct session *session, int signal) {
	if (session->shell_fd >= 0) syscall(SYS_pidfd_send_signal, session->shell_fd, signal, NULL, 0);
}

bool session_has_shell(const struct agent *agent, const struct session *session) {
	char path[32];
	struct stat own, now;
	snprintf(path, sizeof path, "/proc/%d/exe", session->shell);
	return fstat(agent->options.shell, &own) == 0 && stat(path, &now) == 0 && own.st_dev == now.st_dev && own.st_ino == now.st_ino;
}

void session_give_up(const struct agent *agent, const struct session *session) {
	session_signal_shell(session, session_has_shell(agent, session) ? GIVE_UP : SIGKILL);
}

static void heard(struct agent *agent, struct session *session, const struct runner_message *message) {
	struct task *line = session->current;
	switch (message->type) {
	case RUNNER_READY:
		if (session->shell == 0 && message->value > 0) know_shell(session, message->value);
		break;
	case RUNNER_DONE:
		if (message->sequence == 0) {
			session->open = true;
			line_advance(agent, session);
		}
		/* A number of an earlier line is a late one. */
		if (line == NULL || message->sequence != session->sequence || session->over) break;
		line_end(agent, line, CAUSE_EXITED, message->value & 0xff);
		line_advance(agent, session);
		break;
	case RUNNER_OVER:
		if (message->value >= -64 && message->value <= 255) shell_over(agent, session, message->value);
		break;
	default:
		break;
	}
}

void session_event(struct agent *agent, struct task *task) {
	struct session *session = task->shell;
	struct runner_message message;
	for (int i = 0; i < HEARD_AT_ONCE && session != NULL && session->runner >= 0; i++) {
		ssize_t got = recv(session->runner, &message, sizeof message, MSG_DONTWAIT);
		if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
		/* Nobody holds the other end, which would be told again and again. */
		if (got <= 0) close_fd(&session->runner);
		if (got == sizeof message) heard(agent, session, &message);
		session = task->shell;
	}
}

/* Kills what the runner left in the shell's own process session: its children are the agent's now, like any orphan. */
static void kill_orphans(pid_t shell) {
	struct tree tree;
	if (shell <= 0 || !tree_read(&tree)) return;
	for (size_t i = 0; i < tree.count; i++) {
		if (tree.all[i].session == shell) kill(tree.all[i].pid, SIGKILL);
	}
	tree_free(&tree);
}

void session_gone(struct agent *agent, struct task *task) {
	struct session *session = task->shell;
	if (session == NULL) return;
	session_event(agent, task);
	/* Somebody inside has killed the runner. */
	if (!session->over) {
		session->ending = true;
		shell_over(agent, session, -SIGKILL);
	}
	kill_orphans(session->shell);
}

/* True when nothing is left but the runner. */
static bool kill_pass(struct session *session) {
	struct tree tree;
	bool empty = true, moving = false;
	if (!tree_read(&tree)) return false;
	tree_mark(&tree, session->task->pid, NULL, 0);
	for (size_t i = 0; i < tree.count; i++) {
		const struct process *process = &tree.all[i];
		if (!process->inside || process->state == 'Z' || process->state == 'X') continue;
		empty = false;
		if (process->state == 'T' || session->passes >= STOP_PASSES) continue;
		moving = true;
		kill(process->pid, SIGSTOP);
	}
	for (size_t i = 0; i < tree.count && !moving; i++) {
		if (tree.all[i].inside) kill(tree.all[i].pid, SIGKILL);
	}
	tree_free(&tree);
	session->passes++;
	return empty;
}

void session_expire(struct agent *agent, struct task *task) {
	struct session *session = task->shell;
	if (session == NULL || !session->ending || task->reaped) return;
	if (kill_pass(session)) {
		kill(task->pid, SIGKILL);
		return;
	}
	task->deadline_us = agent->now_us + (session->passes < STOP_PASSES ? PASS_US : SLOW_PASS_US);
	agent_timer(agent, task->deadline_us);
}

void session_end(struct agent *agent, struct task *task) {
	struct session *session = task->shell;
	if (session == NULL || session->ending || task->state != TASK_RUNNING) return;
	session->ending = true;
	/* The first pass at once: most sessions have nothing but their shell. */
	session_expire(agent, task);
}

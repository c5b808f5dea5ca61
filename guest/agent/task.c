/* The table of tasks: starts, ends, time limits, forgetting. */
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "agent.h"
#include "bytes.h"
#include "start.h"

/* Starts that die with their spawner, or before they reported, are carried out again this often. */
#define START_TRIES 3
/* A write that is dropped removes its temporary file; then it is killed. */
#define WRITE_GRACE_US 2000000u
/* Beyond this a time limit would overflow the clock. */
#define TIME_LIMIT_MS (1ull << 50)

struct task *task_find(struct agent *agent, uint32_t number) {
	for (uint32_t slot = 0; slot < agent->slots; slot++) {
		struct task *task = &agent->tasks[slot];
		if (agent->numbers[slot] == number && task->state != TASK_FREE && !task->forgotten) return task;
	}
	return NULL;
}

static struct task *allocate(struct agent *agent) {
	uint32_t slot = 0;
	while (slot < agent->slots && agent->tasks[slot].state != TASK_FREE) slot++;
	if (slot == TASK_LIMIT) return NULL;
	if (slot == agent->slots) agent->slots++;
	struct task *task = &agent->tasks[slot];
	uint32_t generation = task->generation + 1;
	*task = (struct task){.state = TASK_WAITING, .generation = generation, .report = -1};
	task->streams[STDOUT].fd = task->streams[STDERR].fd = task->input.fd = task->input.marker = -1;
	for (int i = 0; i < LINE_ENDS; i++) task->line_ends[i] = -1;
	return task;
}

void task_due(struct agent *agent, struct task *task) { list_append(&agent->due, &task->due); }

static void release_body(struct agent *agent, struct task *task) {
	if (task->body == NULL) return;
	pages_unmap(task->body, task->body_size);
	agent->waiting_bytes -= task->body_size;
	task->body = NULL;
}

static void leave_waiting(struct agent *agent, struct task *task) {
	if (task->state == TASK_WAITING) agent->starting--;
	link_leave(&task->waiting);
	close_fd(&task->report);
	release_body(agent, task);
}

static void close_streams(struct task *task) {
	for (int i = 0; i < STREAMS; i++) stream_close(&task->streams[i]);
	input_close(&task->input);
}

void task_free(struct agent *agent, struct task *task) {
	uint32_t slot = (uint32_t)(task - agent->tasks);
	line_release(agent, task);
	session_release(task);
	leave_waiting(agent, task);
	close_streams(task);
	link_leave(&task->due);
	agent->pids[slot] = 0;
	task->state = TASK_FREE;
	while (agent->slots > 0 && agent->tasks[agent->slots - 1].state == TASK_FREE) agent->slots--;
}

void start_failed(struct agent *agent, uint32_t number, uint8_t stage, int32_t error) {
	uint8_t *at = connection_frame(agent, FRAME_START_FAILED, stage, number, 4);
	if (at != NULL) put32(at, (uint32_t)error);
}

void task_fail(struct agent *agent, struct task *task, uint8_t stage, int32_t error) {
	if (task->forgotten || task->session != agent->session) {
		task_free(agent, task);
		return;
	}
	line_release(agent, task);
	session_release(task);
	leave_waiting(agent, task);
	close_streams(task);
	agent->pids[task - agent->tasks] = 0;
	task->state = TASK_FAILED;
	task->failed_stage = stage;
	task->failed_errno = error;
	task_due(agent, task);
}

static bool keep_body(struct agent *agent, struct task *task, const struct frame *frame) {
	if (agent->waiting_bytes + frame->size > WAITING_LIMIT) return false;
	task->body = pages_map(frame->size);
	if (task->body == NULL) return false;
	memcpy(task->body, frame->payload, frame->size);
	task->body_size = frame->size;
	agent->waiting_bytes += frame->size;
	return true;
}

/* What needs no process is begun at once. */
static void start_direct(struct agent *agent, struct task *task) {
	uint32_t count = 0;
	for (uint32_t slot = 0; slot < agent->slots; slot++) {
		count += agent->tasks[slot].state != TASK_FREE && start_is_direct(agent->tasks[slot].action);
	}
	task->state = TASK_CONNECTING;
	task->began_us = agent->now_us;
	task->deadline_us = task->time_limit_us > 0 ? task->began_us + task->time_limit_us : NEVER;
	agent_timer(agent, task->deadline_us);
	if (count > DIRECT_LIMIT) {
		task_fail(agent, task, STAGE_LIMIT, EAGAIN);
	} else if (task->action == ACTION_CONNECT) {
		port_connect(agent, task);
	} else {
		listeners_start(agent, task);
	}
}

void task_start(struct agent *agent, const struct frame *frame) {
	struct start start;
	if (start_parse(frame->payload, frame->size, &start) != 0) {
		start_failed(agent, frame->task, STAGE_REQUEST, EINVAL);
		return;
	}
	if (task_find(agent, frame->task) != NULL) {
		start_failed(agent, frame->task, STAGE_DUPLICATE, EEXIST);
		return;
	}
	struct task *task = allocate(agent);
	if (task == NULL) {
		start_failed(agent, frame->task, STAGE_LIMIT, EAGAIN);
		return;
	}
	agent->numbers[task - agent->tasks] = frame->task;
	task->number = frame->task;
	task->session = agent->session;
	task->action = start.action;
	task->input.absent = !start.input;
	task->terminal = start.terminal;
	uint64_t limit_ms = start.time_limit_ms < TIME_LIMIT_MS ? start.time_limit_ms : TIME_LIMIT_MS;
	task->time_limit_us = limit_ms * 1000u;
	for (int i = 0; i < STREAMS; i++) task->streams[i].resumed = true;
	if (start_is_direct(start.action)) {
		task->port = start.port;
		start_direct(agent, task);
		return;
	}
	agent->starting++;
	if (start.action == ACTION_LINE) {
		uint8_t stage = line_accept(agent, task, &start);
		if (stage != 0) task_fail(agent, task, stage, errno);
		return;
	}
	if (start.action == ACTION_SESSION && agent->options.shell == 0) {
		task_fail(agent, task, STAGE_SESSION, ENOENT);
		return;
	}
	if (!keep_body(agent, task, frame)) {
		task_fail(agent, task, STAGE_LIMIT, ENOMEM);
		return;
	}
	list_append(&agent->waiting, &task->waiting);
}

void task_begun(struct agent *agent, struct task *task, pid_t pid) {
	leave_waiting(agent, task);
	task->state = TASK_RUNNING;
	task->pid = pid;
	/* The shell's pid is the session's to signal. */
	task->reaped = true;
	task->began_us = agent->now_us;
	task->deadline_us = NEVER;
	task->started_due = true;
	task_due(agent, task);
}

/* Never after the leader was reaped: its number may belong to somebody else then. */
static void kill_task(const struct task *task, int signal, bool group) {
	if (task->pid > 0 && !task->reaped) kill(group ? -task->pid : task->pid, signal);
}

void task_finish(struct agent *agent, struct task *task) {
	if (task->forgotten) {
		task_free(agent, task);
		return;
	}
	task->state = TASK_ENDED;
	for (int i = 0; i < STREAMS; i++) stream_leader_ended(agent, &task->streams[i]);
	task_due(agent, task);
}

static void started(struct agent *agent, struct task *task) {
	leave_waiting(agent, task);
	task->state = TASK_RUNNING;
	/* Its runner has said which process the shell is before it let go of the report. */
	if (task->action == ACTION_SESSION) session_event(agent, task);
	task->deadline_us = task->time_limit_us > 0 ? task->began_us + task->time_limit_us : NEVER;
	agent_timer(agent, task->deadline_us);
	task->started_due = !task->forgotten && task->session == agent->session;
	if (task->reaped) {
		task_finish(agent, task);
	} else if (task->forgotten) {
		kill_task(task, SIGKILL, true);
	} else {
		task_due(agent, task);
	}
}

/* Nothing of the start was carried out: its spawner died, or the child before it could say who it is. */
static void again(struct agent *agent, struct task *task) {
	close_fd(&task->report);
	close_streams(task);
	session_release(task);
	for (int i = 0; i < STREAMS; i++) task->streams[i].resumed = task->session == agent->session;
	if (task->forgotten || ++task->tries >= START_TRIES) {
		task_fail(agent, task, STAGE_SPAWN, EAGAIN);
		return;
	}
	list_append(&agent->waiting, &task->waiting);
}

void task_reported(struct agent *agent, struct task *task) {
	uint8_t message[8];
	while (task->report >= 0) {
		ssize_t got = read(task->report, message, sizeof message);
		if (got < 0) return;
		if (got == 0) break;
		if (got != sizeof message) continue;
		if (message[0] != 0) {
			task->failed_stage = message[0];
			task->failed_errno = (int32_t)get32(message + 4);
			continue;
		}
		task->pid = (pid_t)get32(message + 4);
		agent->pids[task - agent->tasks] = task->pid;
		if (task->forgotten) kill_task(task, SIGKILL, true);
	}
	if (task->failed_stage != 0) {
		task_fail(agent, task, task->failed_stage, task->failed_errno);
	} else if (task->pid == 0) {
		again(agent, task);
	} else {
		started(agent, task);
	}
}

void task_stuck(struct agent *agent, struct task *task) {
	if (task->pid == 0) {
		/* A child that wakes up later finds nobody to report to, and ends. */
		again(agent, task);
		return;
	}
	kill_task(task, SIGKILL, true);
	started(agent, task);
}

void task_signal(struct agent *agent, struct task *task, int signal, bool group) {
	if (signal < 1 || signal > SIGRTMAX) return;
	if (task->action == ACTION_LINE) {
		line_signal(agent, task, signal);
	} else if (task->action == ACTION_SESSION) {
		/* Its processes are many, and all of them are meant. */
		session_end(agent, task);
	} else {
		kill_task(task, signal, group);
	}
}

void task_forget(struct agent *agent, struct task *task) {
	if (task->state == TASK_ENDED || task->state == TASK_FAILED || (task->state == TASK_WAITING && task->report < 0)) {
		task_free(agent, task);
		return;
	}
	if (start_is_direct(task->action)) {
		port_abort(task);
		task_free(agent, task);
		return;
	}
	if (task->action == ACTION_LINE) {
		line_forget(agent, task);
		return;
	}
	task->forgotten = true;
	link_leave(&task->due);
	close_streams(task);
	if (task->action == ACTION_SESSION && task->state == TASK_RUNNING) {
		session_end(agent, task);
		return;
	}
	bool writes = task->action == ACTION_WRITE || task->action == ACTION_WRITE_TREE;
	bool graceful = writes && task->state == TASK_RUNNING;
	if (!graceful) kill_task(task, SIGKILL, true);
	task->deadline_us = graceful ? agent->now_us + WRITE_GRACE_US : NEVER;
	agent_timer(agent, task->deadline_us);
}

void tasks_expire(struct agent *agent) {
	for (uint32_t slot = 0; slot < agent->slots; slot++) {
		struct task *task = &agent->tasks[slot];
		bool live = task->state == TASK_RUNNING || task->state == TASK_CONNECTING;
		if (!live || task->deadline_us == NEVER) continue;
		if (task->deadline_us > agent->now_us) {
			agent_timer(agent, task->deadline_us);
			continue;
		}
		task->deadline_us = NEVER;
		if (start_is_direct(task->action)) {
			port_expired(agent, task);
			continue;
		}
		if (task->action == ACTION_LINE) {
			line_expire(agent, task);
		} else if (task->action == ACTION_SESSION) {
			session_expire(agent, task);
		} else {
			task->timed_out = true;
			kill_task(task, SIGKILL, true);
		}
	}
}

void tasks_detach(struct agent *agent) {
	for (uint32_t slot = agent->slots; slot-- > 0;) {
		struct task *task = &agent->tasks[slot];
		if (task->state == TASK_FREE || task->forgotten) continue;
		/* Bytes of a connection that were acknowledged are kept by nobody: no other edge could go on with it. */
		if (task->state == TASK_FAILED || start_is_direct(task->action)) {
			port_abort(task);
			task_free(agent, task);
			continue;
		}
		link_leave(&task->due);
		task->started_due = task->exit_sent = false;
		task->input.answer_due = false;
		for (int i = 0; i < STREAMS; i++) {
			struct stream *stream = &task->streams[i];
			stream->resumed = stream->eof_sent = false;
			stream->sent = stream->from;
		}
	}
}

/* Collecting ended children: tasks, the spawner, and the orphans of a sandbox. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"

/* Ended children collected in one turn: a storm of orphans must not keep the edge waiting. */
#define REAP_BATCH 64

static struct task *find_pid(struct agent *agent, pid_t pid) {
	for (uint32_t slot = 0; slot < agent->slots; slot++) {
		if (agent->pids[slot] == pid) return &agent->tasks[slot];
	}
	return NULL;
}

static void ended(struct agent *agent, struct task *task, int status, const struct rusage *usage) {
	bool exited = WIFEXITED(status);
	bool timeout = task->timed_out && !exited && WTERMSIG(status) == SIGKILL;
	agent->pids[task - agent->tasks] = 0;
	task->reaped = true;
	if (task->action == ACTION_SESSION) session_gone(agent, task);
	struct ending shell = task->ending;
	task->ending = (struct ending){
		.cause = timeout ? CAUSE_TIMEOUT : exited ? CAUSE_EXITED : CAUSE_SIGNALED,
		.value = exited ? WEXITSTATUS(status) : -WTERMSIG(status),
		.wall_us = agent->now_us - task->began_us,
		.cpu_us = (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000u +
			  (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec),
		.max_rss_kib = (uint64_t)usage->ru_maxrss,
	};
	if (task->action == ACTION_SESSION) {
		/* Of its shell, that is; what it took is what everything took that the runner has reaped. */
		task->ending.cause = shell.cause;
		task->ending.value = shell.value;
	}
	/* One that is still waiting has not closed its report everywhere: the spawner holds it for a moment longer. */
	if (task->state == TASK_RUNNING) task_finish(agent, task);
}

/* Every task that has not started may have reported meanwhile: after this an unknown pid is an orphan for certain. */
static void hear_reports(struct agent *agent) {
	for (uint32_t slot = 0; agent->starting > 0 && slot < agent->slots; slot++) {
		struct task *task = &agent->tasks[slot];
		if (task->state == TASK_WAITING && task->report >= 0) task_reported(agent, task);
	}
}

void tasks_reap(struct agent *agent) {
	agent->children_due = false;
	siginfo_t stopped = {0};
	/* A spawner that is stopped, by root of the sandbox, is replaced like a dead one. */
	if (agent->spawner.pid > 0 && waitid(P_PID, (id_t)agent->spawner.pid, &stopped, WSTOPPED | WNOHANG) == 0 &&
	    stopped.si_pid > 0) {
		kill(agent->spawner.pid, SIGKILL);
	}
	for (int i = 0; i < REAP_BATCH; i++) {
		siginfo_t info = {0};
		/* A look first: while the zombie is there its pid means this child and no other. */
		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
		pid_t pid = info.si_pid;
		struct task *task = find_pid(agent, pid);
		if (task == NULL && agent->starting > 0) {
			hear_reports(agent);
			task = find_pid(agent, pid);
		}
		struct rusage usage = {0};
		int status = 0;
		if (wait4(pid, &status, WNOHANG, &usage) != pid) return;
		if (pid == agent->spawner.pid) {
			spawner_gone(agent);
		} else if (task != NULL) {
			ended(agent, task, status, &usage);
		}
	}
	agent->children_due = true;
}

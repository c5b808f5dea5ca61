#include "pool.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker.h"

struct worker {
	/* 0: none. */
	pid_t pid;
	/* The cradle's end of a socket pair; a message is the number of a job. -1: the worker is on its way out. */
	int orders;
	int job;
	/* The blank it keeps; `uid_base` 0: none. */
	uint32_t uid_base;
	pid_t blank;
	/* To be dismissed when its job is done. */
	bool leaving;
};

struct pool {
	const struct cradle *cradle;
	struct job *jobs;
	struct worker workers[MAX_JOBS];
};

struct pool *pool_new(const struct cradle *cradle, struct job *jobs)
{
	struct pool *pool = calloc(1, sizeof *pool);

	if (pool == NULL)
		return NULL;
	pool->cradle = cradle;
	pool->jobs = jobs;
	return pool;
}

/* Its place stays taken until the cradle has seen its death. */
static void dismiss(struct worker *worker)
{
	if (worker->orders >= 0)
		close(worker->orders);
	worker->orders = -1;
	worker->job = NO_JOB;
	worker->uid_base = 0;
}

void pool_free(struct pool *pool)
{
	for (int at = 0; at < MAX_JOBS; at++)
		if (pool->workers[at].pid != 0)
			dismiss(&pool->workers[at]);
	/* Who sees the cradle's end may count on theirs. */
	for (int at = 0; at < MAX_JOBS; at++)
		if (pool->workers[at].pid != 0)
			waitpid(pool->workers[at].pid, NULL, 0);
	free(pool);
}

static bool is_idle(const struct worker *worker)
{
	return worker->pid != 0 && worker->orders >= 0 && worker->job == NO_JOB;
}

static void carry_out(const struct cradle *cradle, struct job *job, struct blank *kept)
{
	switch (job->task) {
	case TASK_CREATE:
		worker_create(cradle, &job->request, &job->progress, kept);
		break;
	case TASK_BLANK:
		worker_make_blank(cradle, &job->request, &job->progress, kept);
		break;
	case TASK_UNDO:
		worker_undo(cradle, &job->request, &job->progress);
		break;
	}
}

/* The life of a worker. It ends with the cradle, which is when nobody holds the other end of `orders`. */
static _Noreturn void work(const struct pool *pool, int orders)
{
	static struct blank kept;
	uint8_t number;

	/* Copies of the ends of other workers would keep those alive. */
	for (int at = 0; at < MAX_JOBS; at++)
		if (pool->workers[at].pid != 0 && pool->workers[at].orders >= 0)
			close(pool->workers[at].orders);
	while (recv(orders, &number, 1, 0) == 1)
		carry_out(pool->cradle, &pool->jobs[number], &kept);
	blank_drop(&kept);
	_exit(0);
}

static int hire(struct pool *pool, struct worker *worker)
{
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -1;
	pid = fork();
	if (pid == 0) {
		close(pair[0]);
		work(pool, pair[1]);
	}
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return -1;
	}
	*worker = (struct worker){ .pid = pid, .orders = pair[0], .job = NO_JOB };
	return 0;
}

/*
 * For a create, whoever keeps a blank of its ids; else an idle worker without a blank, a free place for one, or an idle worker
 * whose blank is for another create. There are as many places as jobs.
 */
static struct worker *choose(struct pool *pool, const struct job *job)
{
	struct worker *bare = NULL, *vacant = NULL, *other = NULL;

	for (struct worker *worker = pool->workers; worker < pool->workers + MAX_JOBS; worker++) {
		struct worker **kind = worker->uid_base == 0 ? &bare : &other;

		if (worker->pid == 0)
			kind = &vacant;
		else if (!is_idle(worker))
			continue;
		else if (job->task == TASK_CREATE && worker->uid_base == job->request.uid_base)
			return worker;
		if (*kind == NULL)
			*kind = worker;
	}
	if (bare != NULL || vacant != NULL)
		return bare != NULL ? bare : vacant;
	return job->task == TASK_BLANK ? NULL : other;
}

static void assign(struct worker *worker, int number, struct job *job)
{
	worker->job = number;
	if (job->task == TASK_UNDO)
		return;
	/* Its death is that of the create from here on. */
	job->progress.child = worker->uid_base == job->request.uid_base ? worker->blank : 0;
}

int pool_start(struct pool *pool, int job)
{
	uint8_t number = (uint8_t)job;

	/* An idle worker may have died unseen: then the next one. */
	for (int attempt = 0; attempt <= MAX_JOBS; attempt++) {
		struct worker *worker = choose(pool, &pool->jobs[job]);

		if (worker == NULL) {
			errno = ECHILD;
			return NO_WORKER;
		}
		if (worker->pid == 0 && hire(pool, worker))
			return NO_WORKER;
		assign(worker, job, &pool->jobs[job]);
		if (send(worker->orders, &number, 1, MSG_NOSIGNAL) == 1)
			return (int)(worker - pool->workers);
		dismiss(worker);
	}
	return NO_WORKER;
}

void pool_release(struct pool *pool, int worker)
{
	pool->workers[worker].job = NO_JOB;
	if (pool->workers[worker].leaving)
		dismiss(&pool->workers[worker]);
}

void pool_note(struct pool *pool, int worker, uint32_t uid_base, pid_t blank)
{
	struct worker *w = &pool->workers[worker];

	if (blank == 0 && w->uid_base != uid_base)
		return;
	w->uid_base = blank == 0 ? 0 : uid_base;
	w->blank = blank;
}

void pool_drop(struct pool *pool, uint32_t uid_base)
{
	for (struct worker *worker = pool->workers; worker < pool->workers + MAX_JOBS; worker++) {
		if (worker->pid == 0 || worker->uid_base != uid_base)
			continue;
		worker->leaving = true;
		if (is_idle(worker))
			dismiss(worker);
	}
}

bool pool_bury(struct pool *pool, pid_t pid, int *job)
{
	for (struct worker *worker = pool->workers; worker < pool->workers + MAX_JOBS; worker++)
		if (worker->pid == pid) {
			*job = worker->job;
			dismiss(worker);
			worker->pid = 0;
			return true;
		}
	return false;
}

void pool_retire(struct pool *pool)
{
	for (struct worker *worker = pool->workers; worker < pool->workers + MAX_JOBS; worker++)
		if (is_idle(worker))
			dismiss(worker);
}

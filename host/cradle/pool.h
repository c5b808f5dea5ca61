#ifndef CRADLE_POOL_H
#define CRADLE_POOL_H

#include <stdint.h>

#include "cradle.h"
#include "request.h"

/* Creates under way at once, and workers. More requests wait in the socket: the sender feels it as back-pressure. */
enum { MAX_JOBS = 32, NO_WORKER = -1, NO_JOB = -1 };

/* What a worker may be asked to do. UNDO takes down what `progress` names instead of making it. */
enum task { TASK_CREATE, TASK_BLANK, TASK_UNDO };

/* One job, in memory shared between the cradle and its workers at one address: texts of the request point into `fields`. */
struct job {
	struct progress progress;
	enum task task;
	struct request request;
	uint8_t fields[MAX_FRAME];
};

/*
 * Workers are processes that stay: to fork one for every create would cost a tenth of it. They are made when needed and
 * belong to the cgroups that the cradle is in then.
 */
struct pool;

/* `jobs` has MAX_JOBS entries. NULL with errno when memory lacks. */
struct pool *pool_new(const struct cradle *cradle, struct job *jobs);
void pool_free(struct pool *pool);

/*
 * Gives a job to a worker; returns the worker, or NO_WORKER with errno. ECHILD: dead workers have every place until they are
 * collected. A create goes to the one that keeps a blank of its ids, where there is one; `progress` then names that.
 */
int pool_start(struct pool *pool, int job);

/* The worker's job is done and seen: it may get another. */
void pool_release(struct pool *pool, int worker);

/* What became of the worker's blank of these ids: `blank` is the one that it keeps now, or 0. */
void pool_note(struct pool *pool, int worker, uint32_t uid_base, pid_t blank);

/* Ends the blank of these ids, if there is one, together with its worker. */
void pool_drop(struct pool *pool, uint32_t uid_base);

/* True when the dead child `pid` was a worker; `job` is then the one it had, or NO_JOB. */
bool pool_bury(struct pool *pool, pid_t pid, int *job);

/* Ends every worker that has no job: they live in the wrong cgroups. */
void pool_retire(struct pool *pool);

#endif

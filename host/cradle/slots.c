#include "slots.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cgroups.h"
#include "pool.h"
#include "wire.h"

/* The cradle's own side of a job. */
struct slot {
	bool used;
	/* NO_WORKER: it died, or there was none yet. */
	int worker;
	/* For a worker: dead ones have every place until they are collected. */
	bool waiting;
	/* The child that was collected, 0 for none. */
	pid_t gone;
	int status;
};

struct slots {
	int link;
	unsigned used;
	/* Where the cradle itself lives, so that agents are born there: NUL-separated directories. */
	char home[MAX_FRAME];
	size_t home_length;
	struct job *jobs;
	struct pool *pool;
	struct slot slot[MAX_JOBS];
};

struct slots *slots_new(const struct cradle *cradle, int link)
{
	struct slots *slots = calloc(1, sizeof *slots);
	void *shared = mmap(NULL, MAX_JOBS * sizeof(struct job), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (slots == NULL || shared == MAP_FAILED) {
		free(slots);
		return NULL;
	}
	slots->link = link;
	slots->jobs = shared;
	slots->pool = pool_new(cradle, slots->jobs);
	if (slots->pool != NULL)
		return slots;
	slots_free(slots);
	return NULL;
}

void slots_free(struct slots *slots)
{
	if (slots->pool != NULL)
		pool_free(slots->pool);
	munmap(slots->jobs, MAX_JOBS * sizeof(struct job));
	free(slots);
}

bool slots_full(const struct slots *slots)
{
	return slots->used == MAX_JOBS;
}

bool slots_empty(const struct slots *slots)
{
	return slots->used == 0;
}

static struct job *job_of(const struct slots *slots, const struct slot *slot)
{
	return &slots->jobs[slot - slots->slot];
}

static bool child_is_gone(const struct slots *slots, const struct slot *slot)
{
	return slot->gone != 0 && slot->gone == job_of(slots, slot)->progress.child;
}

/*
 * Agents are born where their parent lives: the cradle moves once into the cgroups that agents belong to instead of moving
 * each of them, which would stop every fork of the node for a moment.
 */
static int move_home(struct slots *slots, const struct request *request, struct fault *fault)
{
	char home[MAX_FRAME];
	size_t length = 0;

	if (request->agent_cgroup_count == 0)
		return 0;
	/* They come from one frame, so together they are shorter than one. */
	for (unsigned at = 0; at < request->agent_cgroup_count; at++) {
		size_t size = strlen(request->agent_cgroups[at]) + 1;

		memcpy(home + length, request->agent_cgroups[at], size);
		length += size;
	}
	if (length == slots->home_length && memcmp(home, slots->home, length) == 0)
		return 0;
	slots->home_length = 0;
	for (unsigned at = 0; at < request->agent_cgroup_count; at++)
		if (cgroup_enter(request->agent_cgroups[at], fault))
			return -1;
	memcpy(slots->home, home, length);
	slots->home_length = length;
	pool_retire(slots->pool);
	return 0;
}

/* True when the dead process was a worker or belongs to a create under way. */
static bool note_death(struct slots *slots, pid_t pid, int status)
{
	int job;

	if (pool_bury(slots->pool, pid, &job)) {
		if (job != NO_JOB)
			slots->slot[job].worker = NO_WORKER;
		return true;
	}
	for (struct slot *slot = slots->slot; slot < slots->slot + MAX_JOBS; slot++)
		if (slot->used && job_of(slots, slot)->progress.child == pid) {
			slot->gone = pid;
			slot->status = status;
			return true;
		}
	return false;
}

static bool collect(struct slots *slots, pid_t which)
{
	int status;
	pid_t pid = waitpid(which, &status, WNOHANG);

	if (pid > 0 && !note_death(slots, pid, status))
		wire_send_exit(slots->link, pid, status);
	return pid > 0;
}

/* True when there was any. */
static bool collect_dead(struct slots *slots)
{
	bool any = false;

	while (collect(slots, -1))
		any = true;
	return any;
}

static int start(struct slots *slots, struct slot *slot, struct fault *fault)
{
	int job = (int)(slot - slots->slot);

	slot->worker = pool_start(slots->pool, job);
	/* Dead workers keep their places until they are collected. */
	if (slot->worker == NO_WORKER && collect_dead(slots))
		slot->worker = pool_start(slots->pool, job);
	return slot->worker == NO_WORKER ? fault_set(fault, "find a worker") : 0;
}

static struct slot *take(struct slots *slots, uint32_t tag)
{
	struct slot *slot = slots->slot;

	while (slot->used)
		slot++;
	memset(&job_of(slots, slot)->progress, 0, sizeof(struct progress));
	job_of(slots, slot)->progress.tag = tag;
	*slot = (struct slot){ .used = true, .worker = NO_WORKER };
	slots->used++;
	return slot;
}

static void give_back(struct slots *slots, struct slot *slot)
{
	if (slot->worker != NO_WORKER)
		pool_release(slots->pool, slot->worker);
	slot->used = false;
	slots->used--;
}

/* A dead worker keeps its place until it is collected, which is no want of room: the next death tries again. */
static void try_start(struct slots *slots, struct slot *slot)
{
	struct fault fault = { 0 };
	bool started = start(slots, slot, &fault) == 0;

	slot->waiting = !started && fault.error == ECHILD;
	if (started || slot->waiting)
		return;
	wire_send_failed(slots->link, job_of(slots, slot)->progress.tag, &fault);
	give_back(slots, slot);
}

static void begin(struct slots *slots, uint32_t tag, enum task task, const uint8_t *fields, size_t length)
{
	struct slot *slot = take(slots, tag);
	struct job *job = job_of(slots, slot);
	struct fault fault;

	job->task = task;
	memcpy(job->fields, fields, length);
	if (request_parse(job->fields, length, task == TASK_BLANK ? FOR_BLANK : FOR_CREATE, &job->request, &fault) ||
	    move_home(slots, &job->request, &fault)) {
		wire_send_failed(slots->link, tag, &fault);
		give_back(slots, slot);
		return;
	}
	try_start(slots, slot);
}

void slots_create(struct slots *slots, uint32_t tag, const uint8_t *fields, size_t length)
{
	begin(slots, tag, TASK_CREATE, fields, length);
}

void slots_blank(struct slots *slots, uint32_t tag, const uint8_t *fields, size_t length)
{
	begin(slots, tag, TASK_BLANK, fields, length);
}

void slots_drop(struct slots *slots, uint32_t uid_base)
{
	pool_drop(slots->pool, uid_base);
}

void slots_cancel(struct slots *slots, uint32_t tag)
{
	for (struct slot *slot = slots->slot; slot < slots->slot + MAX_JOBS; slot++)
		if (slot->used && job_of(slots, slot)->progress.tag == tag)
			atomic_store(&job_of(slots, slot)->progress.cancelled, true);
}

void slots_cancel_all(struct slots *slots)
{
	for (struct slot *slot = slots->slot; slot < slots->slot + MAX_JOBS; slot++)
		if (slot->used)
			atomic_store(&job_of(slots, slot)->progress.cancelled, true);
}

/* A blank that was used, or could not be, is kept no more; one that was made is, unless it is dead already. */
static void note_blank(struct slots *slots, const struct slot *slot)
{
	const struct job *job = job_of(slots, slot);
	bool kept = job->task == TASK_BLANK && job->progress.fault.error == 0 && !child_is_gone(slots, slot);

	if (slot->worker != NO_WORKER && job->task != TASK_UNDO)
		pool_note(slots->pool, slot->worker, job->request.uid_base, kept ? job->progress.child : 0);
}

/*
 * A success is told at once, a failure when its child is collected. A death of a child that no slot knows is therefore always
 * that of an agent that the peer knows.
 */
static void answer(struct slots *slots, struct slot *slot)
{
	const struct progress *progress = &job_of(slots, slot)->progress;
	bool failed = progress->fault.error != 0, gone = child_is_gone(slots, slot);

	if (failed && progress->child != 0 && !gone)
		return;
	note_blank(slots, slot);
	if (failed)
		wire_send_failed(slots->link, progress->tag, &progress->fault);
	else if (!atomic_load(&progress->told))
		wire_send_created(slots->link, progress->tag, progress->child);
	if (!failed && gone)
		wire_send_exit(slots->link, progress->child, slot->status);
	give_back(slots, slot);
}

/* Its worker died without a word (killed by hand, or the host had no memory left): another takes the create back. */
static void rescue(struct slots *slots, struct slot *slot)
{
	struct job *job = job_of(slots, slot);
	struct fault ignored;

	if (atomic_load(&job->progress.told)) {
		/* It may have died before it said so; to hear it twice does no harm. */
		wire_send_created(slots->link, job->progress.tag, job->progress.child);
		answer(slots, slot);
		return;
	}
	if (job->progress.child != 0 && !child_is_gone(slots, slot)) {
		kill(job->progress.child, SIGKILL);
		return;
	}
	errno = ECHILD;
	fault_set(&job->progress.fault, "the worker died");
	job->task = TASK_UNDO;
	/* When not even a fork is possible, the next death or bell tries again. */
	start(slots, slot, &ignored);
}

static void advance(struct slots *slots, struct slot *slot)
{
	if (atomic_load(&job_of(slots, slot)->progress.done))
		answer(slots, slot);
	else if (slot->waiting)
		try_start(slots, slot);
	else if (slot->worker == NO_WORKER)
		rescue(slots, slot);
}

void slots_answer(struct slots *slots)
{
	for (struct slot *slot = slots->slot; slot < slots->slot + MAX_JOBS; slot++)
		if (slot->used)
			advance(slots, slot);
}

void slots_collect(struct slots *slots, pid_t pid)
{
	collect(slots, pid);
	slots_answer(slots);
}

void slots_collect_all(struct slots *slots)
{
	collect_dead(slots);
	slots_answer(slots);
}

#include "slots.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cgroups.h"
#include "wire.h"
#include "worker.h"

struct slot {
	bool used;
	bool answered;
	/* The process that makes the sandbox, or that takes it down after the first one died. */
	pid_t worker;
	bool worker_gone;
	bool undoing;
	bool child_gone;
	int child_status;
	uint32_t tag;
	struct request request;
	uint8_t fields[MAX_FRAME];
};

struct slots {
	const struct cradle *cradle;
	int link;
	int bell;
	unsigned used;
	/* Where the cradle itself lives, so that agents are born there: NUL-separated directories. */
	char home[MAX_FRAME];
	size_t home_length;
	struct progress *progress;
	struct slot slot[MAX_SLOTS];
};

struct slots *slots_new(const struct cradle *cradle, int link, int bell)
{
	struct slots *slots = calloc(1, sizeof *slots);
	void *shared = mmap(NULL, MAX_SLOTS * sizeof(struct progress), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (slots == NULL || shared == MAP_FAILED) {
		free(slots);
		return NULL;
	}
	slots->cradle = cradle;
	slots->link = link;
	slots->bell = bell;
	slots->progress = shared;
	return slots;
}

void slots_free(struct slots *slots)
{
	munmap(slots->progress, MAX_SLOTS * sizeof(struct progress));
	free(slots);
}

bool slots_full(const struct slots *slots)
{
	return slots->used == MAX_SLOTS;
}

bool slots_empty(const struct slots *slots)
{
	return slots->used == 0;
}

static struct progress *progress_of(const struct slots *slots, const struct slot *slot)
{
	return &slots->progress[slot - slots->slot];
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
	return 0;
}

static void ring(int bell)
{
	eventfd_write(bell, 1);
}

static int start(struct slots *slots, struct slot *slot, struct fault *fault)
{
	struct progress *progress = progress_of(slots, slot);
	pid_t pid = fork();

	if (pid < 0)
		return fault_set(fault, "fork a worker");
	if (pid == 0) {
		if (slot->undoing) {
			worker_undo(slots->cradle, &slot->request, progress);
			atomic_store(&progress->done, true);
		} else {
			worker_create(slots->cradle, &slot->request, progress);
		}
		ring(slots->bell);
		_exit(0);
	}
	slot->worker = pid;
	slot->worker_gone = false;
	return 0;
}

static struct slot *take(struct slots *slots, uint32_t tag)
{
	struct slot *slot = slots->slot;

	while (slot->used)
		slot++;
	memset(progress_of(slots, slot), 0, sizeof(struct progress));
	memset(slot, 0, offsetof(struct slot, request));
	slot->used = true;
	slot->tag = tag;
	slots->used++;
	return slot;
}

static void give_back(struct slots *slots, struct slot *slot)
{
	slot->used = false;
	slots->used--;
}

void slots_create(struct slots *slots, uint32_t tag, const uint8_t *fields, size_t length)
{
	struct slot *slot = take(slots, tag);
	struct fault fault;

	memcpy(slot->fields, fields, length);
	if (request_parse(slot->fields, length, &slot->request, &fault) || move_home(slots, &slot->request, &fault) ||
	    start(slots, slot, &fault)) {
		wire_send_failed(slots->link, tag, &fault);
		give_back(slots, slot);
	}
}

void slots_cancel(struct slots *slots, uint32_t tag)
{
	for (struct slot *slot = slots->slot; slot < slots->slot + MAX_SLOTS; slot++)
		if (slot->used && slot->tag == tag)
			atomic_store(&progress_of(slots, slot)->cancelled, true);
}

void slots_cancel_all(struct slots *slots)
{
	for (struct slot *slot = slots->slot; slot < slots->slot + MAX_SLOTS; slot++)
		if (slot->used)
			atomic_store(&progress_of(slots, slot)->cancelled, true);
}

/* True when no process of a failed create is left. */
static bool is_clean(const struct slots *slots, const struct slot *slot)
{
	return slot->worker_gone && (progress_of(slots, slot)->child == 0 || slot->child_gone);
}

/* A success is told at once, a failure when nothing of it is left. */
static void answer(struct slots *slots, struct slot *slot)
{
	const struct progress *progress = progress_of(slots, slot);

	if (progress->fault.error == 0)
		wire_send_created(slots->link, slot->tag, progress->child);
	else if (is_clean(slots, slot))
		wire_send_failed(slots->link, slot->tag, &progress->fault);
	else
		return;
	slot->answered = true;
}

/* A slot ends with its worker, and so late that a death of an unknown child is always that of an agent the peer knows. */
static void settle(struct slots *slots, struct slot *slot)
{
	const struct progress *progress = progress_of(slots, slot);

	if (!slot->answered || !slot->worker_gone)
		return;
	if (progress->fault.error == 0 && slot->child_gone)
		wire_send_exit(slots->link, progress->child, slot->child_status);
	give_back(slots, slot);
}

/* Its worker died without a word (killed by hand, or the host had no memory left): takes its place. */
static void rescue(struct slots *slots, struct slot *slot)
{
	struct progress *progress = progress_of(slots, slot);
	struct fault fault;

	if (progress->child != 0 && !slot->child_gone) {
		kill(progress->child, SIGKILL);
		return;
	}
	errno = ECHILD;
	fault_set(&progress->fault, "the worker died");
	slot->undoing = true;
	if (start(slots, slot, &fault)) {
		/* Not even a fork is possible: do it here, at the price of a pause. */
		worker_undo(slots->cradle, &slot->request, progress);
		atomic_store(&progress->done, true);
	}
}

static void advance(struct slots *slots, struct slot *slot)
{
	const struct progress *progress = progress_of(slots, slot);

	if (slot->worker_gone && !slot->answered && !atomic_load(&progress->done))
		rescue(slots, slot);
	if (!slot->answered && atomic_load(&progress->done))
		answer(slots, slot);
	settle(slots, slot);
}

void slots_answer(struct slots *slots)
{
	for (struct slot *slot = slots->slot; slot < slots->slot + MAX_SLOTS; slot++)
		if (slot->used)
			advance(slots, slot);
}

/* True when the dead process belongs to a create under way. */
static bool note_death(struct slots *slots, pid_t pid, int status)
{
	for (struct slot *slot = slots->slot; slot < slots->slot + MAX_SLOTS; slot++) {
		if (slot->used && !slot->worker_gone && slot->worker == pid) {
			slot->worker_gone = true;
			return true;
		}
		if (slot->used && !slot->child_gone && progress_of(slots, slot)->child == pid) {
			slot->child_gone = true;
			slot->child_status = status;
			return true;
		}
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

void slots_collect(struct slots *slots, pid_t pid)
{
	collect(slots, pid);
	slots_answer(slots);
}

void slots_collect_all(struct slots *slots)
{
	while (collect(slots, -1))
		;
	slots_answer(slots);
}

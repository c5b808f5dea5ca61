#include "worker.h"

#include <errno.h>
#include <sched.h>
#include <linux/securebits.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cgroups.h"
#include "overlay.h"
#include "root.h"
#include "wire.h"

/* What a create holds while it is made. */
struct work {
	const struct cradle *cradle;
	const struct request *request;
	struct progress *progress;
	struct parts parts;
	struct blank *blank;
	/* The root, then the doors of the cgroups: as they are passed. */
	int passed[1 + MAX_CGROUPS];
	unsigned door_count;
};

static int *root_of(struct work *w)
{
	return &w->passed[0];
}

/* True when the blank can still become the sandbox; then its socket is at the sandbox's place. */
static bool reuse(struct work *w)
{
	const char *path = w->request->socket_path;

	if (w->blank->uid_base != w->request->uid_base)
		return false;
	w->progress->socket_bound = true;
	if (!blank_is_gone(w->blank) && rename(w->blank->socket_path, path) == 0) {
		w->blank->socket_path[0] = 0;
		w->progress->child = w->blank->pid;
		return true;
	}
	w->progress->socket_bound = false;
	blank_drop(w->blank);
	return false;
}

/*
 * Who the worker is to file systems, with the host's rights all the same. The upper's map has the ids of the sandbox and no other:
 * what the overlay makes there for itself, and the worker for its mounts, has to be its root's.
 */
static int act_as(uint32_t owner, struct fault *fault)
{
	/* Else the rights over files would go with the id. */
	if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP))
		return fault_set(fault, "keep the rights of root");
	setfsgid(owner);
	setfsuid(owner);
	/* Neither tells a failure; an id that nobody has changes nothing and tells who one is. */
	if ((uint32_t)setfsuid((uid_t)-1) == owner && (uint32_t)setfsgid((gid_t)-1) == owner)
		return 0;
	errno = EPERM;
	return fault_set(fault, "act as the root of the sandbox");
}

static int make_root(struct work *w, struct fault *fault)
{
	/* Where layers by path are staged. */
	if (setns(w->cradle->minimal_ns, CLONE_NEWNS))
		return fault_set(fault, "enter the minimal namespace");
	if (parts_shift(&w->parts, w->blank->user_ns, fault) || act_as(w->request->uid_base, fault))
		return -1;
	*root_of(w) = overlay_make(w->cradle->overlay_mode, &w->parts, fault);
	return *root_of(w) < 0 ? -1 : 0;
}

static int enter(const struct work *w, struct fault *fault)
{
	return setns(w->blank->process, CLONE_NEWNS) ? fault_set(fault, "enter the sandbox's mount namespace") : 0;
}

static int build(struct work *w, struct fault *fault)
{
	bool fresh;

	if (cgroups_make(w->request, w->progress, w->passed + 1, &w->door_count, fault) ||
	    check_cancelled(w->progress, fault) || parts_open(w->request, &w->parts, fault))
		return -1;
	fresh = !reuse(w);
	if (fresh && blank_make(w->cradle, w->request, w->progress, w->blank, fault))
		return -1;
	if (make_root(w, fault) || (fresh && blank_await(w->blank, w->progress, fault)) ||
	    check_cancelled(w->progress, fault))
		return -1;
	if (enter(w, fault) || root_assemble(w->request, *root_of(w), fault))
		return -1;
	return blank_fill(w->blank, w->request, w->progress, w->passed, 1 + w->door_count, fault);
}

static void take_down(const struct request *request, struct progress *progress)
{
	if (progress->socket_bound)
		unlink(request->socket_path);
	progress->socket_bound = false;
	cgroups_remove(request, progress);
}

/* Paths of a request are the host's; a worker may be anywhere, and anybody, after a create. One that cannot return is of no more use. */
static void return_to_host(const struct cradle *cradle)
{
	struct fault ignored;

	if (act_as(0, &ignored) || setns(cradle->host_ns, CLONE_NEWNS))
		_exit(1);
}

static void tell(const struct cradle *cradle, struct progress *progress)
{
	atomic_store(&progress->done, true);
	eventfd_write(cradle->bell, 1);
}

/* Straight to the peer: by way of the cradle, one more idle process would have to be woken first. */
static void tell_created(const struct cradle *cradle, struct progress *progress)
{
	atomic_store(&progress->told, true);
	wire_send_created(cradle->link, progress->tag, progress->child);
	tell(cradle, progress);
}

void worker_undo(const struct cradle *cradle, const struct request *request, struct progress *progress)
{
	take_down(request, progress);
	tell(cradle, progress);
}

static void close_all(struct work *w)
{
	if (w->parts.writable >= 0)
		close(w->parts.writable);
	for (unsigned at = 0; at < w->parts.layer_count; at++)
		close(w->parts.layers[at]);
	if (*root_of(w) >= 0)
		close(*root_of(w));
	for (unsigned at = 1; at <= w->door_count; at++)
		close(w->passed[at]);
}

/* What failed is told when all of it is gone. */
static void fail(const struct cradle *cradle, const struct request *request, struct progress *progress,
		 const struct fault *fault)
{
	take_down(request, progress);
	progress->fault = *fault;
	tell(cradle, progress);
}

void worker_create(const struct cradle *cradle, const struct request *request, struct progress *progress, struct blank *kept)
{
	struct fault fault = { 0 };
	struct blank fresh = { 0 };
	struct work work = {
		.cradle = cradle, .request = request, .progress = progress, .parts = { .writable = -1 },
		.blank = kept->uid_base == request->uid_base ? kept : &fresh, .passed = { -1 },
	};

	if (build(&work, &fault) == 0) {
		tell_created(cradle, progress);
		return_to_host(cradle);
		blank_release(work.blank);
	} else {
		return_to_host(cradle);
		blank_drop(work.blank);
		fail(cradle, request, progress, &fault);
	}
	close_all(&work);
}

void worker_make_blank(const struct cradle *cradle, const struct request *request, struct progress *progress,
		       struct blank *kept)
{
	struct fault fault = { 0 };
	int result;

	blank_drop(kept);
	result = blank_make(cradle, request, progress, kept, &fault) || blank_await(kept, progress, &fault);
	return_to_host(cradle);
	if (result) {
		blank_drop(kept);
		fail(cradle, request, progress, &fault);
	} else {
		tell(cradle, progress);
	}
}

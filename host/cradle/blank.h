#ifndef CRADLE_BLANK_H
#define CRADLE_BLANK_H

#include <limits.h>
#include <stdint.h>

#include "cradle.h"
#include "request.h"

/*
 * A sandbox before it has an environment: an agent in namespaces, ids and views of its own, which waits. Everything that does
 * not depend on what is asked for is done by then. It belongs to the worker that made it, serves one create and dies with the
 * worker.
 */
struct blank {
	/* 0: there is none. */
	uint32_t uid_base;
	pid_t pid;
	/* Its pidfd, its user namespace, and the socket on which it waits. */
	int process;
	int user_ns;
	int socket;
	/* Where its agent listens. */
	char socket_path[PATH_MAX];
};

/*
 * Makes one with the ids, the socket and the sizes of the request, noting in `progress` what exists. It may still be at work:
 * `blank_await` tells. On failure `blank_drop` takes it back. The caller ends in the minimal mount namespace.
 */
int blank_make(const struct cradle *cradle, const struct request *request, struct progress *progress,
	       struct blank *blank, struct fault *fault);

/* Waits until it is ready. Fails when it cannot be, or `progress` is cancelled. */
int blank_await(const struct blank *blank, const struct progress *progress, struct fault *fault);

/*
 * Gives it what makes it a sandbox: its root, the request's host name and arguments, and the doors of its cgroups. When this
 * succeeds, the agent runs in its root. The caller is in its mount namespace.
 */
int blank_fill(const struct blank *blank, const struct request *request, const struct progress *progress,
	       const int *passed, unsigned count, struct fault *fault);

bool blank_is_gone(const struct blank *blank);

/* Lets go of it and keeps it alive: it is an agent now. */
void blank_release(struct blank *blank);

/* Ends it and removes its socket. Safe when there is none. */
void blank_drop(struct blank *blank);

/* ECANCELED once the create of `progress` is not wanted any more. */
int check_cancelled(const struct progress *progress, struct fault *fault);

#endif

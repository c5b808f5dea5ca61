#ifndef CRADLE_CHILD_H
#define CRADLE_CHILD_H

#include "cradle.h"
#include "request.h"

/* What a child inherits from its worker. */
struct inheritance {
	int listener;
	const int *cgroups;
	unsigned cgroup_count;
	/*
	 * To the worker. The worker sends one byte when the id maps are written and one when the new root is in place; the child
	 * sends a `struct fault` when it fails and lets the descriptor close by exec when it becomes the agent.
	 */
	int worker;
};

/* The rest of a process cloned into the namespaces of a sandbox: builds the view from inside and becomes the agent. */
_Noreturn void child_run(const struct cradle *cradle, const struct request *request, const struct inheritance *inheritance);

#endif

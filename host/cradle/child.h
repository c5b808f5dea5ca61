#ifndef CRADLE_CHILD_H
#define CRADLE_CHILD_H

#include "cradle.h"
#include "request.h"

/* What a child inherits from its worker. */
struct inheritance {
	int listener;
	/*
	 * To the worker, which sends one byte when the id maps are written. The child sends a `struct fault` when it fails, else it
	 * becomes an agent that waits on this socket.
	 */
	int worker;
};

/* The rest of a process cloned into the namespaces of a sandbox: prepares the view from inside and becomes a blank agent. */
_Noreturn void child_run(const struct cradle *cradle, const struct request *request, const struct inheritance *inheritance);

#endif

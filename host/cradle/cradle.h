#ifndef CRADLE_CRADLE_H
#define CRADLE_CRADLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fault.h"

/* How the kernel takes layers: as descriptors (Linux 6.15 and later), or as paths in a private staging namespace. */
enum overlay_mode { OVERLAY_FD, OVERLAY_PATHS };

/* What every create shares; made once at start, inherited by workers. */
struct cradle {
	int host_ns;
	int minimal_ns;
	/* The host's /proc: the minimal namespace's shows no process. */
	int host_proc;
	/* O_PATH descriptor of the agent's binary. */
	int agent;
	/* Of the program that sessions run; -1: there is none. */
	int shell;
	/* Where replies go. */
	int link;
	/* An eventfd that workers ring when a job is done. */
	int bell;
	enum overlay_mode overlay_mode;
};

/*
 * One create under way, in memory shared between the cradle and its worker. It says at any moment what exists, so that
 * whoever is left after a crash can take it down.
 */
struct progress {
	/* Set by the cradle: give up at the next step. */
	atomic_bool cancelled;
	/* Set by the worker, last: `fault.error` is 0 when the agent runs. */
	atomic_bool done;
	/* Set by the worker before it tells the peer itself that the agent runs: from then on nobody takes that back. */
	atomic_bool told;
	/* Under which the peer asked. */
	uint32_t tag;
	/* Written by the kernel before the child first runs; 0 while there is none. */
	pid_t child;
	/* These two may be ahead of the truth by the one step that is under way. */
	unsigned cgroups_made;
	bool socket_bound;
	struct fault fault;
};

#endif

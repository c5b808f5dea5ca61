#ifndef CRADLE_CGROUPS_H
#define CRADLE_CGROUPS_H

#include "cradle.h"
#include "request.h"

/*
 * Makes the request's cgroups in order and applies their writes. `handed_over` gets one write-only `cgroup.procs` descriptor
 * per cgroup to hand over, then the directory of each to delegate; `*count` says how many. Counts in `progress` what it made.
 */
int cgroups_make(const struct request *request, struct progress *progress, int *handed_over, unsigned *count,
		 struct fault *fault);

/* Removes what `cgroups_make` counted, newest first. Waits a bounded time for the last process to leave. */
void cgroups_remove(const struct request *request, struct progress *progress);

/* Moves the calling process into `dir`. */
int cgroup_enter(const char *dir, struct fault *fault);

#endif

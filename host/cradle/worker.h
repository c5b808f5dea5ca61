#ifndef CRADLE_WORKER_H
#define CRADLE_WORKER_H

#include "cradle.h"
#include "request.h"

/*
 * Makes one sandbox; runs in a process of its own with the rights of the host. Leaves the outcome in `progress`. A sandbox
 * that could not be made is taken down before that: no process, no socket, no cgroup. The child is a child of the cradle.
 */
void worker_create(const struct cradle *cradle, const struct request *request, struct progress *progress);

/* Takes down what `progress` names, once the child is gone; for the cradle when a worker died. */
void worker_undo(const struct cradle *cradle, const struct request *request, struct progress *progress);

#endif

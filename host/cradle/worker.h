#ifndef CRADLE_WORKER_H
#define CRADLE_WORKER_H

#include "cradle.h"
#include "request.h"

/*
 * Both run in a process of their own with the rights of the host, leave the outcome in `progress`, ring the cradle's bell and
 * return with nothing open and in the host's mount namespace.
 */

/*
 * Makes one sandbox. One that could not be made is taken down before that is told: no process, no socket, no cgroup. The
 * child is a child of the cradle.
 */
void worker_create(const struct cradle *cradle, const struct request *request, struct progress *progress);

/* Takes down what `progress` names, once the child is gone: for a worker that died. */
void worker_undo(const struct cradle *cradle, const struct request *request, struct progress *progress);

#endif

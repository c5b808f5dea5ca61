#ifndef CRADLE_WORKER_H
#define CRADLE_WORKER_H

#include "blank.h"
#include "cradle.h"
#include "request.h"

/*
 * All run in a process of their own with the rights of the host, leave the outcome in `progress`, ring the cradle's bell (a create
 * that succeeds tells the peer first) and return in the host's mount namespace, with nothing open but the blank that the worker keeps.
 */

/*
 * Makes one sandbox out of the blank that is `kept` when that has its ids, else out of a new one. What could not be made is
 * taken down before that is told: no process, no socket, no cgroup. The child is a child of the cradle.
 */
void worker_create(const struct cradle *cradle, const struct request *request, struct progress *progress, struct blank *kept);

/* Makes a blank and keeps it. */
void worker_make_blank(const struct cradle *cradle, const struct request *request, struct progress *progress,
		       struct blank *kept);

/* Takes down what `progress` names, once the child is gone: for a worker that died. */
void worker_undo(const struct cradle *cradle, const struct request *request, struct progress *progress);

#endif

#ifndef CRADLE_ROOT_H
#define CRADLE_ROOT_H

#include "request.h"

/* Makes the sandbox's one tmpfs: its /etc files and /dev/shm. Needs the id maps, not the new root. */
int root_prepare(const struct request *request, struct fault *fault);

/*
 * With the overlay at MINIMAL_NEW_ROOT: mounts everything on it and makes it the root. Paths of the image are resolved within
 * the image, whatever links it holds. No path leads to the minimal namespace afterwards.
 */
int root_enter(struct fault *fault);

#endif

#ifndef CRADLE_ROOT_H
#define CRADLE_ROOT_H

#include "request.h"

/*
 * The inside's part: a tmpfs of its own for /etc files and /dev/shm, and on it the trees that become /proc, /sys and /dev. Needs
 * the id maps, and nothing of what is asked for.
 */
int root_prepare(uint64_t shm_bytes, struct fault *fault);

/*
 * The host's part, in the mount namespace of the prepared sandbox: puts `overlay`, which is detached, and what was prepared
 * together and makes it the root there. Paths of the image are resolved within the image, whatever links it holds. No path
 * leads to the minimal namespace afterwards.
 */
int root_assemble(const struct request *request, int overlay, struct fault *fault);

#endif

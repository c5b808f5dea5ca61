#ifndef CRADLE_MINIMAL_H
#define CRADLE_MINIMAL_H

#include "fault.h"

/* Directories of the minimal namespace's root that creates use; all empty. */
#define MINIMAL_NEW_ROOT "/new"
#define MINIMAL_PRIVATE "/private"
#define MINIMAL_STAGE "/stage"
#define MINIMAL_EMPTY "/empty"

/*
 * Makes the mount namespace from which every sandbox starts and returns its descriptor, or -1. Besides the kernel's own base
 * it holds four mounts, however many the host has: a tmpfs root, the shared read-only /dev, and /proc and /sys, which the
 * kernel wants to see before it lets a user namespace mount its own. The caller stays in the host's namespace `host_ns`.
 */
int minimal_make(int host_ns, struct fault *fault);

#endif

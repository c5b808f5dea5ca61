#ifndef CRADLE_MINIMAL_H
#define CRADLE_MINIMAL_H

#include "fault.h"

/* Directories of the minimal namespace's root that creates use; all empty. */
#define MINIMAL_NEW_ROOT "/new"
#define MINIMAL_PRIVATE "/private"
#define MINIMAL_STAGE "/stage"
#define MINIMAL_EMPTY "/empty"
/* With what sandboxes see in place of files of /proc, when the node serves that. */
#define MINIMAL_VIEW "/view"

/*
 * Makes the mount namespace from which every sandbox starts and returns its descriptor, or -1. Besides the kernel's own base
 * it holds four mounts, however many the host has: a tmpfs root, the shared read-only /dev, the shared read-only /sys, and a
 * /proc, which the kernel wants to see before it lets a user namespace mount its own. `view` is a directory of the host with
 * files that stand for some of /proc and /sys, or NULL: it adds two. The copies that a sandbox gets are locked: nothing inside
 * can make them writable. The caller stays in the host's namespace `host_ns`; `host_proc` is the host's /proc.
 */
int minimal_make(int host_ns, int host_proc, const char *view, struct fault *fault);

#endif

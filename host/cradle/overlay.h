#ifndef CRADLE_OVERLAY_H
#define CRADLE_OVERLAY_H

#include "cradle.h"
#include "request.h"

/* Detached copies of a request's mounts: whole in themselves, so that no path of the host shows inside a sandbox. */
struct parts {
	/* Lowest first. */
	int layers[MAX_LAYERS];
	unsigned layer_count;
	/* The directory that holds both `upper` and `work`, and their places in it: overlay wants them on one mount. */
	int writable;
	const char *upper;
	const char *work;
	char writable_dir[4096];
};

/* Opens the parts by their paths on the host, in the host's mount namespace. Refuses an upper whose owner is not one of a sandbox's ids. */
int parts_open(const struct request *request, struct parts *parts, struct fault *fault);

/* Shifts the ids of all layers and of the upper by the map of a user namespace: on disk they are plain, 0 to 65,535. */
int parts_shift(const struct parts *parts, int user_ns, struct fault *fault);

/*
 * Joins the parts; returns the detached mount, or -1. What the kernel makes in the upper on its own account belongs to whoever
 * the caller is to file systems: an id that the upper's map has. With OVERLAY_PATHS the caller ends in a private copy of the
 * mount namespace it is in, which must be the minimal one.
 */
int overlay_make(enum overlay_mode mode, const struct parts *parts, struct fault *fault);

/* Tries descriptors on a throw-away overlay and falls back to paths. */
enum overlay_mode overlay_probe(void);

#endif

/* Going through a directory and those below it: never through a link, with one open directory a level. */
#ifndef FILES_WALK_H
#define FILES_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "files_entry.h"

#define WALK_DEPTH_LIMIT 256u

struct walk {
	/* Levels to go through, at most WALK_DEPTH_LIMIT. */
	uint32_t limit;
	/* True: what is deeper is left out. False: it is refused with ENAMETOOLONG. */
	bool cut;
	/* False: names that begin with a dot are left out. */
	bool hidden;
	/* Told of every entry, a directory before what is in it. `shown`: its path below the first directory. */
	int (*visit)(int directory, const char *name, const struct stat *status, struct shown shown);
	/* Stays on the file system that the first directory is on. */
	bool one_system;
};

/* Takes the open directory `fd` over. 0 or the errno that stopped it. */
int files_walk(int fd, const struct walk *walk);

#endif

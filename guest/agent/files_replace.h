/* A file that is made without a name and takes the place of the old one when it is whole: no reader ever sees a part. */
#ifndef FILES_REPLACE_H
#define FILES_REPLACE_H

#include <stdbool.h>

#include "files.h"

#define TEMPORARY_ROOM 32u

struct replacement {
	int directory; /* where the file goes, and under which name: set by the caller */
	char name[PATH_ROOM];
	int fd;
	bool named;
	char temporary[TEMPORARY_ROOM];
};

/* Opens an empty file for writing, nameless where the file system can: then even a kill leaves nothing. 0 or an errno. */
int replacement_open(struct replacement *file);
/* Gives it its name, over a file or link that has it. */
int replacement_place(struct replacement *file);
/* Whether a file is called like one that is not whole yet. */
bool replacement_is_named_so(const char *name);
/* Closes it, and removes it when it was not placed. */
void replacement_close(struct replacement *file);

#endif

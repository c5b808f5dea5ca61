#ifndef VIEW_SERVE_H
#define VIEW_SERVE_H

#include <linux/fuse.h>

#include "view.h"

/*
 * The request in hand, in memory that outlives this process: the kernel hands out each once, and would wait for ever for the
 * answer to one that died with its server. At least FUSE_MIN_READ_BUFFER long, or the kernel refuses to read into it.
 */
struct request_page {
	struct fuse_in_header header;
	union {
		struct fuse_read_in read;
		char name[16384];
	} body;
};

/* Answers requests of the kernel on `fuse` until the file system is unmounted. Returns an exit status. */
int serve(const struct node *node, int fuse, struct request_page *page);

/* hold.c: keeps `fuse` open until the file system is unmounted. Returns an exit status. */
int hold(int fuse);

#endif

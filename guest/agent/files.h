/* File actions: what a task does instead of running a program. All run in a process of their own, with the user's rights. */
#ifndef FILES_H
#define FILES_H

#include <stdint.h>
#include <sys/types.h>

#include "start.h"

/* Streams of bytes are moved in pieces of this size. */
#define PIECE 65536u
/* What the pipe of an action that moves bytes holds, where the kernel grants it, and most that one call moves. */
#define SPLICED (256u * 1024)
/* Longest path the kernel takes, with its NUL. */
#define PATH_ROOM 4096u

/* Carries out the action: stdin is 0, stdout is 1. Returns 0 or an errno. `marker` is -1 or as in files_write. */
int files_run(const struct start *start, int marker);

/* files_write.c. Replaces the file atomically by stdin, once `marker` gave a byte; without one nothing changes. */
int files_write(const struct start *start, int marker);
/* files_remove.c */
int files_remove(const char *path, bool recursive);
/* files_change.c: changes of one entry, each at once. */
int files_mkdir(const struct start *start);
int files_chmod(const struct start *start);
int files_chown(const struct start *start);
int files_symlink(const struct start *start);
int files_move(const struct start *start);
/* files_list.c: records as core/entries.ts describes them. `hidden`: names that begin with a dot, too. */
int files_list(const char *path, uint32_t depth, bool hidden);
int files_stat(const char *path);
/* files_tree_read.c, files_tree_write.c: a stream as core/tree.ts draws it. `flag` of a write: entries keep their owners. */
int files_read_tree(const char *path);
int files_write_tree(const struct start *start);
/* files_watch.c: records of core/watch.ts until it is killed or the path is gone. `flag`: directories below, too. */
int files_watch(const struct start *start);

/* Makes the directories above the last component that are missing. */
int files_parents(const char *path);
/* The last component of a path without its trailing slashes: where it begins and ends. "/" has an empty one. */
void files_last(const char *path, size_t *begin, size_t *end);
/* Opens, to be named and not read, the directory that holds the last component. */
int files_open_parent(int at, const char *path);
int files_put(const uint8_t *bytes, size_t size);

#endif

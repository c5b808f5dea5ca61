/* The processes of the sandbox as a tree: who descends from whom now. */
#ifndef TREE_H
#define TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process {
	pid_t pid, parent, session;
	char state;  /* as /proc has it: R, S, T, Z, … */
	bool inside; /* descends from what was asked for */
};

struct tree {
	struct process *all;
	size_t count;
};

/* Reads every process there is. False: no memory, or no /proc. */
bool tree_read(struct tree *tree);
void tree_free(struct tree *tree);

/* Marks as inside what descends from `root`, which is not, but neither the `count` processes of `but` nor their descendants. */
void tree_mark(struct tree *tree, pid_t root, const pid_t *but, size_t count);

/* Children of a process, at most `limit`; the number found. */
size_t tree_children(pid_t pid, pid_t *children, size_t limit);

/* The parent of a process; 0 when there is no such process. */
pid_t tree_parent(pid_t pid);

/* Processor time that a process and the children it has reaped have used, in µs; 0 when it cannot be told. */
uint64_t tree_cpu_us(pid_t pid);

#endif

#include "tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent.h"

/* As many as a sandbox can have: pages that are not touched cost nothing. */
#define PROCESS_LIMIT 65536u
/* A line of /proc/PID/stat: some fifty numbers and a name of 16 bytes. */
#define STAT_SIZE 1024
/* Its fields, counted from the state behind the name. */
enum stat_field { STAT_STATE, STAT_PARENT, STAT_GROUP, STAT_SESSION, STAT_USER_TIME = 11, STAT_CHILD_SYSTEM_TIME = 14, STAT_KEPT };

/* False: there is no such process any more. A name may have spaces and brackets: the fields follow the last bracket. */
static bool read_stat(pid_t pid, char *state, int64_t fields[STAT_KEPT]) {
	char path[32], text[STAT_SIZE];
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	if (!read_text(path, text, sizeof text)) return false;
	char *at = strrchr(text, ')');
	if (at == NULL || at[1] != ' ' || at[2] == 0) return false;
	*state = at[2];
	at += 3;
	for (int i = STAT_PARENT; i < STAT_KEPT; i++) fields[i] = strtoll(at, &at, 10);
	return true;
}

static void add_process(struct tree *tree, pid_t pid) {
	int64_t fields[STAT_KEPT];
	char state;
	if (tree->count == PROCESS_LIMIT || !read_stat(pid, &state, fields)) return;
	tree->all[tree->count++] = (struct process){
		.pid = pid, .parent = (pid_t)fields[STAT_PARENT], .session = (pid_t)fields[STAT_SESSION], .state = state};
}

bool tree_read(struct tree *tree) {
	/* The layout of getdents64(2); aligned, for its numbers are read where they lie. */
	static char entries[8192] __attribute__((aligned(8)));
	int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (proc < 0) return false;
	*tree = (struct tree){.all = pages_map(PROCESS_LIMIT * sizeof(struct process))};
	for (long got; tree->all != NULL && (got = syscall(SYS_getdents64, proc, entries, sizeof entries)) > 0;) {
		for (long at = 0; at < got; at += ((const struct dirent64 *)(const void *)(entries + at))->d_reclen) {
			const struct dirent64 *entry = (const void *)(entries + at);
			if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9') add_process(tree, (pid_t)strtol(entry->d_name, NULL, 10));
		}
	}
	close(proc);
	return tree->all != NULL;
}

void tree_free(struct tree *tree) { pages_unmap(tree->all, PROCESS_LIMIT * sizeof(struct process)); }

static bool listed(pid_t pid, const pid_t *pids, size_t count) {
	for (size_t i = 0; i < count; i++) {
		if (pids[i] == pid) return true;
	}
	return false;
}

/* The kernel lists processes by their numbers, lowest first. */
static bool inside(const struct tree *tree, pid_t pid) {
	size_t low = 0, high = tree->count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (tree->all[middle].pid == pid) return tree->all[middle].inside;
		if (tree->all[middle].pid < pid) {
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	return false;
}

void tree_mark(struct tree *tree, pid_t root, const pid_t *but, size_t count) {
	for (bool more = true; more;) {
		more = false;
		for (size_t i = 0; i < tree->count; i++) {
			struct process *process = &tree->all[i];
			if (process->inside || listed(process->pid, but, count)) continue;
			if (process->parent != root && !inside(tree, process->parent)) continue;
			process->inside = more = true;
		}
	}
}

size_t tree_children(pid_t pid, pid_t *children, size_t limit) {
	static char text[8192];
	char path[64];
	size_t count = 0;
	snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, pid);
	if (!read_text(path, text, sizeof text)) return 0;
	for (char *at = text, *next; count < limit; at = next) {
		long child = strtol(at, &next, 10);
		if (next == at) break;
		children[count++] = (pid_t)child;
	}
	return count;
}

pid_t tree_parent(pid_t pid) {
	int64_t fields[STAT_KEPT];
	char state;
	return read_stat(pid, &state, fields) ? (pid_t)fields[STAT_PARENT] : 0;
}

uint64_t tree_cpu_us(pid_t pid) {
	int64_t fields[STAT_KEPT] = {0};
	char state;
	if (!read_stat(pid, &state, fields)) return 0;
	uint64_t ticks = 0;
	for (int i = STAT_USER_TIME; i <= STAT_CHILD_SYSTEM_TIME; i++) ticks += (uint64_t)fields[i];
	return ticks * (1000000u / (uint64_t)sysconf(_SC_CLK_TCK));
}

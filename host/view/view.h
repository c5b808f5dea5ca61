/* What a sandbox sees of the machine: the numbers of its limits and of its own use, in the form of the kernel's files. */
#ifndef VIEW_VIEW_H
#define VIEW_VIEW_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	/* As long as the longest name of a directory. */
	MAX_ID = NAME_MAX + 1,
	MAX_PROCESSORS = 1024,
};

/* Which files of a sandbox's cgroups count what. */
enum tree { TREE_MEMORY, TREE_CPU, TREE_PIDS, TREE_TIMES, TREES };

/* The directory of the node in one tree of cgroups. */
struct node_tree {
	/* -1: there is none. */
	int dir;
	int version;
};

/* What one node has; made once at start. */
struct node {
	/* `/dsec/NODE/`: what comes before a sandbox's id in the path of a cgroup. */
	char marker[96];
	struct node_tree trees[TREES];
	/* The directory with a directory for each sandbox. */
	int sandboxes;
	/* /proc/cpuinfo of the machine as it was at start. */
	const char *cpuinfo;
	unsigned processors;
	uint64_t memory_bytes;
	uint64_t swap_bytes;
};

/* The sandbox that a caller is in. */
struct sandbox {
	char id[MAX_ID];
	/* When it began, in microseconds since the machine's boot. */
	uint64_t started_us;
	/* The numbers of its processors, ascending. */
	unsigned count;
	uint16_t processors[MAX_PROCESSORS];
};

/* A file being made. What does not fit is left out: `bytes` never holds more than `capacity`. */
struct text {
	char *bytes;
	size_t length;
	size_t capacity;
};

void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_add_bytes(struct text *text, const char *bytes, size_t length);

/* node.c: 0, or -1 with errno. `trees` are texts such as `memory=1:/sys/fs/cgroup/memory/dsec/n1`. */
int node_open(struct node *node, const char *name, const char *sandboxes, char *const *trees);

/* caller.c: 0, or an errno. ESRCH: no sandbox of this node. */
int caller_sandbox(const struct node *node, uint32_t thread, struct sandbox *sandbox);

/* counters.c: the number in a file; `missing` when it is not there or no number ("max"). */
uint64_t counter(const struct node_tree *tree, const char *id, const char *file, uint64_t missing);
/* A file of lines `key number`, empty when it cannot be read. */
struct keyed {
	char text[16384];
};
int read_keyed(const struct node_tree *tree, const char *id, const char *file, struct keyed *keyed);
/* 0 for a key that is not there. */
uint64_t keyed_value(const char *text, const char *key);
/* Text of a file below a directory, NUL at the end; -1 when it cannot be read. */
int read_text(int dir, const char *path, char *bytes, size_t capacity);
/* Processors' worth of time that the limit allows; the machine's own number without a limit. */
double cpu_limit(const struct node *node, const char *id);
/* Time that the sandbox has used, in microseconds. */
struct times {
	uint64_t user_us;
	uint64_t system_us;
};
struct times cpu_times(const struct node *node, const char *id);
uint64_t boot_us(void);

/* The files. */
void make_meminfo(const struct node *node, const struct sandbox *sandbox, struct text *text);
void make_swaps(const struct node *node, const struct sandbox *sandbox, struct text *text);
void make_vmstat(const struct node *node, const struct sandbox *sandbox, struct text *text);
void make_diskstats(const struct node *node, const struct sandbox *sandbox, struct text *text);
void make_cpuinfo(const struct node *node, const struct sandbox *sandbox, struct text *text);
void make_stat(const struct node *node, const struct sandbox *sandbox, struct text *text);
void make_online(const struct node *node, const struct sandbox *sandbox, struct text *text);
void make_uptime(const struct node *node, const struct sandbox *sandbox, struct text *text);
void make_loadavg(const struct node *node, const struct sandbox *sandbox, struct text *text);

#endif

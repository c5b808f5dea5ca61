/* What the server is started with, and what never changes while it runs. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "view.h"

enum { CPUINFO_BYTES = 4 * 1024 * 1024 };

static const char *const TREE_NAMES[TREES] = { "memory", "cpu", "pids", "times" };

/* `NAME=VERSION:DIR` */
static int open_tree_of(struct node *node, const char *text)
{
	for (int at = 0; at < TREES; at++) {
		size_t length = strlen(TREE_NAMES[at]);
		struct node_tree *tree = &node->trees[at];

		if (strncmp(text, TREE_NAMES[at], length) != 0 || text[length] != '=')
			continue;
		tree->version = text[length + 1] - '0';
		if ((tree->version != 1 && tree->version != 2) || text[length + 2] != ':')
			break;
		tree->dir = open(text + length + 3, O_PATH | O_DIRECTORY | O_CLOEXEC);
		return tree->dir < 0 ? -1 : 0;
	}
	errno = EINVAL;
	return -1;
}

static char *read_cpuinfo(void)
{
	char *bytes = malloc(CPUINFO_BYTES), *fitted;

	if (bytes == NULL || read_text(AT_FDCWD, "/proc/cpuinfo", bytes, CPUINFO_BYTES))
		return NULL;
	fitted = realloc(bytes, strlen(bytes) + 1);
	return fitted != NULL ? fitted : bytes;
}

/* The value of `Key:  123 kB` in bytes. */
static uint64_t machine_bytes(const char *meminfo, const char *key)
{
	const char *line = strstr(meminfo, key);

	return line == NULL ? 0 : strtoull(line + strlen(key), NULL, 10) * 1024;
}

static int look_at_machine(struct node *node)
{
	char meminfo[8192];
	long processors = sysconf(_SC_NPROCESSORS_ONLN);

	node->processors = processors < 1 ? 1 : processors > MAX_PROCESSORS ? MAX_PROCESSORS : (unsigned)processors;
	node->cpuinfo = read_cpuinfo();
	if (node->cpuinfo == NULL || read_text(AT_FDCWD, "/proc/meminfo", meminfo, sizeof meminfo))
		return -1;
	node->memory_bytes = machine_bytes(meminfo, "MemTotal:");
	node->swap_bytes = machine_bytes(meminfo, "SwapTotal:");
	return 0;
}

int node_open(struct node *node, const char *name, const char *sandboxes, char *const *trees)
{
	for (int at = 0; at < TREES; at++)
		node->trees[at].dir = -1;
	if (snprintf(node->marker, sizeof node->marker, "/dsec/%s/", name) >= (int)sizeof node->marker) {
		errno = ENAMETOOLONG;
		return -1;
	}
	node->sandboxes = open(sandboxes, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (node->sandboxes < 0)
		return -1;
	for (; *trees != NULL; trees++)
		if (open_tree_of(node, *trees))
			return -1;
	return look_at_machine(node);
}

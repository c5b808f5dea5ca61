/* Numbers from the files of cgroups. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "view.h"

int read_text(int dir, const char *path, char *bytes, size_t capacity)
{
	int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t got;

	if (fd < 0)
		return -1;
	while (length < capacity - 1 && (got = read(fd, bytes + length, capacity - 1 - length)) > 0)
		length += (size_t)got;
	close(fd);
	bytes[length] = 0;
	return 0;
}

static int read_counter_file(const struct node_tree *tree, const char *id, const char *file, char *bytes, size_t capacity)
{
	char path[MAX_ID + 64];

	if (tree->dir < 0 || snprintf(path, sizeof path, "%s/%s", id, file) >= (int)sizeof path)
		return -1;
	return read_text(tree->dir, path, bytes, capacity);
}

static uint64_t number_of(const char *text, uint64_t missing)
{
	char *end;
	uint64_t number = strtoull(text, &end, 10);

	return end == text ? missing : number;
}

uint64_t counter(const struct node_tree *tree, const char *id, const char *file, uint64_t missing)
{
	char bytes[64];

	return read_counter_file(tree, id, file, bytes, sizeof bytes) ? missing : number_of(bytes, missing);
}

uint64_t keyed_value(const char *text, const char *key)
{
	size_t length = strlen(key);

	for (const char *line = text; line != NULL && *line != 0;) {
		if (strncmp(line, key, length) == 0 && line[length] == ' ')
			return number_of(line + length + 1, 0);
		line = strchr(line, '\n');
		if (line != NULL)
			line++;
	}
	return 0;
}

int read_keyed(const struct node_tree *tree, const char *id, const char *file, struct keyed *keyed)
{
	if (read_counter_file(tree, id, file, keyed->text, sizeof keyed->text) == 0)
		return 0;
	keyed->text[0] = 0;
	return -1;
}

double cpu_limit(const struct node *node, const char *id)
{
	const struct node_tree *tree = &node->trees[TREE_CPU];
	char bytes[64];
	double quota, period;

	if (tree->version == 2) {
		if (read_counter_file(tree, id, "cpu.max", bytes, sizeof bytes) || sscanf(bytes, "%lf %lf", &quota, &period) != 2)
			return node->processors;
	} else {
		/* -1 is no limit. */
		if (read_counter_file(tree, id, "cpu.cfs_quota_us", bytes, sizeof bytes))
			return node->processors;
		quota = strtod(bytes, NULL);
		period = (double)counter(tree, id, "cpu.cfs_period_us", 0);
	}
	return quota > 0 && period > 0 ? quota / period : node->processors;
}

struct times cpu_times(const struct node *node, const char *id)
{
	const struct node_tree *tree = &node->trees[TREE_TIMES];
	struct keyed keyed;

	if (tree->version == 1)
		return (struct times){
			counter(tree, id, "cpuacct.usage_user", 0) / 1000,
			counter(tree, id, "cpuacct.usage_sys", 0) / 1000,
		};
	read_keyed(tree, id, "cpu.stat", &keyed);
	return (struct times){ keyed_value(keyed.text, "user_usec"), keyed_value(keyed.text, "system_usec") };
}

uint64_t boot_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

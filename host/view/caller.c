/* From the thread that reads to its sandbox: by the path of its cgroup, which it cannot choose. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "view.h"

/* An agent holds the doors of its sandbox's cgroups from this descriptor on. */
#define DOOR_FD 4

enum { CGROUP_BYTES = 8192, RECORD_BYTES = 8192 };

/* The id that follows the node's marker on any line. */
static int id_of(const struct node *node, const char *cgroups, char id[MAX_ID])
{
	for (const char *found = strstr(cgroups, node->marker); found != NULL; found = strstr(found, node->marker)) {
		size_t length;

		found += strlen(node->marker);
		length = strcspn(found, "/\n");
		if (length == 0 || length >= MAX_ID)
			continue;
		memcpy(id, found, length);
		id[length] = 0;
		return 0;
	}
	return ESRCH;
}

/* An agent lives outside of its sandbox, which it speaks for: the doors that it holds say which one that is. */
static int id_of_agent(const struct node *node, uint32_t thread, char id[MAX_ID])
{
	char path[32], door[PATH_MAX];
	ssize_t length;

	snprintf(path, sizeof path, "/proc/%u/fd/%d", thread, DOOR_FD);
	length = readlink(path, door, sizeof door - 1);
	if (length < 0)
		return ESRCH;
	door[length] = 0;
	return id_of(node, door, id);
}

/* The text after `"key":` in a record that the node wrote; NULL when it is not there. */
static const char *value_of(const char *record, const char *key)
{
	char name[64];
	const char *found;

	snprintf(name, sizeof name, "\"%s\":", key);
	found = strstr(record, name);
	return found == NULL ? NULL : found + strlen(name);
}

static void take_range(struct sandbox *sandbox, unsigned long first, unsigned long last)
{
	for (unsigned long at = first; at <= last && at < MAX_PROCESSORS && sandbox->count < MAX_PROCESSORS; at++)
		sandbox->processors[sandbox->count++] = (uint16_t)at;
}

/* `"0-2,5"`, ascending. */
static void take_processors(struct sandbox *sandbox, const char *list)
{
	char *end;

	if (*list == '"')
		list++;
	while (*list >= '0' && *list <= '9') {
		unsigned long first = strtoul(list, &end, 10), last = first;

		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		take_range(sandbox, first, last);
		list = *end == ',' ? end + 1 : end;
	}
}

/* As many as the limit of processor time can keep busy. */
static void choose_processors(const struct node *node, struct sandbox *sandbox)
{
	double limit = ceil(cpu_limit(node, sandbox->id));
	unsigned count = limit < 1 ? 1 : limit > node->processors ? node->processors : (unsigned)limit;

	take_range(sandbox, 0, count - 1);
}

static void read_record(const struct node *node, struct sandbox *sandbox)
{
	char path[MAX_ID + 16], record[RECORD_BYTES];
	const char *value;

	sandbox->count = 0;
	sandbox->started_us = boot_us();
	snprintf(path, sizeof path, "%s/agent.json", sandbox->id);
	if (read_text(node->sandboxes, path, record, sizeof record) == 0) {
		value = value_of(record, "createdTicks");
		if (value != NULL)
			sandbox->started_us = strtoull(value, NULL, 10) * 1000000 / (uint64_t)sysconf(_SC_CLK_TCK);
		value = value_of(record, "processors");
		if (value != NULL)
			take_processors(sandbox, value);
	}
	if (sandbox->count == 0)
		choose_processors(node, sandbox);
}

int caller_sandbox(const struct node *node, uint32_t thread, struct sandbox *sandbox)
{
	char path[32], cgroups[CGROUP_BYTES];
	int error;

	/* 0: the caller is in no process namespace that the mounter sees. */
	if (thread == 0)
		return ESRCH;
	snprintf(path, sizeof path, "/proc/%u/cgroup", thread);
	if (read_text(AT_FDCWD, path, cgroups, sizeof cgroups))
		return ESRCH;
	error = id_of(node, cgroups, sandbox->id);
	if (error == 0 && strcmp(sandbox->id, "agents") == 0)
		error = id_of_agent(node, thread, sandbox->id);
	if (error == 0)
		read_record(node, sandbox);
	return error;
}

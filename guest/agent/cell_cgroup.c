/*
 * The cgroups of a cell: made below the directories that the container was given, and removed after. In v1 each kind of count has a
 * tree of its own, in v2 all are one; what a tree can is seen from its files.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cell.h"

#define FIRST_DOOR 4
/* A dead process leaves its cgroup a moment after its end was seen. */
#define REMOVE_ATTEMPTS 2000
#define REMOVE_PAUSE_NS 500000
/* So long the processes that were killed may take to end. */
#define SETTLE_US 20000000u
#define SETTLE_LOOK_MS 20
/* Below its limit by less, a cgroup was at it: the kernel charges in batches. */
#define PEAK_SLACK (2u << 20)

static int write_at(int dir, const char *file, const char *value) {
	int fd = openat(dir, file, O_WRONLY | O_CLOEXEC);
	if (fd < 0) return errno;
	size_t length = strlen(value);
	int error = write(fd, value, length) == (ssize_t)length ? 0 : errno;
	close(fd);
	return error;
}

static int write_number(int dir, const char *file, uint64_t value) {
	char text[24];
	snprintf(text, sizeof text, "%" PRIu64, value);
	return write_at(dir, file, text);
}

static bool read_at(int dir, const char *file, char *text, size_t size) {
	int fd = openat(dir, file, O_RDONLY | O_CLOEXEC);
	if (fd < 0) return false;
	ssize_t got = read(fd, text, size - 1);
	close(fd);
	text[got > 0 ? got : 0] = 0;
	return got > 0;
}

static uint64_t number_at(int dir, const char *file) {
	char text[32];
	return read_at(dir, file, text, sizeof text) ? strtoull(text, NULL, 10) : 0;
}

/* The number behind `key` in a file of lines `key number`. */
static uint64_t field_at(int dir, const char *file, const char *key) {
	char text[1024];
	size_t length = strlen(key);
	if (!read_at(dir, file, text, sizeof text)) return 0;
	for (char *line = text; line != NULL; line = strchr(line, '\n') != NULL ? strchr(line, '\n') + 1 : NULL) {
		if (strncmp(line, key, length) == 0 && line[length] == ' ') return strtoull(line + length + 1, NULL, 10);
	}
	return 0;
}

static bool has(int dir, const char *file) { return faccessat(dir, file, F_OK, 0) == 0; }

static int make_one(struct cell_cgroup *cgroup, const char *name) {
	if (mkdirat(cgroup->parent, name, 0755) != 0) return errno;
	cgroup->dir = openat(cgroup->parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (cgroup->dir < 0) return errno;
	cgroup->first = has(cgroup->dir, "tasks");
	cgroup->memory = has(cgroup->dir, cgroup->first ? "memory.limit_in_bytes" : "memory.max");
	cgroup->pids = has(cgroup->dir, "pids.max");
	cgroup->cpu = !cgroup->first && has(cgroup->dir, "cpu.stat");
	return 0;
}

int cell_cgroups_make(struct cell *cell) {
	const struct options *options = cell->options;
	cell->cgroup_count = options->cells;
	for (int at = 0; at < options->cells; at++) {
		cell->cgroups[at] = (struct cell_cgroup){.parent = FIRST_DOOR + options->cgroups + at, .dir = -1};
	}
	for (int at = 0; at < options->cells; at++) {
		int error = make_one(&cell->cgroups[at], cell->name);
		if (error != 0) return error;
	}
	return 0;
}

static int limit_memory(const struct cell_cgroup *cgroup, uint64_t bytes) {
	if (!cgroup->first) {
		int error = write_number(cgroup->dir, "memory.max", bytes);
		return error == 0 && has(cgroup->dir, "memory.swap.max") ? write_number(cgroup->dir, "memory.swap.max", 0) : error;
	}
	int error = write_number(cgroup->dir, "memory.limit_in_bytes", bytes);
	bool swap = has(cgroup->dir, "memory.memsw.limit_in_bytes");
	return error == 0 && swap ? write_number(cgroup->dir, "memory.memsw.limit_in_bytes", bytes) : error;
}

int cell_cgroups_limit(const struct cell *cell, const struct cell_limits *limits) {
	for (int at = 0; at < cell->cgroup_count; at++) {
		const struct cell_cgroup *cgroup = &cell->cgroups[at];
		int error = cgroup->memory ? limit_memory(cgroup, limits->memory_bytes) : 0;
		if (error == 0 && cgroup->pids) error = write_number(cgroup->dir, "pids.max", limits->pids);
		if (error != 0) return error;
	}
	return 0;
}

int cell_cgroups_join(const struct cell *cell) {
	for (int at = 0; at < cell->cgroup_count; at++) {
		const struct cell_cgroup *cgroup = &cell->cgroups[at];
		int error = write_at(cgroup->dir, cgroup->first ? "tasks" : "cgroup.procs", "0");
		if (error != 0) return error;
	}
	return 0;
}

static void measure_memory(const struct cell_cgroup *cgroup, struct cell_usage *usage) {
	int dir = cgroup->dir;
	usage->peak_bytes = number_at(dir, cgroup->first ? "memory.max_usage_in_bytes" : "memory.peak");
	uint64_t limit = number_at(dir, cgroup->first ? "memory.limit_in_bytes" : "memory.max");
	uint64_t kills = field_at(dir, cgroup->first ? "memory.oom_control" : "memory.events", "oom_kill");
	/* A kill far below the limit was somebody else's lack of memory. */
	usage->out_of_memory = kills > 0 && usage->peak_bytes + PEAK_SLACK >= limit;
}

void cell_cgroups_measure(const struct cell *cell, struct cell_usage *usage) {
	*usage = (struct cell_usage){.cpu_us = 0};
	for (int at = 0; at < cell->cgroup_count; at++) {
		const struct cell_cgroup *cgroup = &cell->cgroups[at];
		if (cgroup->memory) measure_memory(cgroup, usage);
		if (cgroup->cpu) usage->cpu_us = field_at(cgroup->dir, "cpu.stat", "usage_usec");
	}
}

uint64_t cell_cgroups_stalled_us(const struct cell *cell) {
	char text[256];
	for (int at = 0; at < cell->cgroup_count; at++) {
		if (!cell->cgroups[at].cpu || !read_at(cell->cgroups[at].dir, "cpu.pressure", text, sizeof text)) continue;
		/* The first line is that of some, not of all. */
		const char *total = strstr(text, "total=");
		return total == NULL ? 0 : strtoull(total + sizeof "total=" - 1, NULL, 10);
	}
	return 0;
}

static const struct cell_cgroup *killing_cgroup(const struct cell *cell) {
	for (int at = 0; at < cell->cgroup_count; at++) {
		if (cell->cgroups[at].dir >= 0 && !cell->cgroups[at].first && has(cell->cgroups[at].dir, "cgroup.kill")) return &cell->cgroups[at];
	}
	return NULL;
}

bool cell_cgroups_kill(const struct cell *cell) {
	const struct cell_cgroup *cgroup = killing_cgroup(cell);
	return cgroup != NULL && write_at(cgroup->dir, "cgroup.kill", "1") == 0;
}

int cell_cgroups_settle(const struct cell *cell) {
	const struct cell_cgroup *cgroup = killing_cgroup(cell);
	int events = cgroup == NULL ? -1 : openat(cgroup->dir, "cgroup.events", O_RDONLY | O_CLOEXEC);
	if (events < 0) return errno;
	uint64_t end_us = monotonic_us() + SETTLE_US;
	int error = 0;
	/* Reading it asks to be told of the next change. */
	while (field_at(cgroup->dir, "cgroup.events", "populated") != 0 && error == 0) {
		char text[64];
		struct pollfd polled = {events, POLLPRI, 0};
		if (pread(events, text, sizeof text, 0) > 0) poll(&polled, 1, SETTLE_LOOK_MS);
		if (monotonic_us() > end_us) error = EBUSY;
	}
	close(events);
	return error;
}

int cell_cgroups_remove(struct cell *cell) {
	const struct timespec pause = {.tv_nsec = REMOVE_PAUSE_NS};
	int result = 0;
	for (int at = 0; at < cell->cgroup_count; at++) {
		struct cell_cgroup *cgroup = &cell->cgroups[at];
		close_fd(&cgroup->dir);
		int error = 0;
		for (int attempt = 0; attempt < REMOVE_ATTEMPTS; attempt++) {
			error = unlinkat(cgroup->parent, cell->name, AT_REMOVEDIR) == 0 ? 0 : errno;
			if (error != EBUSY) break;
			nanosleep(&pause, NULL);
		}
		if (error != 0 && error != ENOENT) result = error;
	}
	cell->cgroup_count = 0;
	return result;
}

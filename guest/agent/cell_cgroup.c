/*
 * The cgroups of a cell: made below the directories that the container was given. They serve the next cell when nobody is in them and
 * next to nothing is counted, and are removed else. In v1 each kind of count has a tree of its own, in v2 all are one; what a tree can
 * is seen from its files.
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
/* What of the kernel's own may still be counted when a cgroup is used again: it is neither of the next call's limit nor of its peak. */
#define RESIDUE (1u << 20)
/* Charged ahead, for each processor. */
#define RESIDUE_PER_PROCESSOR (256u << 10)
/* Below its limit by less, a cgroup was at it: the kernel charges in batches. */
#define PEAK_SLACK (2u << 20)

static int write_number(int fd, uint64_t value) {
	char text[24];
	int length = snprintf(text, sizeof text, "%" PRIu64, value);
	return pwrite(fd, text, (size_t)length, 0) == length ? 0 : errno;
}

/* Files of cgroups are made anew for whoever reads them from the beginning. */
static bool read_from(int fd, char *text, size_t size) {
	ssize_t got = fd < 0 ? -1 : pread(fd, text, size - 1, 0);
	text[got > 0 ? got : 0] = 0;
	return got > 0;
}

static uint64_t number_in(int fd) {
	char text[32];
	return read_from(fd, text, sizeof text) ? strtoull(text, NULL, 10) : 0;
}

/* The number behind `key` in a file of lines `key number`. */
static uint64_t field_in(int fd, const char *key) {
	char text[1024];
	size_t length = strlen(key);
	if (!read_from(fd, text, sizeof text)) return 0;
	for (char *line = text; line != NULL; line = strchr(line, '\n') != NULL ? strchr(line, '\n') + 1 : NULL) {
		if (strncmp(line, key, length) == 0 && line[length] == ' ') return strtoull(line + length + 1, NULL, 10);
	}
	return 0;
}

static const struct cell_cgroup *killing_cgroup(const struct cell *cell) {
	for (int at = 0; at < cell->cgroup_count; at++) {
		if (cell->cgroups[at].kill >= 0) return &cell->cgroups[at];
	}
	return NULL;
}

static bool has(int dir, const char *file) { return faccessat(dir, file, F_OK, 0) == 0; }

static int open_file(const struct cell_cgroup *cgroup, const char *first, const char *second, int flags) {
	const char *file = cgroup->first ? first : second;
	return file == NULL ? -1 : openat(cgroup->dir, file, flags | O_CLOEXEC);
}

static int make_one(struct cell_cgroup *cgroup, const char *name) {
	if (mkdirat(cgroup->parent, name, 0755) != 0) return errno;
	cgroup->dir = openat(cgroup->parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (cgroup->dir < 0) return errno;
	cgroup->first = has(cgroup->dir, "tasks");
	cgroup->door = open_file(cgroup, "tasks", "cgroup.procs", O_WRONLY);
	if (cgroup->door < 0) return errno;
	/* What a tree cannot do, it has no file for. */
	cgroup->limit = open_file(cgroup, "memory.limit_in_bytes", "memory.max", O_WRONLY);
	cgroup->swap = open_file(cgroup, "memory.memsw.limit_in_bytes", "memory.swap.max", O_WRONLY);
	cgroup->usage = open_file(cgroup, "memory.usage_in_bytes", "memory.current", O_RDONLY);
	cgroup->peak = open_file(cgroup, "memory.max_usage_in_bytes", "memory.peak", O_RDWR);
	if (cgroup->peak < 0) cgroup->peak = open_file(cgroup, NULL, "memory.peak", O_RDONLY);
	cgroup->kills = open_file(cgroup, "memory.oom_control", "memory.events", O_RDONLY);
	cgroup->pids = open_file(cgroup, "pids.max", "pids.max", O_WRONLY);
	cgroup->cpu = open_file(cgroup, NULL, "cpu.stat", O_RDONLY);
	cgroup->pressure = open_file(cgroup, NULL, "cpu.pressure", O_RDONLY);
	cgroup->events = open_file(cgroup, NULL, "cgroup.events", O_RDONLY);
	cgroup->kill = open_file(cgroup, NULL, "cgroup.kill", O_WRONLY);
	return 0;
}

static void close_one(struct cell_cgroup *cgroup) {
	int *fds[] = {&cgroup->dir,   &cgroup->door, &cgroup->limit, &cgroup->swap,     &cgroup->usage,  &cgroup->peak,
		      &cgroup->kills, &cgroup->pids, &cgroup->cpu,   &cgroup->pressure, &cgroup->events, &cgroup->kill};
	for (size_t at = 0; at < sizeof fds / sizeof fds[0]; at++) close_fd(fds[at]);
}

static int make_all(struct cell *cell) {
	const struct options *options = cell->options;
	cell->cgroup_count = options->cells;
	for (int at = 0; at < options->cells; at++) {
		cell->cgroups[at] = (struct cell_cgroup){.parent = FIRST_DOOR + options->cgroups + at};
		struct cell_cgroup *cgroup = &cell->cgroups[at];
		cgroup->dir = cgroup->door = cgroup->limit = cgroup->swap = cgroup->usage = cgroup->peak = -1;
		cgroup->kills = cgroup->pids = cgroup->cpu = cgroup->pressure = cgroup->events = cgroup->kill = -1;
	}
	for (int at = 0; at < options->cells; at++) {
		int error = make_one(&cell->cgroups[at], cell->name);
		if (error != 0) return error;
	}
	return 0;
}

/* From here on only what is to come is measured. False: this kernel cannot forget a peak. */
static bool measure_anew(struct cell_cgroup *cgroup) {
	if (cgroup->usage < 0) return true;
	cgroup->base_bytes = number_in(cgroup->usage);
	cgroup->base_kills = field_in(cgroup->kills, "oom_kill");
	return pwrite(cgroup->peak, "0", 1, 0) == 1;
}

int cell_cgroups_ready(struct cell *cell) {
	bool usable = cell->cgroup_count > 0 && killing_cgroup(cell) != NULL;
	for (int at = 0; at < cell->cgroup_count && usable; at++) {
		struct cell_cgroup *cgroup = &cell->cgroups[at];
		/* What a call has left in the caches of the kernel would be the next one's. */
		usable = measure_anew(cgroup) && cgroup->base_bytes <= RESIDUE + (uint64_t)cell->processors * RESIDUE_PER_PROCESSOR;
	}
	if (usable) return 0;
	int error = cell_cgroups_remove(cell);
	return error == 0 ? make_all(cell) : error;
}

/* A limit of memory may not be above that of memory and swap: so one of both goes first, whether they rise or fall. */
static int limit_memory(const struct cell_cgroup *cgroup, uint64_t bytes) {
	bytes += cgroup->base_bytes;
	if (cgroup->first && cgroup->swap >= 0) write_number(cgroup->swap, bytes);
	int error = write_number(cgroup->limit, bytes);
	if (error != 0 || cgroup->swap < 0) return error;
	return write_number(cgroup->swap, cgroup->first ? bytes : 0);
}

int cell_cgroups_limit(const struct cell *cell, const struct cell_limits *limits) {
	for (int at = 0; at < cell->cgroup_count; at++) {
		const struct cell_cgroup *cgroup = &cell->cgroups[at];
		int error = cgroup->limit >= 0 ? limit_memory(cgroup, limits->memory_bytes) : 0;
		if (error == 0 && cgroup->pids >= 0) error = write_number(cgroup->pids, limits->pids);
		if (error != 0) return error;
	}
	return 0;
}

int cell_cgroups_join(const struct cell *cell) {
	for (int at = 0; at < cell->cgroup_count; at++) {
		if (write(cell->cgroups[at].door, "0", 1) != 1) return errno;
	}
	return 0;
}

static void measure_memory(const struct cell_cgroup *cgroup, struct cell_usage *usage, uint64_t limit) {
	uint64_t peak = number_in(cgroup->peak);
	usage->peak_bytes = peak > cgroup->base_bytes ? peak - cgroup->base_bytes : 0;
	uint64_t kills = field_in(cgroup->kills, "oom_kill") - cgroup->base_kills;
	/* A kill far below the limit was somebody else's lack of memory. */
	usage->out_of_memory = kills > 0 && usage->peak_bytes + PEAK_SLACK >= limit;
}

void cell_cgroups_measure(const struct cell *cell, const struct cell_limits *limits, struct cell_usage *usage) {
	*usage = (struct cell_usage){.cpu_us = cell_cgroups_cpu_us(cell)};
	for (int at = 0; at < cell->cgroup_count; at++) {
		if (cell->cgroups[at].usage >= 0) measure_memory(&cell->cgroups[at], usage, limits->memory_bytes);
	}
}

uint64_t cell_cgroups_cpu_us(const struct cell *cell) {
	uint64_t cpu_us = 0;
	for (int at = 0; at < cell->cgroup_count; at++) {
		if (cell->cgroups[at].cpu >= 0) cpu_us = field_in(cell->cgroups[at].cpu, "usage_usec");
	}
	return cpu_us;
}

uint64_t cell_cgroups_stalled_us(const struct cell *cell) {
	char text[256];
	for (int at = 0; at < cell->cgroup_count; at++) {
		if (!read_from(cell->cgroups[at].pressure, text, sizeof text)) continue;
		/* The first line is that of some, not of all. */
		const char *total = strstr(text, "total=");
		return total == NULL ? 0 : strtoull(total + sizeof "total=" - 1, NULL, 10);
	}
	return 0;
}

bool cell_cgroups_kill(const struct cell *cell) {
	const struct cell_cgroup *cgroup = killing_cgroup(cell);
	return cgroup != NULL && write(cgroup->kill, "1", 1) == 1;
}

/* As long as it does not say otherwise, somebody is in it. */
static bool populated(const struct cell_cgroup *cgroup) {
	char text[64];
	return !read_from(cgroup->events, text, sizeof text) || strstr(text, "populated 0") == NULL;
}

int cell_cgroups_settle(const struct cell *cell) {
	const struct cell_cgroup *cgroup = killing_cgroup(cell);
	if (cgroup == NULL) return ENOSYS;
	uint64_t end_us = monotonic_us() + SETTLE_US;
	/* Reading it asks to be told of the next change. */
	while (populated(cgroup)) {
		struct pollfd polled = {cgroup->events, POLLPRI, 0};
		poll(&polled, 1, SETTLE_LOOK_MS);
		if (monotonic_us() > end_us) return EBUSY;
	}
	return 0;
}

int cell_cgroups_remove(struct cell *cell) {
	const struct timespec pause = {.tv_nsec = REMOVE_PAUSE_NS};
	int result = 0;
	for (int at = 0; at < cell->cgroup_count; at++) {
		struct cell_cgroup *cgroup = &cell->cgroups[at];
		close_one(cgroup);
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

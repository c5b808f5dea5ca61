/*
 * Who listens in the sandbox: asked once, or waited for. Nobody is told when a socket begins to listen, so the agent looks
 * again and again while somebody waits, and only then.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "bytes.h"
#include "proc_net.h"
#include "start.h"

#define LOOK_EVERY_US 20000u
/* Looking takes at most this part of the time: a sandbox of many sockets must not make the node work for it. */
#define REST_SHARE 20u
/* Some 1,700 sockets of each family; what listens beyond them is not seen. */
#define LOOK_LIMIT (256u * 1024)
#define ROW_LIMIT 512u
/* What is said of a listener: u16 port, u8 address size, u8 zero, 16 bytes of address. */
#define RECORD_SIZE 20u

struct look {
	void (*found)(void *context, const struct listener *listener);
	void *context;
};

/* False: the listening ones are over. */
static bool look_at_rows(const struct look *look, char *rows, size_t *length) {
	char *at = rows, *end = rows + *length, *line;
	bool more = true;
	while (more && (line = memchr(at, '\n', (size_t)(end - at))) != NULL) {
		struct listener listener;
		if (listener_read(at, (size_t)(line - at), &listener)) {
			look->found(look->context, &listener);
		} else {
			/* The first row is the heading. */
			more = memchr(at, '_', (size_t)(line - at)) != NULL;
		}
		at = line + 1;
	}
	*length = (size_t)(end - at);
	memmove(rows, at, *length);
	return more;
}

static void look_in(const struct look *look, const char *path) {
	char rows[16384];
	size_t length = 0;
	ssize_t got;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) return;
	for (size_t total = 0; total < LOOK_LIMIT; total += (size_t)got) {
		got = read(fd, rows + length, sizeof rows - length);
		if (got <= 0) break;
		length += (size_t)got;
		if (!look_at_rows(look, rows, &length) || length > ROW_LIMIT) break;
	}
	close(fd);
}

static void look_around(const struct look *look) {
	look_in(look, "/proc/self/net/tcp");
	look_in(look, "/proc/self/net/tcp6");
}

static void add_port(void *context, const struct listener *listener) {
	uint8_t *ports = context;
	if (listener_on_loopback(listener)) ports[listener->port / 8] |= (uint8_t)(1u << listener->port % 8);
}

static void add_record(void *context, const struct listener *listener) {
	struct stream *out = context;
	if (out->to + RECORD_SIZE > OUTPUT_WINDOW) return;
	uint8_t *at = out->ring + out->to;
	put16(at, listener->port);
	at[2] = (uint8_t)(4 * listener->words);
	at[3] = 0;
	memcpy(at + 4, listener->address, sizeof listener->address);
	out->to += RECORD_SIZE;
}

static bool waits(const struct task *task) { return task->state == TASK_RUNNING && task->action == ACTION_LISTENERS; }

static void end(struct agent *agent, struct task *task) {
	task->ending = (struct ending){.cause = CAUSE_EXITED, .wall_us = agent->now_us - task->began_us};
	task_finish(agent, task);
}

static void tell_all(struct agent *agent, struct task *task) {
	struct stream *out = &task->streams[STDOUT];
	out->ring = pages_map(OUTPUT_WINDOW);
	if (out->ring == NULL) {
		task_fail(agent, task, STAGE_LIMIT, ENOMEM);
		return;
	}
	look_around(&(struct look){add_record, out});
	out->ended = true;
	task->state = TASK_RUNNING;
	task->started_due = true;
	end(agent, task);
}

void listeners_start(struct agent *agent, struct task *task) {
	if (task->port == 0) {
		tell_all(agent, task);
		return;
	}
	task->state = TASK_RUNNING;
	task->started_due = true;
	task_due(agent, task);
	/* Many may ask at once: they wait for one look. */
	if (agent->look_us == NEVER) agent->look_us = agent->now_us;
	agent_timer(agent, agent->look_us);
}

void listeners_look(struct agent *agent) {
	uint8_t ports[65536 / 8] = {0};
	bool anybody = false;
	if (agent->look_us == NEVER) return;
	if (agent->now_us < agent->look_us) {
		agent_timer(agent, agent->look_us);
		return;
	}
	for (uint32_t slot = 0; slot < agent->slots && !anybody; slot++) anybody = waits(&agent->tasks[slot]);
	agent->look_us = NEVER;
	if (!anybody) return;
	uint64_t before = monotonic_us();
	look_around(&(struct look){add_port, ports});
	uint64_t rest = (monotonic_us() - before) * REST_SHARE;
	agent->look_us = agent->now_us + (rest > LOOK_EVERY_US ? rest : LOOK_EVERY_US);
	agent_timer(agent, agent->look_us);
	for (uint32_t slot = 0; slot < agent->slots; slot++) {
		struct task *task = &agent->tasks[slot];
		if (waits(task) && ports[task->port / 8] >> task->port % 8 & 1) end(agent, task);
	}
}

/* Lines of the node: `ID VERB [WORDS]`, each answered by `ID ok [WORDS]` or `ID error ERRNO [WORDS]`. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent.h"
#include "machine.h"

#define MACHINE_VERSION "1"
#define ANSWER_BYTES 1024
#define CGROUP "/sys/fs/cgroup/sandbox"

/* No errno: the answer comes when what was asked for is done. */
#define LATER (-1)

/* What a verb answers: words of its own, or of what failed. */
struct reply {
	char text[ANSWER_BYTES];
};

static int say_version(struct machine *machine, char *words, struct reply *reply) {
	(void)machine;
	(void)words;
	snprintf(reply->text, sizeof reply->text, "%s", MACHINE_VERSION);
	return 0;
}

static int set_clock(struct machine *machine, char *words, struct reply *reply) {
	(void)machine;
	(void)reply;
	return identity_clock(words);
}

static int add_seed(struct machine *machine, char *words, struct reply *reply) {
	(void)machine;
	(void)reply;
	return identity_seed(words);
}

/* NUMBER DISK... */
static int mount_layer(struct machine *machine, char *words, struct reply *reply) {
	(void)machine;
	(void)reply;
	char *rest = words;
	unsigned number = (unsigned)strtoul(words, &rest, 10);
	return *rest == ' ' ? disks_mount_layer(number, rest + 1) : EINVAL;
}

static int mount_upper(struct machine *machine, char *words, struct reply *reply) {
	(void)machine;
	(void)reply;
	return disks_mount_upper(words);
}

static int launch(struct machine *machine, char *words, struct reply *reply) {
	int error = launch_request(machine, words, reply->text, sizeof reply->text);
	return error == 0 ? identity_person(machine, false) : error;
}

/* HOSTNAME HOSTS */
static int name_sandbox(struct machine *machine, char *words, struct reply *reply) {
	(void)reply;
	char *hosts = words == NULL ? NULL : strchr(words, ' ');
	if (hosts == NULL || machine->sandbox == 0) return EINVAL;
	*hosts = 0;
	int error = identity_name(machine->sandbox, words, hosts + 1);
	if (error == 0) error = identity_person(machine, true);
	return error == 0 ? bridge_renew() : error;
}

static int open_agent(struct machine *machine, char *words, struct reply *reply) {
	(void)reply;
	uint8_t nonce[NONCE_BYTES];
	return hex_read(words, nonce, sizeof nonce) ? machine_connect(machine, nonce) : EINVAL;
}

static unsigned long long counter(const char *file, const char *key) {
	char path[128], text[1024];
	snprintf(path, sizeof path, CGROUP "/%s", file);
	if (!read_text(path, text, sizeof text)) return 0;
	if (key == NULL) return strtoull(text, NULL, 10);
	const char *at = strstr(text, key);
	return at == NULL ? 0 : strtoull(at + strlen(key), NULL, 10);
}

/* Numbers about the sandbox: processes, bytes of memory now and at most, kills for lack of it, bytes on the disk. */
static int count_usage(struct machine *machine, char *words, struct reply *reply) {
	(void)machine;
	(void)words;
	struct statvfs disk = {0};
	bool mounted = statvfs("/run/upper", &disk) == 0;
	unsigned long long used = mounted ? (unsigned long long)(disk.f_blocks - disk.f_bfree) * disk.f_frsize : 0;
	snprintf(reply->text, sizeof reply->text, "%llu %llu %llu %llu %llu", counter("pids.current", NULL), counter("memory.current", NULL),
		 counter("memory.peak", NULL), counter("memory.events", "oom_kill "), used);
	return 0;
}

/* AFTER */
static int tell_kill(struct machine *machine, char *words, struct reply *reply) {
	(void)machine;
	return words == NULL ? EINVAL : kills_next(strtoull(words, NULL, 10), reply->text, sizeof reply->text);
}

static int give_rest(struct machine *machine, char *words, struct reply *reply) {
	(void)words;
	unsigned long long bytes = 0;
	int error = rest_begin(machine, &bytes);
	snprintf(reply->text, sizeof reply->text, "%llu", bytes);
	return error;
}

/* How long processes may take to hold still: one in the middle of a call of the kernel finishes that first. */
#define FREEZE_TRIES 5000
#define FREEZE_PAUSE_US 1000

static int hold_still(struct machine *machine, char *words, struct reply *reply) {
	(void)machine;
	(void)words;
	(void)reply;
	if (machine_write(CGROUP "/cgroup.freeze", "1") != 0) return errno;
	for (int tries = 0; tries < FREEZE_TRIES; tries++) {
		if (counter("cgroup.events", "frozen ") == 1) return 0;
		usleep(FREEZE_PAUSE_US);
	}
	machine_write(CGROUP "/cgroup.freeze", "0");
	return ETIMEDOUT;
}

/* What the system holds back of its disks goes to them. */
static int write_out(struct machine *machine, char *words, struct reply *reply) {
	(void)machine;
	(void)words;
	(void)reply;
	sync();
	return 0;
}

static int let_go_on(struct machine *machine, char *words, struct reply *reply) {
	(void)machine;
	(void)words;
	(void)reply;
	int error = disks_unlock();
	if (machine_write(CGROUP "/cgroup.freeze", "0") != 0) error = errno;
	return error;
}

/* Answered when it is done. */
static int flush_upper(struct machine *machine, char *words, struct reply *reply) {
	(void)words;
	(void)reply;
	int error = disks_flush(machine);
	if (error == 0) error = machine_watch(machine->flush, FROM_FLUSH);
	return error == 0 ? LATER : error;
}

static int lock_upper(struct machine *machine, char *words, struct reply *reply) {
	(void)machine;
	(void)words;
	(void)reply;
	return disks_lock();
}

static const struct {
	const char *name;
	int (*run)(struct machine *machine, char *words, struct reply *reply);
	bool in_guest; /* also where the whole machine is the sandbox */
} VERBS[] = {
	{"hello", say_version, true},	{"clock", set_clock, true},   {"seed", add_seed, true},	{"layer", mount_layer, false},
	{"upper", mount_upper, false},	{"launch", launch, false},    {"agent", open_agent, true}, {"usage", count_usage, false},
	{"freeze", hold_still, false}, {"thaw", let_go_on, false},   {"name", name_sandbox, true},
	{"sync", write_out, true},	{"flush", flush_upper, false}, {"lock", lock_upper, false},  {"rest", give_rest, false},
	{"killed", tell_kill, false},
};

/*
 * The kernel may hand out what a new connection says before it takes note that there is one, and until then the port takes nothing.
 * What does not fit was for nobody: the node waits for each answer.
 */
static void send_text(struct machine *machine, const char *text) {
	size_t length = strlen(text);
	if (length > sizeof machine->answers - machine->answers_length) return;
	memcpy(machine->answers + machine->answers_length, text, length);
	machine->answers_length += length;
	lines_flush(machine);
}

void lines_flush(struct machine *machine) {
	while (machine->answers_length > 0) {
		ssize_t put = write(machine->control, machine->answers, machine->answers_length);
		if (put <= 0) return;
		machine->answers_length -= (size_t)put;
		memmove(machine->answers, machine->answers + put, machine->answers_length);
	}
}

void lines_tell(struct machine *machine, const char *text) {
	char line[ANSWER_BYTES];
	snprintf(line, sizeof line, "- %s\n", text);
	send_text(machine, line);
}

static void answer(struct machine *machine, const char *id, int error, const struct reply *reply) {
	char line[ANSWER_BYTES + 64];
	if (error == 0) {
		snprintf(line, sizeof line, "%s ok %s\n", id, reply->text);
	} else {
		snprintf(line, sizeof line, "%s error %d %s\n", id, error, reply->text);
	}
	send_text(machine, line);
}

static void handle(struct machine *machine, char *line) {
	static struct reply reply;
	char *rest = NULL, *id = strtok_r(line, " ", &rest), *verb = strtok_r(NULL, " ", &rest);
	/* What is no line is what an earlier connection left of one. */
	if (id == NULL || verb == NULL || strlen(id) > LINE_ID_BYTES) return;
	reply.text[0] = 0;
	int error = ENOSYS;
	for (size_t at = 0; at < sizeof VERBS / sizeof VERBS[0]; at++) {
		if (machine->guest && !VERBS[at].in_guest) continue;
		if (strcmp(VERBS[at].name, verb) == 0) error = VERBS[at].run(machine, rest, &reply);
	}
	if (error == LATER) strcpy(machine->flush_id, id);
	else answer(machine, id, error, &reply);
}

void lines_flushed(struct machine *machine) {
	static const struct reply nothing;
	answer(machine, machine->flush_id, disks_flushed(machine), &nothing);
}

static void handle_all(struct machine *machine) {
	size_t begin = 0;
	for (size_t at = 0; at < machine->line_length; at++) {
		if (machine->line[at] != '\n') continue;
		machine->line[at] = 0;
		if (!machine->line_skipped) handle(machine, machine->line + begin);
		machine->line_skipped = false;
		begin = at + 1;
	}
	machine->line_length -= begin;
	memmove(machine->line, machine->line + begin, machine->line_length);
	if (machine->line_length < sizeof machine->line) return;
	machine->line_skipped = true;
	machine->line_length = 0;
}

void lines_receive(struct machine *machine) {
	for (;;) {
		ssize_t got = read(machine->control, machine->line + machine->line_length, sizeof machine->line - machine->line_length);
		if (got <= 0) return;
		machine->line_length += (size_t)got;
		handle_all(machine);
	}
}

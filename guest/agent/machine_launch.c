/* The launcher of containers as the machine uses it: one sandbox, made of what the node says. host/cradle/README.md has its frames. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bytes.h"
#include "machine.h"

#define LAUNCHER "/dsec-cradle"
#define LINK 3
#define HEADER 8
/* The longest request, and the longest answer: a number and a text. */
#define BODY_LIMIT 65536u
#define ANSWER_LIMIT 4096u
/* Making a sandbox takes a moment; on an emulated processor some more. */
#define ANSWER_LIMIT_MS 60000

enum { CREATE = 1, HELLO = 64, CREATED = 65, FAILED = 66, EXITED = 67 };

struct answer {
	unsigned type;
	uint32_t number;
	char text[ANSWER_LIMIT];
};

static _Noreturn void run(int link) {
	static char *const words[] = {LAUNCHER, "/dsec-agent", "--shell=/bash", NULL};
	static char *const nothing[] = {NULL};
	/* It waits for its children, which a process that ignores their end cannot. */
	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	if (dup2(link, LINK) == LINK) execve(LAUNCHER, words, nothing);
	machine_end("start the launcher", errno);
}

static bool receive(int link, void *bytes, size_t size) {
	for (size_t at = 0; at < size;) {
		struct pollfd ready = {.fd = link, .events = POLLIN};
		if (poll(&ready, 1, ANSWER_LIMIT_MS) <= 0) return false;
		ssize_t got = read(link, (uint8_t *)bytes + at, size - at);
		if (got <= 0) return false;
		at += (size_t)got;
	}
	return true;
}

static void take_answer(int link, struct answer *answer) {
	uint8_t head[4 + HEADER + 4];
	if (!receive(link, head, sizeof head)) machine_end("the launcher is gone", EPIPE);
	uint32_t rest = get32(head) - HEADER - 4;
	*answer = (struct answer){.type = get16(head + 4), .number = get32(head + 12)};
	if (rest >= ANSWER_LIMIT || !receive(link, answer->text, rest)) machine_end("the launcher is broken", EPROTO);
}

void launch_start(struct machine *machine) {
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) machine_end("socket of the launcher", errno);
	pid_t pid = fork();
	if (pid < 0) machine_end("fork", errno);
	if (pid == 0) run(ends[1]);
	close(ends[1]);
	machine->cradle = ends[0];
	static struct answer answer;
	take_answer(machine->cradle, &answer);
	if (answer.type != HELLO) machine_end(answer.text, (int)answer.number);
}

int launch_request(struct machine *machine, const char *hex, char *step, size_t size) {
	static uint8_t frame[4 + HEADER + BODY_LIMIT];
	static struct answer answer;
	size_t body = strlen(hex) / 2;
	if (body > BODY_LIMIT || !hex_read(hex, frame + 4 + HEADER, body)) return EINVAL;
	put32(frame, (uint32_t)(HEADER + body));
	put16(frame + 4, CREATE);
	put16(frame + 6, 0);
	put32(frame + 8, 1);
	if (send(machine->cradle, frame, 4 + HEADER + body, MSG_NOSIGNAL) != (ssize_t)(4 + HEADER + body)) return EPIPE;
	take_answer(machine->cradle, &answer);
	if (answer.type == CREATED) {
		machine->sandbox = (int)answer.number;
		return 0;
	}
	snprintf(step, size, "%s", answer.text);
	return answer.type == FAILED ? (int)answer.number : EPROTO;
}

void launch_event(struct machine *machine) {
	struct pollfd ready = {.fd = machine->cradle, .events = POLLIN};
	static struct answer answer;
	while (poll(&ready, 1, 0) > 0) {
		take_answer(machine->cradle, &answer);
		if (answer.type == EXITED) machine_end("the agent has ended", 0);
	}
}

/* The small second process: it lives in the sandbox's cgroups with the sandbox's rights and makes every child of the agent. */
#ifndef SPAWNER_H
#define SPAWNER_H

#include <stdint.h>

#include "agent.h"

/* A START body up to this size travels in the message, a larger one in a memory file. */
#define INLINE_BODY 32768u
/* report, stdout, stderr, stdin, marker, body */
#define PASSED_LIMIT 6

struct spawn_message {
	uint32_t body_size;
	uint8_t has_input, has_marker, has_file;
	uint8_t zero;
};

/* What a report says: stage 0 and the pid, or the stage that failed and its errno. */
struct report {
	uint8_t stage;
	uint8_t zero[3];
	int32_t value;
};

struct spawn {
	const uint8_t *body;
	uint32_t body_size;
	int report, out, err, input, marker, file; /* -1: none */
};

/* Never returns. `socket` is a SOCK_SEQPACKET; the cgroup.procs files are descriptors 4 and following. */
_Noreturn void spawner_main(const struct options *options, int socket);

/* confine.c: gives up what the sandbox must not have. 0 or an errno. */
int confine(int cgroups);

/* seccomp.c: 0 or an errno. Needs CAP_SYS_ADMIN over the own user namespace. */
int seccomp_install(void);

/* child.c: becomes the command or carries out the file action. */
_Noreturn void child_main(const struct options *options, const struct spawn *spawn);

#endif

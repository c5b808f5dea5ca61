/* The small second process: it lives in the sandbox's cgroups with the sandbox's rights and makes every child of the agent. */
#ifndef SPAWNER_H
#define SPAWNER_H

#include <stdint.h>

#include "agent.h"

/* A START body up to this size travels in the message, a larger one in a memory file. */
#define INLINE_BODY 32768u

/* The descriptors of a start, in the order in which they are passed. Which are there says a bit each. */
enum passed {
	PASSED_REPORT,
	PASSED_OUT, /* stdout, or the terminal that stands for all three */
	PASSED_ERR,
	PASSED_INPUT,
	PASSED_MARKER,
	PASSED_CONTROL, /* of a session: the socket that its lines come from, and its shell */
	PASSED_SHELL,
	PASSED_FILE, /* a body that is not in the message */
	PASSED_LIMIT,
};

struct spawn_message {
	uint32_t body_size;
	uint32_t passed;
};

/* What a spawner tells in the form of a report: the listener of its filter comes with it. */
#define SAYS_LISTENER 255

/* What a report says: stage 0 and the pid, or the stage that failed and its errno. */
struct report {
	uint8_t stage;
	uint8_t zero[3];
	int32_t value;
};

struct spawn {
	const uint8_t *body;
	uint32_t body_size;
	int fds[PASSED_LIMIT]; /* -1: none */
};

/* Never returns. `socket` is a SOCK_SEQPACKET; the cgroup.procs files are descriptors 4 and following. */
_Noreturn void spawner_main(const struct options *options, int socket);

/* confine.c: goes where the sandbox's limits hold. 0 or an errno. */
int confine_place(const struct options *options);
/* confine.c: gives up what the sandbox must not have. 0 or an errno; `listener` as of the filter. */
int confine_rights(const struct options *options, int *listener);

/*
 * seccomp.c: 0 or an errno. Needs CAP_SYS_ADMIN over the own user namespace. `listener` hears of sysinfo(2); -1: nobody does. NULL: it
 * is not wanted.
 */
int seccomp_install(int *listener);
/* The filter without a listener as the kernel takes it, for programs that install it themselves; `size` in bytes. */
const void *seccomp_program(size_t *size);

/* spawner.c: nothing of other tasks may be left in a process that its user may look into. */
void spawner_wipe(void);

/* child.c: gives up the spawner's protection from the kernel's memory killer. 0 or an errno. */
int become_killable(void);

/* child.c: becomes the command or carries out the file action. */
_Noreturn void child_main(const struct options *options, const struct spawn *spawn);

#endif

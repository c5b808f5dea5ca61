/*
 * A blank: an agent that runs in namespaces of its own but has no sandbox yet. The launcher makes it ahead of need; what makes
 * it a sandbox comes later, as one message on descriptor 4.
 */
#ifndef BLANK_H
#define BLANK_H

enum {
	BLANK_SOCKET = 4,
	/* Where doors of cgroups belong: the first takes the place of the socket. */
	BLANK_FIRST_DOOR = 4,
	BLANK_DOOR_LIMIT = 16,
	BLANK_TEXT_BYTES = 4096,
	BLANK_ARGUMENT_LIMIT = 66,
};

/* What a message says for the agent: its command line, as if it had been started with it. */
struct filling {
	int argc;
	char *argv[BLANK_ARGUMENT_LIMIT];
	char texts[BLANK_TEXT_BYTES];
};

/* Keeps the descriptors of the doors free for them, before any other is opened, and says that the blank is ready. 0 or -1. */
int blank_ready(void);

/*
 * Takes the message: host name and arguments, each with its NUL, and descriptors: the root directory, then the doors. 0 when the
 * root, the host name and the descriptors are what it says; descriptor 4 is then a door or closed, which tells the launcher.
 * -1 when the launcher is gone or a step failed: nothing can become of this agent.
 */
int blank_fill(struct filling *filling);

#endif

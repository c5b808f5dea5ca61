#include "blank.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PASSED_LIMIT = 1 + BLANK_DOOR_LIMIT };

int blank_ready(void) {
	for (int at = 1; at < BLANK_DOOR_LIMIT; at++) {
		if (dup3(0, BLANK_FIRST_DOOR + at, O_CLOEXEC) < 0) return -1;
	}
	return send(BLANK_SOCKET, "r", 1, MSG_NOSIGNAL) == 1 ? 0 : -1;
}

/* Number of descriptors received, the root first; -1 without one. */
static int receive(struct filling *filling, int fds[PASSED_LIMIT], size_t *size) {
	struct iovec piece = {filling->texts, sizeof filling->texts};
	union {
		char bytes[CMSG_SPACE(PASSED_LIMIT * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct msghdr message = {
		.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
	ssize_t got = recvmsg(BLANK_SOCKET, &message, MSG_CMSG_CLOEXEC);
	struct cmsghdr *passed = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	if (passed == NULL || passed->cmsg_type != SCM_RIGHTS || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return -1;
	*size = (size_t)got;
	size_t bytes = passed->cmsg_len - CMSG_LEN(0);
	memcpy(fds, CMSG_DATA(passed), bytes);
	return (int)(bytes / sizeof(int));
}

/* The first text is the host name; the others follow the program's name. */
static int split(struct filling *filling, size_t size) {
	static char name[] = "dsec-agent";
	if (filling->texts[size - 1] != 0) return -1;
	filling->argv[0] = name;
	filling->argc = 1;
	for (size_t at = strlen(filling->texts) + 1; at < size; at += strlen(filling->texts + at) + 1) {
		if (filling->argc == BLANK_ARGUMENT_LIMIT - 1) return -1;
		filling->argv[filling->argc++] = filling->texts + at;
	}
	filling->argv[filling->argc] = NULL;
	return 0;
}

static int enter(int root, const char *hostname) {
	if (fchdir(root) != 0 || chroot(".") != 0 || chdir("/") != 0) return -1;
	return close(root) == 0 ? sethostname(hostname, strlen(hostname)) : -1;
}

/* The first place is filled last: the launcher takes the end of its socket for success. */
static int place(const int *doors, int count) {
	for (int at = count - 1; at > 0; at--) {
		if (dup3(doors[at], BLANK_FIRST_DOOR + at, O_CLOEXEC) < 0 || close(doors[at]) != 0) return -1;
	}
	for (int at = count > 0 ? count : 1; at < BLANK_DOOR_LIMIT; at++) close(BLANK_FIRST_DOOR + at);
	if (count == 0) return close(BLANK_SOCKET);
	return dup3(doors[0], BLANK_FIRST_DOOR, O_CLOEXEC) < 0 ? -1 : close(doors[0]);
}

int blank_fill(struct filling *filling) {
	int fds[PASSED_LIMIT];
	size_t size = 0;
	int count = receive(filling, fds, &size);
	if (count < 1 || split(filling, size) != 0 || enter(fds[0], filling->texts) != 0) return -1;
	return place(fds + 1, count - 1);
}

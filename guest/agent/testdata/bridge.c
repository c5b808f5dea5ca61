/*
 * A bridge whose port is at its end behind the nonce, as it is for a kernel that has not heard yet that somebody has connected. Says what came out of the port, and
 * whether words of the node reach the agent. The agent listens in the current directory.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../agent.h"
#include "../machine.h"

static struct machine machine;

void lines_tell(struct machine *m, const char *text) {
	(void)m;
	printf("told %s\n", text);
}

void close_fd(int *fd) {
	if (*fd >= 0) close(*fd);
	*fd = -1;
}

static int listen_here(void) {
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = AGENT_SOCKET};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 1) == 0 ? fd : -1;
}

int main(void) {
	uint8_t nonce[NONCE_BYTES], echoed[NONCE_BYTES];
	char word[8] = "";
	int ends[2], listener = listen_here();
	memset(nonce, 7, sizeof nonce);
	if (listener < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 2;
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	machine.port = ends[0];
	machine.agent = -1;
	if (bridge_open(&machine, nonce) != 0) return 3;
	int agent = accept(listener, NULL, NULL);
	if (write(ends[1], nonce, sizeof nonce) != sizeof nonce || write(ends[1], "hello", 5) != 5) return 4;
	shutdown(ends[1], SHUT_WR);
	bridge_pump(&machine);
	bool whole = recv(ends[1], echoed, sizeof echoed, MSG_DONTWAIT) == sizeof echoed && memcmp(nonce, echoed, sizeof nonce) == 0;
	printf("echo %s\n", whole ? "whole" : "missing");
	printf("heard %s\n", recv(agent, word, 5, MSG_DONTWAIT) == 5 ? word : "nothing");
	printf("agent %s\n", machine.agent >= 0 ? "kept" : "dropped");
	return 0;
}

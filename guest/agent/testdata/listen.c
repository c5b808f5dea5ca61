/*
 * Starts a program as the cradle starts an agent: a listening Unix socket as descriptor 3, the files named by --open (write-only)
 * and --read from 4 on, nothing else. usage: listen SOCKET [--open FILE | --read FILE]... PROGRAM [ARGUMENT]...
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTENER 3
#define SPARE 64
#define NEW ".new"

int main(int argc, char **argv) {
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (argc < 3 || strlen(argv[1]) + sizeof NEW > sizeof address.sun_path) return 64;
	/* An agent of a test that was killed ends its tasks and itself. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	memcpy(address.sun_path, argv[1], strlen(argv[1]));
	memcpy(address.sun_path + strlen(argv[1]), NEW, sizeof NEW);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 256) != 0) return 71;
	/* Whoever sees the name can connect. */
	if (rename(address.sun_path, argv[1]) != 0) return 71;
	int at = 2, next = LISTENER + 1;
	int listener = fcntl(fd, F_DUPFD, SPARE);
	close_range(LISTENER, SPARE - 1, 0);
	if (dup2(listener, LISTENER) != LISTENER) return 71;
	for (; at + 1 < argc && (strcmp(argv[at], "--open") == 0 || strcmp(argv[at], "--read") == 0); at += 2) {
		int file = open(argv[at + 1], argv[at][2] == 'o' ? O_WRONLY : O_RDONLY);
		if (file < 0 || (file != next && dup2(file, next) < 0)) return 66;
		next++;
	}
	close_range((unsigned)next, ~0u, 0);
	execvp(argv[at], argv + at);
	return errno == ENOENT ? 127 : 126;
}

/* The agent of a machine that is a sandbox as a whole: root of its system is root of the sandbox, and nothing is taken from it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "machine.h"

#define LISTENER 3
#define SHELL 4
#define BACKLOG 8

/* What sessions run: bash, which lies beside the agent where the system may have none. */
static const char *const shells[] = {"/usr/lib/dsec/bash", "/bin/bash", "/usr/bin/bash"};

static int open_shell(void) {
	for (size_t at = 0; at < sizeof shells / sizeof shells[0]; at++) {
		int fd = open(shells[at], O_RDONLY | O_CLOEXEC);
		if (fd >= 0) return fd;
	}
	return -1;
}

static int listen_at(const char *path) {
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	strncpy(address.sun_path, path, sizeof address.sun_path - 1);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	unlink(path);
	mode_t mask = umask(0177);
	bool listens = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, BACKLOG) == 0;
	int error = errno;
	umask(mask);
	if (!listens) machine_end(path, error);
	return fd;
}

static _Noreturn void run(const char *program, int listener, int shell) {
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	/* Out of the way of the places that they take. */
	int listens = fcntl(listener, F_DUPFD_CLOEXEC, SHELL + 1), runs = fcntl(shell, F_DUPFD_CLOEXEC, SHELL + 1);
	if (listens >= 0 && runs >= 0 && dup2(listens, LISTENER) == LISTENER && dup2(runs, SHELL) == SHELL) {
		execl(program, program, "--whole", "--shell=4", (char *)NULL);
	}
	_exit(126);
}

int guest_start_agent(const char *program) {
	int listener = listen_at(AGENT_SOCKET), shell = open_shell();
	if (shell < 0) machine_end("no shell", ENOENT);
	pid_t pid = fork();
	if (pid < 0) machine_end("fork", errno);
	if (pid == 0) run(program, listener, shell);
	close(listener);
	close(shell);
	return pid;
}

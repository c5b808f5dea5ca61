/*
 * cradle-hold-dead PID...: kills the processes and keeps their parent from collecting them until stdin ends. Says `held` on stdout when
 * all are dead: their descriptors are closed by then, and only a tracer has heard of it.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t pid_of(const char *text)
{
	return (pid_t)atoi(text);
}

static int hold(pid_t pid)
{
	siginfo_t info;

	if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) || kill(pid, SIGKILL))
		return -1;
	return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | __WALL);
}

int main(int argc, char **argv)
{
	char byte;

	for (int at = 1; at < argc; at++)
		if (hold(pid_of(argv[at]))) {
			perror(argv[at]);
			return 1;
		}
	if (puts("held") < 0 || fflush(stdout))
		return 1;
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	for (int at = 1; at < argc; at++)
		waitpid(pid_of(argv[at]), NULL, __WALL);
	return 0;
}

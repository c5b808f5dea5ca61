/* sysinfo(2): `bad` hands in an address that is none, `many` asks from many processes at once, `dying` is killed while it asks. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 24, CALLS = 50 };

static int ask_often(void)
{
	struct sysinfo first, info;

	if (sysinfo(&first))
		return 1;
	for (int at = 0; at < CALLS; at++)
		if (sysinfo(&info) || info.totalram != first.totalram || info.mem_unit != 1)
			return 1;
	return 0;
}

static void ask_for_ever(void)
{
	struct sysinfo info;

	for (;;)
		sysinfo(&info);
}

static int many(void)
{
	int failed = 0, status;

	for (int at = 0; at < PROCESSES; at++)
		if (fork() == 0)
			_exit(ask_often());
	while (wait(&status) > 0)
		failed += status != 0;
	printf("%d failed\n", failed);
	return 0;
}

static int dying(void)
{
	for (int at = 0; at < PROCESSES; at++) {
		pid_t child = fork();

		if (child == 0)
			ask_for_ever();
		usleep(1000);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	printf("all gone\n");
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "many") == 0)
		return many();
	if (argc > 1 && strcmp(argv[1], "dying") == 0)
		return dying();
	if (syscall(SYS_sysinfo, (void *)8) == 0)
		printf("taken\n");
	else
		printf("%s\n", strerror(errno));
	return 0;
}

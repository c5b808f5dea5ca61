/*
 * What the kernel counts for a user: inotify instances, message queues, queued signals. `take` takes all that it can get of each, says
 * "taken" and keeps it until it is killed; without a word one of each is taken, and said what came of it.
 */
#include <errno.h>
#include <mqueue.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <unistd.h>

static int take_inotify(void)
{
	return inotify_init1(IN_CLOEXEC) < 0 ? errno : 0;
}

static int take_queue(void)
{
	static int count;
	char name[32];

	snprintf(name, sizeof name, "/%d-%d", getpid(), count++);
	return mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, NULL) < 0 ? errno : 0;
}

static int take_signal(void)
{
	return sigqueue(getpid(), SIGRTMIN, (union sigval){ 0 }) ? errno : 0;
}

int main(int argc, char **argv)
{
	static int (*const takes[])(void) = { take_inotify, take_queue, take_signal };
	int all = argc > 1 && strcmp(argv[1], "take") == 0;
	struct rlimit limit;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &set, NULL);
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	for (size_t at = 0; at < sizeof takes / sizeof *takes; at++) {
		int error = takes[at]();

		while (all && error == 0)
			error = takes[at]();
		if (!all)
			printf("%s\n", error == 0 ? "ok" : strerror(error));
	}
	if (all) {
		puts("taken");
		fflush(stdout);
		pause();
	}
	return 0;
}

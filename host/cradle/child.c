#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "root.h"

enum {
	LISTENER_FD = 3,
	FIRST_CGROUP_FD = 4,
	/* Above every descriptor that the agent inherits. */
	SPARE_FD = FIRST_CGROUP_FD + MAX_CGROUPS,
};

static int await_worker(int worker, struct fault *fault)
{
	char go;

	if (recv(worker, &go, 1, 0) == 1)
		return 0;
	errno = ECANCELED;
	return fault_set(fault, "wait for the worker");
}

static int take_identity(const struct request *request, struct fault *fault)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	umask(022);
	if (setgroups(0, NULL) || setresgid(0, 0, 0) || setresuid(0, 0, 0) || setsid() < 0)
		return fault_set(fault, "become root of the sandbox");
	return sethostname(request->hostname, strlen(request->hostname)) ? fault_set(fault, "set the host name") : 0;
}

static int raise_fd(int fd)
{
	return fcntl(fd, F_DUPFD_CLOEXEC, SPARE_FD);
}

/* Out of the way first, then into place: the numbers wanted may be those given. */
static int arrange(const struct inheritance *inheritance, int *agent, struct fault *fault)
{
	int listener = raise_fd(inheritance->listener);
	int cgroups[MAX_CGROUPS];
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	*agent = raise_fd(*agent);
	for (unsigned at = 0; at < inheritance->cgroup_count; at++)
		cgroups[at] = raise_fd(inheritance->cgroups[at]);
	for (int fd = 0; fd < LISTENER_FD; fd++)
		if (null < 0 || dup2(null, fd) < 0)
			return fault_set(fault, "open /dev/null");
	if (*agent < 0 || dup2(listener, LISTENER_FD) < 0)
		return fault_set(fault, "arrange descriptors");
	for (unsigned at = 0; at < inheritance->cgroup_count; at++)
		if (dup2(cgroups[at], FIRST_CGROUP_FD + (int)at) < 0)
			return fault_set(fault, "arrange descriptors");
	if (close_range(FIRST_CGROUP_FD + inheritance->cgroup_count, UINT_MAX, CLOSE_RANGE_CLOEXEC))
		return fault_set(fault, "close descriptors");
	return 0;
}

static void become_agent(int agent, const struct request *request, unsigned cgroup_count)
{
	static char *const NO_ENVIRONMENT[] = { NULL };
	char name[] = "dsec-agent", cgroups[32];
	char *argv[MAX_ARGUMENTS + 3] = { name, cgroups };

	snprintf(cgroups, sizeof cgroups, "--cgroups=%u", cgroup_count);
	for (unsigned at = 0; at < request->argument_count; at++)
		argv[at + 2] = (char *)request->arguments[at];
	execveat(agent, "", argv, NO_ENVIRONMENT, AT_EMPTY_PATH);
}

static int run(const struct cradle *cradle, const struct request *request, const struct inheritance *inheritance,
	       int *worker, struct fault *fault)
{
	int agent = cradle->agent;

	if (await_worker(*worker, fault) || take_identity(request, fault) || root_prepare(request, fault) ||
	    await_worker(*worker, fault) || root_enter(fault))
		return -1;
	/* The worker's descriptor may sit where the agent's belong; its copy above them lives until exec. */
	*worker = raise_fd(*worker);
	if (arrange(inheritance, &agent, fault))
		return -1;
	become_agent(agent, request, inheritance->cgroup_count);
	return fault_set(fault, "run the agent");
}

_Noreturn void child_run(const struct cradle *cradle, const struct request *request, const struct inheritance *inheritance)
{
	struct fault fault = { 0 };
	int worker = inheritance->worker;

	run(cradle, request, inheritance, &worker, &fault);
	send(worker, &fault, sizeof fault, MSG_NOSIGNAL);
	_exit(1);
}

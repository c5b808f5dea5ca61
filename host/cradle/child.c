#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "root.h"

enum {
	LISTENER_FD = 3,
	WORKER_FD = 4,
	/* Above the doors of cgroups, which come later: see guest/agent/blank.h. */
	SHELL_FD = 20,
	/* Above every descriptor that the agent inherits. */
	SPARE_FD = 21,
};

static int await_worker(int worker, struct fault *fault)
{
	char go;

	if (recv(worker, &go, 1, 0) == 1)
		return 0;
	errno = ECANCELED;
	return fault_set(fault, "wait for the worker");
}

static int take_identity(struct fault *fault)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	umask(022);
	if (setgroups(0, NULL) || setresgid(0, 0, 0) || setresuid(0, 0, 0) || setsid() < 0)
		return fault_set(fault, "become root of the sandbox");
	return 0;
}

static int raise_fd(int fd)
{
	return fcntl(fd, F_DUPFD_CLOEXEC, SPARE_FD);
}

/* Out of the way first, then into place: the numbers wanted may be those given. */
static int arrange(int *listener, int *worker, int *agent, int shell, struct fault *fault)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	*listener = raise_fd(*listener);
	*worker = raise_fd(*worker);
	*agent = raise_fd(*agent);
	for (int fd = 0; fd < LISTENER_FD; fd++)
		if (null < 0 || dup2(null, fd) < 0)
			return fault_set(fault, "open /dev/null");
	if (*agent < 0 || dup2(*listener, LISTENER_FD) < 0 || dup2(*worker, WORKER_FD) < 0)
		return fault_set(fault, "arrange descriptors");
	/* Whatever else is open belongs to the worker and to the sandboxes that it makes. */
	if (close_range(WORKER_FD + 1, UINT_MAX, CLOSE_RANGE_CLOEXEC))
		return fault_set(fault, "close descriptors");
	if (shell >= 0 && dup2(shell, SHELL_FD) < 0)
		return fault_set(fault, "arrange descriptors");
	return 0;
}

static int run(const struct cradle *cradle, const struct request *request, int listener, int *worker, struct fault *fault)
{
	static char *const NO_ENVIRONMENT[] = { NULL };
	char name[] = "dsec-agent", blank[] = "--blank", shell[] = "--shell=20";
	int agent = cradle->agent;

	_Static_assert(SHELL_FD == 20, "the number stands in the argument");
	if (await_worker(*worker, fault) || take_identity(fault) || root_prepare(request->shm_bytes, fault) ||
	    arrange(&listener, worker, &agent, cradle->shell, fault))
		return -1;
	execveat(agent, "", (char *[]){ name, blank, cradle->shell < 0 ? NULL : shell, NULL }, NO_ENVIRONMENT, AT_EMPTY_PATH);
	return fault_set(fault, "run the agent");
}

_Noreturn void child_run(const struct cradle *cradle, const struct request *request, const struct inheritance *inheritance)
{
	struct fault fault = { 0 };
	int worker = inheritance->worker;

	run(cradle, request, inheritance->listener, &worker, &fault);
	send(worker, &fault, sizeof fault, MSG_NOSIGNAL);
	_exit(1);
}

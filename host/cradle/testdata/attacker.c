/* Run as root of a sandbox: tries to get at process 1, prints `<attempt> <errno>` for each; 0 means that it got through. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void report(const char *attempt, long result)
{
	printf("%s %d\n", attempt, result < 0 ? errno : 0);
}

static void try_open(const char *path, int flags)
{
	int fd = open(path, flags);

	report(path, fd);
	close(fd);
}

static void try_link(const char *path)
{
	char target[256];

	report(path, readlink(path, target, sizeof target));
}

/* The classic way out of a chroot: below a root of its own, ".." has no end but the end of the mounts. */
static void escape_root(void)
{
	static const char *const OUTSIDE[] = { "private", "new", "stage", "empty" };
	pid_t pid = fork();

	if (pid > 0) {
		int status;

		waitpid(pid, &status, 0);
		return;
	}
	mkdir("/tmp/jail", 0700);
	if (chroot("/tmp/jail"))
		_exit(1);
	for (int step = 0; step < 64; step++)
		if (chdir(".."))
			_exit(1);
	for (size_t at = 0; at < sizeof OUTSIDE / sizeof *OUTSIDE; at++) {
		printf("escape-to-%s %d\n", OUTSIDE[at], access(OUTSIDE[at], F_OK) ? errno : 0);
		fflush(stdout);
	}
	_exit(0);
}

int main(void)
{
	char byte;
	struct iovec here = { &byte, 1 }, there = { (void *)0x400000, 1 };
	int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);

	report("ptrace", ptrace(PTRACE_SEIZE, 1, NULL, NULL));
	report("vm-read", process_vm_readv(1, &here, 1, &there, 1, 0));
	report("vm-write", process_vm_writev(1, &here, 1, &there, 1, 0));
	report("pidfd-getfd", syscall(SYS_pidfd_getfd, pidfd, 3, 0));
	try_open("/proc/1/mem", O_RDWR);
	try_open("/proc/1/maps", O_RDONLY);
	try_open("/proc/1/environ", O_RDONLY);
	try_open("/proc/1/fd/3", O_RDONLY);
	try_open("/proc/1/ns/mnt", O_RDONLY);
	try_link("/proc/1/exe");
	try_link("/proc/1/cwd");
	try_link("/proc/1/root");
	try_link("/proc/1/fd/3");
	report("mknod", mknod("/disk", S_IFBLK | 0600, makedev(254, 0)));
	report("chmod-null", chmod("/dev/null", 0600));
	report("make-in-dev", mknod("/dev/file", S_IFREG | 0600, 0));
	try_open("/proc/sys/kernel/hostname", O_WRONLY);
	try_open("/proc/sysrq-trigger", O_WRONLY);
	try_open("/sys/kernel/uevent_helper", O_WRONLY);
	fflush(stdout);
	escape_root();
	/* The kernel lets the caller believe that it worked: the test sees that the agent still answers. */
	kill(1, SIGKILL);
	return 0;
}

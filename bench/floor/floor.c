/*
 * floor N LOWER UPPERROOT: the least that a container can be, as a measure for everything above it: clone3 with mount, pid, ipc,
 * uts and net namespaces, an overlay of LOWER with a fresh upper, /proc, a tmpfs, pivot_root, exec of /bin/true, reap. No user
 * namespace, no cgroups, no limits, no devices. Prints the time of each of N rounds as one JSON array of microseconds.
 *
 * LOWER holds a static /bin/true and the directories proc and tmp. UPPERROOT is an empty directory that takes the uppers.
 */
#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NAMESPACES = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET };

static _Noreturn void fail(const char *what)
{
	perror(what);
	_exit(1);
}

static void make_dir(const char *path)
{
	if (mkdir(path, 0755) && errno != EEXIST)
		fail(path);
}

static void container(const char *lower, const char *root)
{
	char options[8192];
	char *const argv[] = { "true", NULL };
	char *const environment[] = { NULL };

	snprintf(options, sizeof options, "lowerdir=%s,upperdir=%s/upper,workdir=%s/work,volatile", lower, root, root);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || chdir(root))
		fail("private mounts");
	if (mount("overlay", "root", "overlay", 0, options) || chdir("root"))
		fail("overlay");
	if (mount("proc", "proc", "proc", 0, NULL) || mount("tmpfs", "tmp", "tmpfs", 0, NULL))
		fail("proc and tmpfs");
	if (syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) || chdir("/"))
		fail("pivot_root");
	execve("/bin/true", argv, environment);
	fail("/bin/true");
}

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static uint64_t round_us(const char *lower, const char *root)
{
	/* The parent sleeps until exec: no copy of its memory is ever needed. */
	struct clone_args args = { .flags = NAMESPACES | CLONE_VFORK, .exit_signal = SIGCHLD };
	uint64_t start = now_us();
	long pid = syscall(SYS_clone3, &args, sizeof args);
	int status;

	if (pid == 0)
		container(lower, root);
	if (pid < 0 || waitpid((pid_t)pid, &status, 0) != pid || status != 0)
		fail("a round");
	return now_us() - start;
}

static void make_root(const char *upper_root, int number, char *root, size_t size)
{
	static const char *const PARTS[] = { "", "/upper", "/work", "/root" };
	char path[4096];

	snprintf(root, size, "%s/%d", upper_root, number);
	for (size_t at = 0; at < sizeof PARTS / sizeof *PARTS; at++) {
		snprintf(path, sizeof path, "%.4000s%s", root, PARTS[at]);
		make_dir(path);
	}
}

int main(int argc, char **argv)
{
	int rounds = argc == 4 ? atoi(argv[1]) : 0;
	char root[4000];

	if (rounds <= 0) {
		fprintf(stderr, "usage: floor N LOWER UPPERROOT\n");
		return 2;
	}
	for (int at = 0; at < rounds; at++) {
		make_root(argv[3], at, root, sizeof root);
		printf("%s%llu", at == 0 ? "[" : ",", (unsigned long long)round_us(argv[2], root));
	}
	printf("]\n");
	return 0;
}

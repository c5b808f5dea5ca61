/* What a machine that was copied must not share with its copies. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/random.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "machine.h"

#define SEED_BYTES 64
#define HOSTS_BYTES 1024

/* SECONDS.NANOSECONDS since 1970. */
int identity_clock(const char *seconds) {
	char *rest = NULL;
	struct timespec now = {.tv_sec = (time_t)strtoll(seconds, &rest, 10)};
	if (*rest == '.') now.tv_nsec = strtol(rest + 1, &rest, 10);
	if (*rest != 0) return EINVAL;
	return clock_settime(CLOCK_REALTIME, &now) != 0 ? errno : 0;
}

int identity_seed(const char *hex) {
	struct {
		struct rand_pool_info head;
		uint8_t bytes[SEED_BYTES];
	} seed = {.head = {.entropy_count = 8 * SEED_BYTES, .buf_size = SEED_BYTES}};
	if (!hex_read(hex, seed.bytes, SEED_BYTES)) return EINVAL;
	int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
	if (fd < 0) return errno;
	/* The second makes the kernel use the first at once, not within minutes. */
	int error = ioctl(fd, RNDADDENTROPY, &seed) != 0 || ioctl(fd, RNDRESEEDCRNG) != 0 ? errno : 0;
	close(fd);
	return error;
}

/*
 * Within the sandbox's root, through no link of it. What is no plain file is left as it is: a sandbox that was copied in the middle of its life may
 * have put anything there.
 */
static int replace_text(int root, const char *path, const void *text, size_t size) {
	struct open_how how = {.flags = O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS};
	struct stat status;
	int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
	if (fd < 0) return 0;
	int error = 0;
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && (ftruncate(fd, 0) != 0 || write(fd, text, size) != (ssize_t)size)) error = errno;
	close(fd);
	return error;
}

/* There and back: this process has one thread. */
static int name_namespace(int agent, const char *hostname) {
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/ns/uts", agent);
	int own = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC), other = open(path, O_RDONLY | O_CLOEXEC), error = 0;
	if (own < 0 || other < 0 || setns(other, CLONE_NEWUTS) != 0) {
		error = errno;
	} else {
		if (sethostname(hostname, strlen(hostname)) != 0) error = errno;
		if (setns(own, CLONE_NEWUTS) != 0) error = errno;
	}
	if (own >= 0) close(own);
	if (other >= 0) close(other);
	return error;
}

int identity_name(int agent, const char *hostname, const char *hosts) {
	uint8_t text[HOSTS_BYTES];
	char line[HOSTS_BYTES], path[64];
	size_t size = strlen(hosts) / 2;
	if (size > sizeof text || !hex_read(hosts, text, size)) return EINVAL;
	int error = name_namespace(agent, hostname);
	if (error != 0) return error;
	snprintf(path, sizeof path, "/proc/%d/root", agent);
	int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0) return errno;
	int length = snprintf(line, sizeof line, "%s\n", hostname);
	error = replace_text(root, "etc/hostname", line, (size_t)length);
	if (error == 0) error = replace_text(root, "etc/hosts", text, size);
	close(root);
	return error;
}

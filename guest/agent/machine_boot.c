/* From a bare kernel to a machine that can make a sandbox. What is mounted here stays out of every sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent.h"
#include "machine.h"

/* Names of modules in the order in which they need each other, a line each. */
#define MODULES "/modules/list"
#define MODULES_BYTES 4096
/* What commands inherit, as on most machines. */
#define SOFT_DESCRIPTORS 1024
#define HARD_DESCRIPTORS 1048576
#define SOFT_LOCKED_BYTES (8u << 20)

static const struct {
	const char *type, *target, *options;
	unsigned long flags;
} MOUNTS[] = {
	{"proc", "/proc", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC},
	{"sysfs", "/sys", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC},
	{"devtmpfs", "/dev", "mode=0755", MS_NOSUID | MS_NOEXEC},
	{"tmpfs", "/run", "mode=0700,size=1m", MS_NOSUID | MS_NODEV | MS_NOEXEC},
	{"cgroup2", "/sys/fs/cgroup", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC},
};

static void mount_all(void) {
	for (size_t at = 0; at < sizeof MOUNTS / sizeof MOUNTS[0]; at++) {
		if (mkdir(MOUNTS[at].target, 0755) != 0 && errno != EEXIST) machine_end(MOUNTS[at].target, errno);
		if (mount(MOUNTS[at].type, MOUNTS[at].target, MOUNTS[at].type, MOUNTS[at].flags, MOUNTS[at].options) != 0) {
			machine_end(MOUNTS[at].target, errno);
		}
	}
}

static void load_modules(void) {
	char list[MODULES_BYTES], path[128];
	if (!read_text(MODULES, list, sizeof list)) machine_end(MODULES, errno);
	for (char *rest = NULL, *name = strtok_r(list, "\n", &rest); name != NULL; name = strtok_r(NULL, "\n", &rest)) {
		snprintf(path, sizeof path, "/modules/%s", name);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) != 0 && errno != EEXIST)) machine_end(name, errno);
		close(fd);
	}
}

/* The kernel's first root can be neither left nor changed, as the launcher has to: the same files, mounted over it, can. */
static void move_root(void) {
	if (mkdir("/root", 0700) != 0 && errno != EEXIST) machine_end("/root", errno);
	if (mount("/", "/root", NULL, MS_BIND | MS_REC, NULL) != 0) machine_end("bind the root", errno);
	if (chdir("/root") != 0 || mount(".", "/", NULL, MS_MOVE, NULL) != 0) machine_end("move the root", errno);
	if (chroot(".") != 0 || chdir("/") != 0) machine_end("enter the root", errno);
}

static void make_cgroups(void) {
	if (machine_write("/sys/fs/cgroup/cgroup.subtree_control", "+cpu +memory +pids") != 0) machine_end("cgroups", errno);
	if (mkdir("/sys/fs/cgroup/agents", 0755) != 0) machine_end("cgroup of agents", errno);
}

/* What a sandbox may ask for is up to its limits, not to this process. */
static void raise_limits(void) {
	static const struct {
		int resource;
		struct rlimit value;
	} limits[] = {
		{RLIMIT_NOFILE, {SOFT_DESCRIPTORS, HARD_DESCRIPTORS}},
		{RLIMIT_MEMLOCK, {SOFT_LOCKED_BYTES, RLIM_INFINITY}},
		{RLIMIT_NPROC, {RLIM_INFINITY, RLIM_INFINITY}},
	};
	for (size_t at = 0; at < sizeof limits / sizeof limits[0]; at++) {
		if (setrlimit(limits[at].resource, &limits[at].value) != 0) machine_end("limits of processes", errno);
	}
}

void machine_boot(void) {
	umask(022);
	mount_all();
	load_modules();
	move_root();
	make_cgroups();
	raise_limits();
}

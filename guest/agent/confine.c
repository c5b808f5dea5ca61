/*
 * Giving up rights: limits by cgroup, the view of them, system calls, capabilities, files by AppArmor. Fails closed: the first
 * error ends it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "spawner.h"

#define FIRST_CGROUP 4

/* What containers of the field leave to root: enough for package managers and su, nothing about the machine. */
static const int kept[] = {
	CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FSETID,  CAP_FOWNER,           CAP_MKNOD,      CAP_NET_RAW, CAP_SETGID,
	CAP_SETUID, CAP_SETFCAP,      CAP_SETPCAP, CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT, CAP_KILL,    CAP_AUDIT_WRITE,
};

static uint64_t kept_mask(void) {
	uint64_t mask = 0;
	for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) mask |= 1ull << kept[i];
	return mask;
}

static int enter_cgroups(int count) {
	for (int fd = FIRST_CGROUP; fd < FIRST_CGROUP + count; fd++) {
		/* "0" is the writer itself, whatever its number elsewhere. */
		if (write(fd, "0", 1) != 1) return errno;
	}
	/* From here on the sandbox's cgroups are the roots it sees. */
	return count > 0 && unshare(CLONE_NEWCGROUP) != 0 ? errno : 0;
}

static int drop_bounding(uint64_t mask) {
	for (int capability = 0; capability < 64; capability++) {
		int present = prctl(PR_CAPBSET_READ, capability, 0, 0, 0);
		if (present < 0) break; /* beyond the kernel's last */
		if (present == 1 && !(mask >> capability & 1) && prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) return errno;
	}
	return 0;
}

static int drop_own(uint64_t mask) {
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	if (syscall(SYS_capget, &header, data) != 0) return errno;
	for (int word = 0; word < 2; word++) {
		uint32_t keep = (uint32_t)(mask >> (32 * word));
		data[word].permitted &= keep;
		data[word].effective = data[word].permitted;
		data[word].inheritable = 0;
	}
	/* Ambient ones leave with the inheritable. */
	return syscall(SYS_capset, &header, data) != 0 ? errno : 0;
}

/* At once, not at the next exec: children read the sandbox's own files before they run anything. */
static int enter_profile(const char *profile) {
	if (profile[0] == 0) return 0;
	char order[sizeof "changeprofile " + PROFILE_LIMIT];
	int length = snprintf(order, sizeof order, "changeprofile %s", profile);
	int fd = open("/proc/thread-self/attr/apparmor/current", O_WRONLY | O_CLOEXEC);
	if (fd < 0) return errno;
	int error = write(fd, order, (size_t)length) == length ? 0 : errno;
	close(fd);
	return error;
}

/*
 * A preference that children inherit and may change: the cgroups hold whatever they run on. So one that cannot be met (the
 * machine has lost these processors) is no reason to refuse.
 */
static void prefer_processors(const cpu_set_t *processors) {
	if (CPU_COUNT(processors) > 0) sched_setaffinity(0, sizeof *processors, processors);
}

int confine_place(const struct options *options) {
	prefer_processors(&options->processors);
	return enter_cgroups(options->cgroups);
}

int confine_rights(const struct options *options, int *listener) {
	if (options->whole) return 0;
	int error = seccomp_install(listener);
	if (error == 0) error = drop_bounding(kept_mask());
	if (error == 0) error = drop_own(kept_mask());
	/* Last: the profile knows only the capabilities that are left now. */
	if (error == 0) error = enter_profile(options->profile);
	return error;
}

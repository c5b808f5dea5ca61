/*
 * The filter on system calls: what the field's containers deny without extra capabilities. Numbers beyond the newest that was
 * judged fail as unknown, so that a newer kernel opens nothing. The kernel caches "always allowed" per number, so the
 * length of the list costs nothing where no argument is looked at; the calls with arguments to judge come first.
 */
#include <asm/unistd.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "spawner.h"

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "no system call numbers are known for this machine"
#endif

/* removexattrat: the newest call that was judged. */
#define NEWEST 466u
#define INSTRUCTIONS 256

#define NAMESPACES 0x7e020080u /* every CLONE_NEW*, time included */
#define XFS_SWAP_EXTENTS 0xc0c0586du
#define TERMINAL_INPUT 0x5412u /* TIOCSTI */
#define TERMINAL_LINUX 0x541cu /* TIOCLINUX */

/* Numbers that old headers lack; the same on every machine. */
enum {
	CALL_IO_URING_SETUP = 425,
	CALL_IO_URING_ENTER = 426,
	CALL_IO_URING_REGISTER = 427,
	CALL_OPEN_TREE = 428,
	CALL_MOVE_MOUNT = 429,
	CALL_FSOPEN = 430,
	CALL_FSCONFIG = 431,
	CALL_FSMOUNT = 432,
	CALL_FSPICK = 433,
	CALL_CLONE3 = 435,
	CALL_PIDFD_GETFD = 438,
	CALL_PROCESS_MADVISE = 440,
	CALL_MOUNT_SETATTR = 442,
	CALL_QUOTACTL_FD = 443,
	CALL_SET_MEMPOLICY_HOME_NODE = 450,
};

static const uint16_t denied[] = {
	__NR_acct, __NR_add_key, __NR_bpf, __NR_clock_settime, __NR_delete_module, __NR_fanotify_init,
	__NR_finit_module, __NR_get_mempolicy, __NR_init_module, __NR_kcmp, __NR_kexec_load, __NR_keyctl,
	__NR_lookup_dcookie, __NR_mbind, __NR_migrate_pages, __NR_mount, __NR_move_pages, __NR_nfsservctl,
	__NR_open_by_handle_at, __NR_perf_event_open, __NR_pivot_root, __NR_quotactl, __NR_reboot, __NR_request_key,
	__NR_set_mempolicy, __NR_setdomainname, __NR_sethostname, __NR_setns, __NR_settimeofday, __NR_swapoff, __NR_swapon,
	__NR_syslog, __NR_umount2, __NR_userfaultfd, __NR_vhangup, __NR_kexec_file_load,
#if defined(__x86_64__)
	__NR__sysctl, __NR_create_module, __NR_get_kernel_syms, __NR_ioperm, __NR_iopl, __NR_query_module, __NR_sysfs,
	__NR_uselib, __NR_ustat,
#endif
	CALL_IO_URING_SETUP, CALL_IO_URING_ENTER, CALL_IO_URING_REGISTER, CALL_OPEN_TREE, CALL_MOVE_MOUNT, CALL_FSOPEN,
	CALL_FSCONFIG, CALL_FSMOUNT, CALL_FSPICK, CALL_PIDFD_GETFD, CALL_PROCESS_MADVISE, CALL_MOUNT_SETATTR,
	CALL_QUOTACTL_FD, CALL_SET_MEMPOLICY_HOME_NODE,
};

/* Address-space layouts that change nothing about protection: plain, 32-bit uname, both, and the question itself. */
static const uint32_t personalities[] = {0x0, 0x8, 0x20000, 0x20008, 0xffffffff};

struct filter {
	struct sock_filter code[INSTRUCTIONS];
	unsigned short length;
};

static void emit(struct filter *f, uint16_t code, uint32_t k, uint8_t yes, uint8_t no) {
	f->code[f->length++] = (struct sock_filter){.code = code, .jt = yes, .jf = no, .k = k};
}

static void load(struct filter *f, size_t offset) { emit(f, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0); }
static void give(struct filter *f, uint32_t verdict) { emit(f, BPF_RET | BPF_K, verdict, 0, 0); }
static uint32_t error(uint32_t number) { return SECCOMP_RET_ERRNO | number; }

/* The low half: what the kernel looks at of a flag word, a command or a family. */
static void load_argument(struct filter *f, int index) {
	load(f, offsetof(struct seccomp_data, args) + (size_t)index * sizeof(uint64_t));
}

/* `call` with any of the bits in its argument is denied. */
static void deny_bits(struct filter *f, uint32_t call, int argument, uint32_t bits) {
	emit(f, BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4);
	load_argument(f, argument);
	emit(f, BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1);
	give(f, error(EPERM));
	give(f, SECCOMP_RET_ALLOW);
}

/* `call` with one of the values gets `listed`, with any other `unlisted`. */
static void judge_values(struct filter *f, uint32_t call, int argument, const uint32_t *values, size_t count, uint32_t listed,
			 uint32_t unlisted) {
	emit(f, BPF_JMP | BPF_JEQ | BPF_K, call, 0, (uint8_t)(count + 3));
	load_argument(f, argument);
	for (size_t i = 0; i < count; i++) {
		emit(f, BPF_JMP | BPF_JEQ | BPF_K, values[i], (uint8_t)(count - i), 0);
	}
	give(f, unlisted);
	give(f, listed);
}

static void build(struct filter *f, bool listens) {
	static const uint32_t commands[] = {XFS_SWAP_EXTENTS, TERMINAL_INPUT, TERMINAL_LINUX};
	/* The machine's sockets to its host, and the kernel's cipher interface. */
	static const uint32_t families[] = {AF_VSOCK, AF_ALG};
	load(f, offsetof(struct seccomp_data, arch));
	emit(f, BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
	give(f, SECCOMP_RET_KILL_PROCESS);
	load(f, offsetof(struct seccomp_data, nr));
	/* Also every x32 call, whose numbers begin at 2^30. */
	emit(f, BPF_JMP | BPF_JGT | BPF_K, NEWEST, 0, 1);
	give(f, error(ENOSYS));
	judge_values(f, __NR_ioctl, 1, commands, 3, error(EPERM), SECCOMP_RET_ALLOW);
	deny_bits(f, __NR_clone, 0, NAMESPACES & ~0x80u);
	judge_values(f, __NR_socket, 0, families, 2, error(EPERM), SECCOMP_RET_ALLOW);
	deny_bits(f, __NR_unshare, 0, NAMESPACES);
	judge_values(f, __NR_personality, 0, personalities, 5, SECCOMP_RET_ALLOW, error(EPERM));
	if (listens) {
		/* It would show the whole machine: the agent answers. */
		emit(f, BPF_JMP | BPF_JEQ | BPF_K, __NR_sysinfo, 0, 1);
		give(f, SECCOMP_RET_USER_NOTIF);
	}
	/* Its flags lie in memory where no filter sees them; programs fall back to clone. */
	emit(f, BPF_JMP | BPF_JEQ | BPF_K, CALL_CLONE3, 0, 1);
	give(f, error(ENOSYS));
	for (size_t i = 0; i < sizeof denied / sizeof denied[0]; i++) {
		emit(f, BPF_JMP | BPF_JEQ | BPF_K, denied[i], 0, 1);
		give(f, error(EPERM));
	}
	give(f, SECCOMP_RET_ALLOW);
}

static int install(unsigned flags, bool listens) {
	struct filter filter = {.length = 0};
	build(&filter, listens);
	struct sock_fprog program = {.len = filter.length, .filter = filter.code};
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

const void *seccomp_program(size_t *size) {
	static struct filter filter;
	filter.length = 0;
	build(&filter, false);
	*size = filter.length * sizeof filter.code[0];
	return filter.code;
}

int seccomp_install(int *listener) {
	if (listener == NULL) return install(0, false) != 0 ? errno : 0;
	*listener = install(SECCOMP_FILTER_FLAG_NEW_LISTENER, true);
	if (*listener >= 0) return 0;
	/* There can be one listener above a process: the node itself may live below somebody's. */
	return install(0, false) != 0 ? errno : 0;
}

/*
 * Tries, as the sandbox's root, what must not work inside. Prints one line an attempt: its name, then the name of the error that
 * stopped it, or `succeeded`. Each attempt runs in a child, so that one that succeeds does not change the next.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static long open_for(const char *path, int flags)
{
	return open(path, flags | O_CLOEXEC, 0600);
}

/* The agent */
static long ptrace_agent(void) { return ptrace(PTRACE_ATTACH, 1, NULL, NULL); }
static long seize_agent(void) { return ptrace(PTRACE_SEIZE, 1, NULL, NULL); }
static long agent_memory(void) { return open_for("/proc/1/mem", O_RDWR); }
static long agent_environment(void) { return open_for("/proc/1/environ", O_RDONLY); }
static long agent_maps(void) { return open_for("/proc/1/maps", O_RDONLY); }
static long agent_descriptors(void) { return open_for("/proc/1/fd", O_RDONLY | O_DIRECTORY); }
static long agent_root(void) { return open_for("/proc/1/root/", O_RDONLY | O_DIRECTORY); }
static long agent_program(void) { return open_for("/proc/1/exe", O_RDONLY); }

static long agent_oom(void)
{
	int fd = (int)open_for("/proc/1/oom_score_adj", O_WRONLY);

	return fd < 0 ? -1 : write(fd, "1000", 4);
}

static long agent_read(void)
{
	char byte;
	struct iovec mine = { &byte, 1 }, theirs = { (void *)0x400000, 1 };

	return process_vm_readv(1, &mine, 1, &theirs, 1, 0);
}

static long agent_descriptor(void)
{
	int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);

	return pidfd < 0 ? -1 : syscall(SYS_pidfd_getfd, pidfd, 3, 0);
}

static long limit_files(void) { return prlimit(1, RLIMIT_NOFILE, &(struct rlimit){ 4, 4 }, NULL); }

static long limit_files_as_agent(void)
{
	return setresgid(65534, 0, 0) ? -1 : limit_files();
}

static long slow_agent(void) { return setpriority(PRIO_PROCESS, 1, 19); }
static long bind_agent(void) { cpu_set_t first = { { 1 } }; return sched_setaffinity(1, sizeof first, &first); }
static long agent_timers(void) { int fd = (int)open_for("/proc/1/timerslack_ns", O_WRONLY); return write(fd, "9", 1); }
static long agent_program_write(void) { return open_for("/proc/1/exe", O_WRONLY); }
static long agent_through_link(void) { return symlink("/proc/1/exe", "/tmp/link") ? -1 : open_for("/tmp/link", O_RDONLY); }
static long agent_namespace(void) { return open_for("/proc/1/ns/mnt", O_RDONLY); }
static long agent_ids(void) { int fd = (int)open_for("/proc/1/uid_map", O_WRONLY); return write(fd, "0 0 1", 5); }

/* The classic way out of a root: a directory that is held while the root moves below it, then up and up. */
static long climb(const struct stat *top)
{
	struct stat reached;

	for (int step = 0; step < 64; step++)
		if (chdir(".."))
			return -1;
	if (chroot(".") || stat("/", &reached))
		return -1;
	errno = EXDEV;
	return reached.st_ino == top->st_ino && reached.st_dev == top->st_dev && access("/stage", F_OK) ? -1 : 0;
}

static long climb_by_path(void)
{
	struct stat top;

	mkdir("/tmp/jail", 0700);
	return stat("/", &top) || chdir("/") || chroot("/tmp/jail") ? -1 : climb(&top);
}

static long climb_by_descriptor(void)
{
	struct stat top;
	int held = (int)open_for("/", O_RDONLY | O_DIRECTORY);

	mkdir("/tmp/jail", 0700);
	return stat("/", &top) || chroot("/tmp/jail") || fchdir(held) ? -1 : climb(&top);
}

static long climb_from_mount(void)
{
	struct stat top;

	return stat("/", &top) || chdir("/dev/shm") || chroot("/dev/mqueue") ? -1 : climb(&top);
}

/* Other doors into the kernel: the 32-bit one and that of x32 */
static long old_door(void)
{
#if defined(__x86_64__)
	long result;

	__asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory");
	return result;
#else
	errno = ENOSYS;
	return -1;
#endif
}

static long x32_door(void) { return syscall(0x40000000L | SYS_getpid); }
static long future_call(void) { return syscall(467, -100, "/", 1, NULL, 0); }
static long no_layout(void) { return personality(0x0040000); }

/* Namespaces and mounts */
static long new_user_namespace(void) { return unshare(CLONE_NEWUSER); }
static long new_mount_namespace(void) { return unshare(CLONE_NEWNS); }
static long new_net_namespace(void) { return unshare(CLONE_NEWNET); }
static long clone_with_namespace(void) { return syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0); }
static long clone3_call(void) { return syscall(SYS_clone3, NULL, 0); }
static long join_namespace(void) { return setns((int)open_for("/proc/self/ns/mnt", O_RDONLY), 0); }
static long mount_tmpfs(void) { return syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, NULL); }
static long remount_root(void) { return syscall(SYS_mount, NULL, "/", NULL, 32 | 4096, NULL); }
static long unmount_proc(void) { return syscall(SYS_umount2, "/proc", 2); }
static long change_root(void) { return syscall(SYS_pivot_root, ".", "."); }
static long new_mount_api(void) { return syscall(SYS_fsopen, "tmpfs", 0); }
static long clone_tree(void) { return syscall(SYS_open_tree, -100, "/", OPEN_TREE_CLONE); }
static long change_mount(void) { return syscall(SYS_mount_setattr, -100, "/", 0, NULL, 0); }

/* The kernel */
static long load_module(void) { return syscall(SYS_init_module, "", 0, ""); }
static long load_kernel(void) { return syscall(SYS_kexec_load, 0, 0, NULL, 0); }
static long restart_machine(void) { return syscall(SYS_reboot, 0xfee1dead, 672274793, 0, NULL); }
static long load_program(void) { return syscall(SYS_bpf, 0, NULL, 0); }
static long watch_performance(void) { return syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0); }
static long use_keys(void) { return syscall(SYS_keyctl, 0, -3, 0); }
static long add_key(void) { return syscall(SYS_add_key, "user", "a", "b", 1, -3); }
static long use_ring(void) { return syscall(SYS_io_uring_setup, 1, NULL); }
static long fault_in_user_space(void) { return syscall(SYS_userfaultfd, 0); }
static long use_handle(void) { return syscall(SYS_open_by_handle_at, -100, NULL, 0); }
static long watch_files(void) { return syscall(SYS_fanotify_init, 0, 0); }
static long set_clock(void) { return settimeofday(&(struct timeval){ 0 }, NULL); }
static long swap_on(void) { return syscall(SYS_swapon, "/tmp/none", 0); }
static long account(void) { return syscall(SYS_acct, NULL); }
static long quota(void) { return syscall(SYS_quotactl, 0, NULL, 0, NULL); }
static long read_log(void) { char text[8]; return syscall(SYS_syslog, 3, text, 8); }
static long set_name(void) { return sethostname("x", 1); }
static long push_input(void) { return ioctl(0, TIOCSTI, "x"); }
static long host_socket(void) { return socket(AF_VSOCK, SOCK_STREAM, 0); }
static long crypto_socket(void) { return socket(AF_ALG, SOCK_SEQPACKET, 0); }

/* Files of the kernel and devices */
static long write_sysctl(void) { return open_for("/proc/sys/kernel/core_pattern", O_WRONLY); }
static long press_sysrq(void) { return open_for("/proc/sysrq-trigger", O_WRONLY); }
static long write_sys(void) { return open_for("/sys/kernel/uevent_helper", O_WRONLY | O_CREAT); }
static long add_to_dev(void) { return open_for("/dev/new", O_WRONLY | O_CREAT); }

/* A masked file is an empty one: it opens and holds nothing. */
static long read_kernel_memory(void)
{
	char byte;
	ssize_t got = read((int)open_for("/proc/kcore", O_RDONLY), &byte, 1);

	if (got == 0)
		errno = ENODATA;
	return got == 1 ? 0 : -1;
}

static long use_own_device(void)
{
	unlink("/tmp/memory");
	return mknod("/tmp/memory", S_IFCHR | 0600, makedev(1, 1)) < 0 ? -1 : open_for("/tmp/memory", O_RDONLY);
}

static long use_own_disk(void)
{
	unlink("/tmp/disk");
	return mknod("/tmp/disk", S_IFBLK | 0600, makedev(254, 0)) < 0 ? -1 : open_for("/tmp/disk", O_RDONLY);
}

/* What all sandboxes share */
static long change_null(void) { return chmod("/dev/null", 0600); }
/* Marks of the overlay */
static long hide_file(void) { return mknod("/tmp/whiteout", S_IFCHR, 0); }
static long mark_opaque(void) { return setxattr("/tmp", "trusted.overlay.opaque", "y", 1, 0); }

#define ATTACK(name) { #name, name }
static const struct {
	const char *name;
	long (*attempt)(void);
} attacks[] = {
	ATTACK(ptrace_agent), ATTACK(seize_agent), ATTACK(agent_memory), ATTACK(agent_environment), ATTACK(agent_maps),
	ATTACK(agent_descriptors), ATTACK(agent_root), ATTACK(agent_program), ATTACK(agent_oom), ATTACK(agent_read),
	ATTACK(agent_descriptor), ATTACK(new_user_namespace), ATTACK(new_mount_namespace), ATTACK(new_net_namespace),
	ATTACK(clone_with_namespace), ATTACK(clone3_call), ATTACK(join_namespace), ATTACK(mount_tmpfs), ATTACK(remount_root),
	ATTACK(unmount_proc), ATTACK(change_root), ATTACK(new_mount_api), ATTACK(clone_tree), ATTACK(change_mount),
	ATTACK(load_module), ATTACK(load_kernel), ATTACK(restart_machine), ATTACK(load_program), ATTACK(watch_performance),
	ATTACK(use_keys), ATTACK(add_key), ATTACK(use_ring), ATTACK(fault_in_user_space), ATTACK(use_handle),
	ATTACK(watch_files), ATTACK(set_clock), ATTACK(swap_on), ATTACK(account), ATTACK(quota), ATTACK(read_log),
	ATTACK(set_name), ATTACK(push_input), ATTACK(host_socket), ATTACK(crypto_socket), ATTACK(write_sysctl),
	ATTACK(press_sysrq), ATTACK(write_sys), ATTACK(read_kernel_memory), ATTACK(add_to_dev), ATTACK(use_own_device),
	ATTACK(use_own_disk), ATTACK(limit_files), ATTACK(limit_files_as_agent), ATTACK(slow_agent), ATTACK(bind_agent),
	ATTACK(agent_timers), ATTACK(agent_program_write), ATTACK(agent_through_link), ATTACK(agent_namespace),
	ATTACK(agent_ids), ATTACK(climb_by_path), ATTACK(climb_by_descriptor), ATTACK(climb_from_mount), ATTACK(old_door),
	ATTACK(x32_door), ATTACK(future_call), ATTACK(no_layout), ATTACK(change_null), ATTACK(hide_file),
	ATTACK(mark_opaque),
};

static void try_in_child(const char *name, long (*attempt)(void))
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		errno = 0;
		_exit(attempt() < 0 ? errno : 0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		printf("%s crashed\n", name);
	else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
		printf("%s SIGSYS\n", name);
	else if (!WIFEXITED(status))
		printf("%s crashed\n", name);
	else
		printf("%s %s\n", name, WEXITSTATUS(status) ? strerrorname_np(WEXITSTATUS(status)) : "succeeded");
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t index = 0; index < sizeof attacks / sizeof *attacks; index++)
		try_in_child(attacks[index].name, attacks[index].attempt);
	return 0;
}

/* Who a sandbox is to its own programs: its machine-id, and the boot id that the kernel shows, which it makes once and copies with a machine. */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "machine.h"

#define ID_BYTES 16
#define ID_TEXT (2 * ID_BYTES)
#define MACHINE_ID "etc/machine-id"
#define BOOT_ID "proc/sys/kernel/random/boot_id"
#define BOOT_ID_SOURCE "/run/boot-id-XXXXXX"

static bool random_hex(char text[ID_TEXT + 1]) {
	uint8_t bytes[ID_BYTES];
	if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return false;
	/* Version and variant of a random UUID, which both files hold. */
	bytes[6] = (uint8_t)((bytes[6] & 0x0f) | 0x40);
	bytes[8] = (uint8_t)((bytes[8] & 0x3f) | 0x80);
	for (size_t at = 0; at < ID_BYTES; at++) snprintf(text + 2 * at, 3, "%02x", bytes[at]);
	return true;
}

/* A file of a new boot id, as a mount that can be put anywhere, and that nobody writes to; -1 with errno. */
static int boot_id_tree(void) {
	struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY};
	char hex[ID_TEXT + 1], text[ID_TEXT + 8], source[] = BOOT_ID_SOURCE;
	if (!random_hex(hex)) return -1;
	int length = snprintf(text, sizeof text, "%.8s-%.4s-%.4s-%.4s-%.12s\n", hex, hex + 8, hex + 12, hex + 16, hex + 20);
	/* It keeps its name: what has none can neither be mounted nor, by a copy of this machine, be mounted over. */
	int file = mkostemp(source, O_CLOEXEC);
	if (file < 0) return -1;
	bool whole = write(file, text, (size_t)length) == length && fchmod(file, 0444) == 0;
	close(file);
	int tree = whole ? (int)syscall(SYS_open_tree, AT_FDCWD, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC) : -1;
	if (tree < 0) return -1;
	if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes) == 0) return tree;
	close(tree);
	return -1;
}

/*
 * As root of the sandbox, within its root and through no link. What is no plain file is left as it is, and so is a system without /etc. Written over: a full disk
 * takes what was there before in the same size.
 */
static int write_machine_id(int root) {
	struct open_how how = {
		.flags = O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, .mode = 0444, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS};
	char text[ID_TEXT + 2];
	struct stat status;
	if (!random_hex(text)) return EIO;
	strcpy(text + ID_TEXT, "\n");
	int fd = (int)syscall(SYS_openat2, root, MACHINE_ID, &how, sizeof how), error = 0;
	if (fd < 0) return errno == ENOSPC || errno == EDQUOT ? errno : 0;
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
		bool whole = write(fd, text, ID_TEXT + 1) == ID_TEXT + 1 && ftruncate(fd, ID_TEXT + 1) == 0;
		if (!whole) error = errno == 0 ? ENOSPC : errno;
	}
	close(fd);
	return error;
}

static int open_namespace(int process, const char *name) {
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/ns/%s", process, name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* In a process of its own: there is no way back out of another user's namespaces. `apart`: the sandbox has such. */
static int become(int agent, int boot_id, bool apart) {
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/root", agent);
	int mounts = open_namespace(agent, "mnt"), users = open_namespace(agent, "user");
	int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (mounts < 0 || users < 0 || root < 0) return errno;
	int place = openat(root, BOOT_ID, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (place < 0 || setns(mounts, CLONE_NEWNS) != 0) return errno;
	unsigned both = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
	if (boot_id >= 0 && syscall(SYS_move_mount, boot_id, "", place, "", both) != 0) return errno;
	if (apart && (setns(users, CLONE_NEWUSER) != 0 || setgid(0) != 0 || setuid(0) != 0)) return errno;
	umask(0);
	return write_machine_id(root);
}

int identity_person(const struct machine *machine, bool was_another) {
	int ends[2], error = EIO, boot_id = was_another ? boot_id_tree() : -1;
	if (was_another && boot_id < 0) return errno == 0 ? EIO : errno;
	if (pipe2(ends, O_CLOEXEC) != 0) return errno;
	pid_t pid = fork();
	if (pid == 0) {
		error = become(machine->sandbox, boot_id, !machine->guest);
		_exit(write(ends[1], &error, sizeof error) == sizeof error ? 0 : 1);
	}
	if (pid < 0) error = errno;
	close(ends[1]);
	if (boot_id >= 0) close(boot_id);
	if (pid > 0 && read(ends[0], &error, sizeof error) != sizeof error) error = EIO;
	close(ends[0]);
	return error;
}

/* Disks by what the node calls them, and the file systems on them. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent.h"
#include "machine.h"

/* A disk that was plugged in a moment ago is there when the kernel has looked at it. */
#define DISK_TRIES 5000
#define DISK_PAUSE_US 2000
#define OPTION_BYTES 4096
#define LAYERS "/run/layers"
#define UPPER "/run/upper"
/* An overlay that does not sync says so while it is mounted, and refuses to be mounted again over what a crash has left. */
#define OVERLAY_MARK UPPER "/work" "/work" "/incompat/volatile"

/* Persistent memory has no serial numbers: it goes by the order in which the kernel has found it, and all of it was there at boot. */
static bool is_memory(const char *name) { return strncmp(name, "pmem", 4) == 0; }

static bool has_serial(const char *disk, const char *serial) {
	char path[PATH_MAX], found[64];
	if (is_memory(serial)) return strcmp(disk, serial) == 0;
	snprintf(path, sizeof path, "/sys/block/%s/serial", disk);
	return read_text(path, found, sizeof found) && strcmp(found, serial) == 0;
}

/* The disk of that serial number. */
static bool find(const char *serial, char path[PATH_MAX]) {
	DIR *disks = opendir("/sys/block");
	bool found = false;
	for (struct dirent *disk; !found && disks != NULL && (disk = readdir(disks)) != NULL;) {
		found = has_serial(disk->d_name, serial);
		if (found) snprintf(path, PATH_MAX, "/dev/%s", disk->d_name);
	}
	if (disks != NULL) closedir(disks);
	return found;
}

/* 0 or an errno. */
static int await_disk(const char *serial, char path[PATH_MAX]) {
	for (int tries = 0; tries < DISK_TRIES; tries++) {
		if (find(serial, path)) return 0;
		usleep(DISK_PAUSE_US);
	}
	return ENODEV;
}

static int make_dir(const char *path, mode_t mode) {
	return mkdir(path, mode) == 0 || errno == EEXIST ? 0 : errno;
}

/* The first device holds the metadata, the others what its files are made of, in the order in which it names them. */
int disks_mount_layer(unsigned number, char *devices) {
	char options[OPTION_BYTES] = "", target[64], first[PATH_MAX] = "", path[PATH_MAX];
	size_t length = 0;
	for (char *rest = NULL, *name = strtok_r(devices, " ", &rest); name != NULL; name = strtok_r(NULL, " ", &rest)) {
		int error = await_disk(name, path);
		if (error != 0) return error;
		if (first[0] == 0) {
			strcpy(first, path);
			if (is_memory(name)) length = (size_t)snprintf(options, sizeof options, "dax=always");
			continue;
		}
		length += (size_t)snprintf(options + length, sizeof options - length, "%sdevice=%s", length > 0 ? "," : "", path);
		if (length >= sizeof options) return E2BIG;
	}
	snprintf(target, sizeof target, LAYERS "/%u", number);
	int error = make_dir(LAYERS, 0755);
	if (error == 0) error = make_dir(target, 0755);
	if (error != 0) return error;
	return mount(first, target, "erofs", MS_RDONLY | MS_NODEV, options) != 0 ? errno : 0;
}

int disks_mount_upper(const char *device) {
	char path[PATH_MAX];
	int error = await_disk(device, path);
	if (error == 0) error = make_dir(UPPER, 0700);
	if (error != 0) return error;
	/* Tables of inodes are zeros already: the disk is a file that nobody has written to. */
	if (mount(path, UPPER, "ext4", MS_NODEV | MS_NOATIME, "discard,noinit_itable") != 0) return errno;
	/* What is there of a disk that was written to before is what its file system vouches for: the sandbox begins with that. */
	if (unlink(OVERLAY_MARK "/dirty") == 0 && rmdir(OVERLAY_MARK) != 0) return errno;
	error = make_dir(UPPER "/upper", 0755);
	return error == 0 ? make_dir(UPPER "/work", 0755) : error;
}

/* In a process of its own: it may take as long as there is to write, and everything else goes on meanwhile. */
static _Noreturn void flush_upper(int answer) {
	int fd = open(UPPER, O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = 0;
	if (fd < 0 || syncfs(fd) != 0) error = errno;
	_exit(write(answer, &error, sizeof error) == sizeof error ? 0 : 1);
}

int disks_flush(struct machine *machine) {
	int ends[2];
	if (machine->flush >= 0) return EBUSY;
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return errno;
	pid_t pid = fork();
	if (pid == 0) flush_upper(ends[1]);
	close(ends[1]);
	if (pid > 0) {
		machine->flush = ends[0];
		return 0;
	}
	close(ends[0]);
	return errno;
}

int disks_flushed(struct machine *machine) {
	int error = EIO;
	if (read(machine->flush, &error, sizeof error) != sizeof error) error = EIO;
	close_fd(&machine->flush);
	return error;
}

static int freeze(unsigned long request) {
	int fd = open(UPPER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) return errno;
	int error = ioctl(fd, request, 0) != 0 ? errno : 0;
	close(fd);
	return error;
}

int disks_lock(void) { return freeze(FIFREEZE); }

int disks_unlock(void) {
	int error = freeze(FITHAW);
	/* There is none, or nobody has locked it. */
	return error == EINVAL || error == ENOENT ? 0 : error;
}

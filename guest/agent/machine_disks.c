/* Disks by what the node calls them, and the file systems on them. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent.h"
#include "machine.h"

/* A disk that was plugged in a moment ago is there when the kernel has looked at it. */
#define DISK_TRIES 5000
#define DISK_PAUSE_US 2000
#define OPTION_BYTES 4096
#define LAYERS "/run/layers"
#define UPPER "/run/upper"

/* `blk:SERIAL` names a disk by its serial number. */
static bool has_serial(const char *disk, const char *serial) {
	char path[PATH_MAX], found[64];
	snprintf(path, sizeof path, "/sys/block/%s/serial", disk);
	return read_text(path, found, sizeof found) && strcmp(found, serial) == 0;
}

/* `pci:ADDRESS` names persistent memory by where its device is plugged in. */
static bool has_address(const char *disk, const char *address) {
	char path[PATH_MAX], place[PATH_MAX], part[64];
	snprintf(path, sizeof path, "/sys/block/%s", disk);
	snprintf(part, sizeof part, "/%s/", address);
	return strncmp(disk, "pmem", 4) == 0 && realpath(path, place) != NULL && strstr(place, part) != NULL;
}

static bool find(const char *name, char path[PATH_MAX]) {
	DIR *disks = opendir("/sys/block");
	bool found = false;
	for (struct dirent *disk; !found && disks != NULL && (disk = readdir(disks)) != NULL;) {
		if (strncmp(name, "blk:", 4) == 0) found = has_serial(disk->d_name, name + 4);
		if (strncmp(name, "pci:", 4) == 0) found = has_address(disk->d_name, name + 4);
		if (found) snprintf(path, PATH_MAX, "/dev/%s", disk->d_name);
	}
	if (disks != NULL) closedir(disks);
	return found;
}

/* 0 or an errno. */
static int await_disk(const char *name, char path[PATH_MAX]) {
	for (int tries = 0; tries < DISK_TRIES; tries++) {
		if (find(name, path)) return 0;
		usleep(DISK_PAUSE_US);
	}
	return ENODEV;
}

static int make_dir(const char *path, mode_t mode) {
	return mkdir(path, mode) == 0 || errno == EEXIST ? 0 : errno;
}

/* The first device holds the metadata, the others what its files are made of, in the order in which it names them. */
int disks_mount_layer(unsigned number, bool dax, char *devices) {
	char options[OPTION_BYTES], target[64], first[PATH_MAX] = "", path[PATH_MAX];
	size_t length = (size_t)snprintf(options, sizeof options, "%s", dax ? "dax=always" : "dax=never");
	for (char *rest = NULL, *name = strtok_r(devices, " ", &rest); name != NULL; name = strtok_r(NULL, " ", &rest)) {
		int error = await_disk(name, path);
		if (error != 0) return error;
		if (first[0] == 0) {
			strcpy(first, path);
			continue;
		}
		length += (size_t)snprintf(options + length, sizeof options - length, ",device=%s", path);
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
	if (mount(path, UPPER, "ext4", MS_NODEV | MS_NOATIME, "discard") != 0) return errno;
	error = make_dir(UPPER "/upper", 0755);
	return error == 0 ? make_dir(UPPER "/work", 0755) : error;
}

int disks_sync(void) {
	int fd = open(UPPER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) return errno;
	int error = syncfs(fd) != 0 ? errno : 0;
	close(fd);
	return error;
}

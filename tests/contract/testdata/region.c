/* The first process of a machine whose guest is hostile: it writes to its first region by all means that it has, and says what is there then. */
#include <fcntl.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BYTES 65536

/* Where the kernel says that the region lies. */
static off_t address(void) {
	char text[64] = "";
	int fd = open("/sys/bus/nd/devices/region0/resource", O_RDONLY);
	if (fd < 0 || read(fd, text, sizeof text - 1) <= 0) return 0;
	close(fd);
	return (off_t)strtoull(text, NULL, 0);
}

/* As plain memory: the kernel allows that until a driver has claimed it. */
static void write_memory(void) {
	int memory = open("/dev/mem", O_RDWR);
	volatile char *mapped = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory, address());
	if (mapped == MAP_FAILED) return;
	bool was = mapped[BYTES - 1] == 'A';
	for (int at = 0; at < BYTES; at++) mapped[at] = 'Y';
	printf("mapped %d changed %d\n", was, mapped[BYTES - 1] != 'A');
}

static void load_modules(void) {
	char name[128], path[160];
	FILE *list = fopen("/modules/list", "r");
	while (list != NULL && fgets(name, sizeof name, list) != NULL) {
		name[strcspn(name, "\n")] = 0;
		if (strcmp(name, "nd_pmem.ko") == 0) write_memory();
		snprintf(path, sizeof path, "/modules/%s", name);
		int fd = open(path, O_RDONLY);
		syscall(SYS_finit_module, fd, "", 0);
		close(fd);
	}
}

int main(void) {
	static char bytes[BYTES];
	mkdir("/sys", 0755);
	mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	mount("sysfs", "/sys", "sysfs", 0, NULL);
	load_modules();
	int fd = open("/dev/pmem0", O_RDWR);
	memset(bytes, 'X', BYTES);
	ssize_t written = pwrite(fd, bytes, BYTES, 0);
	int synced = fsync(fd);
	printf("written %zd synced %d\n", written, synced);
	/* What the kernel keeps of the device goes, so that it is read anew. */
	ioctl(fd, BLKFLSBUF, 0);
	ssize_t got = pread(fd, bytes, BYTES, 0);
	int changed = 0;
	for (int at = 0; at < BYTES; at++) changed += bytes[at] != 'A';
	printf("read %zd changed %d\nend\n", got, changed);
	fflush(stdout);
	for (;;) pause();
}

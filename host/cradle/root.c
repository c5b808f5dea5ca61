#include "root.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "minimal.h"
#include "place.h"

/* Room for the three /etc files beside what /dev/shm is promised. */
enum { ETC_BYTES = 256 * 1024, PAGE_BYTES = 4096, SPARE_INODES = 1024 };

static const char *const ETC_FILES[] = { "hostname", "hosts", "resolv.conf" };

/* What would show or steer the host although it is no namespace's own. */
static const char *const MASKED_FILES[] = {
	"proc/interrupts",   "proc/kcore",       "proc/keys",       "proc/latency_stats", "proc/timer_list",
	"proc/buddyinfo",    "proc/pagetypeinfo", "proc/schedstat",  "proc/softirqs",      "proc/zoneinfo",
	"proc/timer_stats",  "proc/sched_debug", "proc/kpagecgroup", "proc/kpagecount",   "proc/kpageflags",
};
static const char *const MASKED_DIRS[] = {
	"proc/acpi", "proc/asound", "proc/pressure", "proc/scsi", "sys/firmware", "sys/devices/virtual/powercap",
};
/* Files that the node serves in place of the kernel's, which show the whole machine. */
static const struct {
	const char *served;
	const char *target;
} VIEWS[] = {
	{ MINIMAL_VIEW "/meminfo", "proc/meminfo" }, { MINIMAL_VIEW "/swaps", "proc/swaps" },
	{ MINIMAL_VIEW "/cpuinfo", "proc/cpuinfo" }, { MINIMAL_VIEW "/stat", "proc/stat" },
	{ MINIMAL_VIEW "/uptime", "proc/uptime" },   { MINIMAL_VIEW "/loadavg", "proc/loadavg" },
	{ MINIMAL_VIEW "/vmstat", "proc/vmstat" },   { MINIMAL_VIEW "/diskstats", "proc/diskstats" },
};
static const char *const TREES[] = { "proc", "sys", "dev" };
static const char *const READ_ONLY[] = { "proc/bus", "proc/fs", "proc/irq", "proc/sys", "proc/sysrq-trigger" };

static int make_etc(const char *name, struct fault *fault)
{
	char path[64];
	int fd;

	snprintf(path, sizeof path, MINIMAL_PRIVATE "/%s", name);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return fault_set(fault, "make /etc/%s", name);
	close(fd);
	return 0;
}

static int write_etc(const char *name, const char *text, const char *end, struct fault *fault)
{
	char path[64];
	int fd;
	bool whole;

	snprintf(path, sizeof path, MINIMAL_PRIVATE "/%s", name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return fault_set(fault, "open /etc/%s", name);
	whole = write(fd, text, strlen(text)) == (ssize_t)strlen(text) && write(fd, end, strlen(end)) == (ssize_t)strlen(end);
	close(fd);
	return whole ? 0 : fault_set(fault, "write /etc/%s", name);
}

static int bind_etc(int root, const char *name, struct fault *fault)
{
	char source[64], target[64];
	int place, tree, result = -1;

	snprintf(source, sizeof source, MINIMAL_PRIVATE "/%s", name);
	snprintf(target, sizeof target, "etc/%s", name);
	place = place_file(root, "etc", name);
	if (place < 0)
		return fault_set(fault, "place of /%s", target);
	tree = open_tree(AT_FDCWD, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (tree >= 0)
		result = move_mount(tree, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
	if (result)
		fault_set(fault, "mount /%s", target);
	if (tree >= 0)
		close(tree);
	close(place);
	return result;
}

static int bind_over(const char *source, const char *target, struct fault *fault)
{
	/* Hosts differ in what they have, and nodes in what they serve. */
	if (mount(source, target, NULL, MS_BIND, NULL) && errno != ENOENT)
		return fault_set(fault, "mount over /%s", target);
	return 0;
}

static int protect(const char *path, struct fault *fault)
{
	struct mount_attr attributes = { .attr_set = MOUNT_ATTR_RDONLY };

	if (mount(path, path, NULL, MS_BIND, NULL))
		return errno == ENOENT ? 0 : fault_set(fault, "bind /%s", path);
	if (mount_setattr(AT_FDCWD, path, 0, &attributes, sizeof attributes))
		return fault_set(fault, "make /%s read-only", path);
	return 0;
}

static int mask_all(struct fault *fault)
{
	for (size_t at = 0; at < sizeof MASKED_FILES / sizeof *MASKED_FILES; at++)
		if (bind_over("/dev/null", MASKED_FILES[at], fault))
			return -1;
	for (size_t at = 0; at < sizeof MASKED_DIRS / sizeof *MASKED_DIRS; at++)
		if (bind_over(MINIMAL_EMPTY, MASKED_DIRS[at], fault))
			return -1;
	for (size_t at = 0; at < sizeof VIEWS / sizeof *VIEWS; at++)
		if (bind_over(VIEWS[at].served, VIEWS[at].target, fault))
			return -1;
	for (size_t at = 0; at < sizeof READ_ONLY / sizeof *READ_ONLY; at++)
		if (protect(READ_ONLY[at], fault))
			return -1;
	return 0;
}

static int prepare_dev(struct fault *fault)
{
	const unsigned long quiet = MS_NOSUID | MS_NODEV | MS_NOEXEC;

	if (mount("/dev", "dev", NULL, MS_BIND, NULL))
		return fault_set(fault, "mount /dev");
	if (mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5,max=64"))
		return fault_set(fault, "mount /dev/pts");
	if (mount("shm", "dev/shm", NULL, MS_BIND, NULL))
		return fault_set(fault, "mount /dev/shm");
	/* A kernel may be built without message queues. */
	if (mount("mqueue", "dev/mqueue", "mqueue", quiet, NULL) && errno != ENODEV)
		return fault_set(fault, "mount /dev/mqueue");
	return 0;
}

static int prepare_trees(struct fault *fault)
{
	const unsigned long quiet = MS_NOSUID | MS_NODEV | MS_NOEXEC;

	for (size_t at = 0; at < sizeof TREES / sizeof *TREES; at++)
		if (mkdir(TREES[at], 0755))
			return fault_set(fault, "make a place for /%s", TREES[at]);
	if (mount("proc", "proc", "proc", quiet, NULL))
		return fault_set(fault, "mount /proc");
	if (mount("/sys", "sys", NULL, MS_BIND | MS_REC, NULL))
		return fault_set(fault, "mount /sys");
	return mask_all(fault) ? -1 : prepare_dev(fault);
}

int root_prepare(uint64_t shm_bytes, struct fault *fault)
{
	char options[96];
	unsigned long long bytes = shm_bytes + ETC_BYTES;

	snprintf(options, sizeof options, "mode=0755,size=%llu,nr_inodes=%llu", bytes, bytes / PAGE_BYTES + SPARE_INODES);
	if (mount("tmpfs", MINIMAL_PRIVATE, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options))
		return fault_set(fault, "mount the private tmpfs");
	if (chdir(MINIMAL_PRIVATE))
		return fault_set(fault, "enter the private tmpfs");
	for (size_t at = 0; at < sizeof ETC_FILES / sizeof *ETC_FILES; at++)
		if (make_etc(ETC_FILES[at], fault))
			return -1;
	if (mkdir("shm", 0777) || chmod("shm", 01777))
		return fault_set(fault, "make /dev/shm");
	if (prepare_trees(fault))
		return -1;
	return chdir("/") ? fault_set(fault, "leave the private tmpfs") : 0;
}

/* On a directory of the image that is one and no link; nobody else can change the image yet. */
static int attach_tree(int root, const char *name, struct fault *fault)
{
	char source[64];
	int place = place_dir(root, name);
	int result;

	if (place < 0)
		return fault_set(fault, "place of /%s", name);
	snprintf(source, sizeof source, MINIMAL_PRIVATE "/%s", name);
	result = move_mount(AT_FDCWD, source, place, "", MOVE_MOUNT_T_EMPTY_PATH);
	close(place);
	return result ? fault_set(fault, "mount /%s", name) : 0;
}

/* First the files: while the image's links have nothing but the image to lead to. */
static int attach_all(int root, struct fault *fault)
{
	for (size_t at = 0; at < sizeof ETC_FILES / sizeof *ETC_FILES; at++)
		if (bind_etc(root, ETC_FILES[at], fault))
			return -1;
	for (size_t at = 0; at < sizeof TREES / sizeof *TREES; at++)
		if (attach_tree(root, TREES[at], fault))
			return -1;
	return 0;
}

int root_assemble(const struct request *request, int overlay, struct fault *fault)
{
	if (write_etc("hostname", request->hostname, "\n", fault) || write_etc("hosts", request->hosts, "", fault) ||
	    write_etc("resolv.conf", request->resolv_conf, "", fault))
		return -1;
	if (move_mount(overlay, "", AT_FDCWD, MINIMAL_NEW_ROOT, MOVE_MOUNT_F_EMPTY_PATH))
		return fault_set(fault, "move the root into the sandbox");
	if (attach_all(overlay, fault))
		return -1;
	/*
	 * Not pivot_root: that looks at every process of the host. The minimal namespace stays hidden below the new root. No path
	 * leads there (`..` of a root that is mounted on a root is itself), and it has nothing that is not in every sandbox.
	 */
	if (move_mount(overlay, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH))
		return fault_set(fault, "make it the root");
	return 0;
}

/* What a shell cannot make, or not fast enough: `packed deep|many|socket|flags|mapped|capability PATH`, and `packed privilege`. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { LEVELS = 100, FEWEST_LEVELS = 10, NAME_BYTES = 255, FILES = 100000, FILES_A_DIRECTORY = 1000, MAPPED = 50, PAGE = 4096 };

static void must(int result, const char *what)
{
	if (result >= 0)
		return;
	perror(what);
	exit(1);
}

static void make_file(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);

	must(fd, name);
	must((int)write(fd, text, strlen(text)), "write");
	must(close(fd), "close");
}

/*
 * Six times the longest path that the kernel takes, with a sibling on each level; less where the file system lets nobody that deep: overlays of some
 * kernels (6.1) make nothing below a path of a page.
 */
static void deep(void)
{
	char name[NAME_BYTES + 1] = "";

	memset(name, 'd', NAME_BYTES);
	for (int level = 0; level < LEVELS; level++) {
		if (level > FEWEST_LEVELS && mkdir(name, 0755) < 0 && errno == ENAMETOOLONG) {
			must(chdir(".."), "chdir");
			break;
		}
		must(mkdir("beside", 0700), "mkdir beside");
		if (level <= FEWEST_LEVELS)
			must(mkdir(name, 0755), "mkdir");
		must(chdir(name), "chdir");
	}
	make_file("bottom", "far down");
}

/* Tells what is at the bottom. */
static void dive(void)
{
	char name[NAME_BYTES + 1] = "", text[16] = "";
	int fd;

	memset(name, 'd', NAME_BYTES);
	do
		must(access("beside", F_OK) | chdir(name), "chdir");
	while (access("bottom", F_OK) < 0);
	fd = open("bottom", O_RDONLY);
	must(fd, "bottom");
	must((int)read(fd, text, sizeof text - 1), "read");
	puts(text);
}

static void many(void)
{
	char name[32];

	for (int at = 0; at < FILES; at++) {
		snprintf(name, sizeof name, "%d", at / FILES_A_DIRECTORY);
		if (at % FILES_A_DIRECTORY == 0)
			must(mkdir(name, 0755), "mkdir");
		snprintf(name, sizeof name, "%d/%d", at / FILES_A_DIRECTORY, at);
		make_file(name, name);
	}
}

static void make_socket(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "socket" };

	must(bind(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&address, sizeof address), "bind");
}

static void try_flag(int fd, int flag, const char *what)
{
	int flags = flag | FS_NOATIME_FL | FS_SYNC_FL;

	printf("%s: %s\n", what, ioctl(fd, FS_IOC_SETFLAGS, &flags) < 0 ? "refused" : "set");
}

/* Locks a directory and its file as far as the kernel lets it; the last flags are those that any owner may set. */
static void set_flags(void)
{
	int flags = FS_NOATIME_FL | FS_SYNC_FL | FS_NODUMP_FL;
	int directory = open(".", O_RDONLY | O_DIRECTORY), file = open("file", O_RDONLY);

	must(directory | file, "open");
	try_flag(file, FS_IMMUTABLE_FL, "immutable");
	try_flag(directory, FS_APPEND_FL, "append-only");
	must(ioctl(file, FS_IOC_SETFLAGS, &flags), "flags of a file");
	must(ioctl(directory, FS_IOC_SETFLAGS, &flags), "flags of a directory");
}

/*
 * Counts in the two pages of each file in turn, through mappings: at every instant, numbers only fall from one to the next, and the
 * first is one above the last at most. Nobody is told of such a change; says so once that has gone on for a while.
 */
static void count_mapped(void)
{
	char *files[MAPPED], name[32];

	for (int at = 0; at < MAPPED; at++) {
		snprintf(name, sizeof name, "%02d", at);
		int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0644);
		must(fd, name);
		must(ftruncate(fd, 2 * PAGE), "ftruncate");
		files[at] = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		must(files[at] == MAP_FAILED ? -1 : 0, "mmap");
		must(close(fd), "close");
	}
	for (uint64_t number = 1;; number++) {
		for (int word = 0; word < 2 * MAPPED; word++)
			*(volatile uint64_t *)(files[word / 2] + word % 2 * PAGE) = number;
		if (number == 100000)
			make_file("counted", "");
	}
}

static void give_capability(const char *path)
{
	struct vfs_cap_data data = { .magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE };

	data.data[0].permitted = 1u << CAP_NET_BIND_SERVICE;
	must(setxattr(path, "security.capability", &data, sizeof data, 0), "setxattr");
}

static void tell_privilege(void)
{
	char line[256];
	FILE *status = fopen("/proc/self/status", "r");

	while (status != NULL && fgets(line, sizeof line, status) != NULL)
		if (strncmp(line, "CapEff:", 7) == 0)
			printf("%s", line + 8);
}

int main(int count, char **words)
{
	const char *what = count > 1 ? words[1] : "";

	if (count > 2 && strcmp(what, "capability") != 0)
		must(chdir(words[2]), words[2]);
	if (strcmp(what, "deep") == 0)
		deep();
	else if (strcmp(what, "dive") == 0)
		dive();
	else if (strcmp(what, "many") == 0)
		many();
	else if (strcmp(what, "socket") == 0)
		make_socket();
	else if (strcmp(what, "flags") == 0)
		set_flags();
	else if (strcmp(what, "mapped") == 0)
		count_mapped();
	else if (strcmp(what, "capability") == 0)
		give_capability(words[2]);
	else
		tell_privilege();
	return 0;
}

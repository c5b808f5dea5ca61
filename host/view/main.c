/*
 * dsec-view NODE SANDBOXES PAGE TREE...: serves the files of one node's sandboxes on descriptor 3, an open and mounted /dev/fuse.
 * dsec-view --hold: keeps that descriptor open. README.md says who starts them, and how they are followed when they die.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "serve.h"

enum { FUSE_FD = 3, EXIT_USAGE = 64 };

/* As agents are: a host that is short of memory must not choose what all sandboxes read. */
static void shield(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	/* Without CAP_SYS_RESOURCE it stays as others are. */
	if (fd >= 0 && write(fd, "-999", 4) < 0)
		fprintf(stderr, "dsec-view: not shielded from the out-of-memory killer: %s\n", strerror(errno));
	if (fd >= 0)
		close(fd);
}

/* It reads which cgroup a process is in and which doors an agent holds, for which the kernel wants the right to trace. */
#define SERVER_RIGHTS (1ull << CAP_SYS_PTRACE | 1ull << CAP_DAC_READ_SEARCH)

/* It works for sandboxes: what it does not need, nobody shall get through it. */
static int drop_rights(uint64_t kept)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_capget, &header, data))
		return -1;
	for (int word = 0; word < 2; word++) {
		data[word].permitted &= (uint32_t)(kept >> (32 * word));
		data[word].effective = data[word].permitted;
		data[word].inheritable = 0;
	}
	return (int)syscall(SYS_capset, &header, data);
}

static struct request_page *map_page(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	void *page;

	if (fd < 0 || ftruncate(fd, sizeof(struct request_page)))
		return NULL;
	page = mmap(NULL, sizeof(struct request_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return page == MAP_FAILED ? NULL : page;
}

int main(int argc, char **argv)
{
	static struct node node;
	struct request_page *page;

	if (argc == 2 && strcmp(argv[1], "--hold") == 0) {
		shield();
		return drop_rights(0) ? EXIT_USAGE : hold(FUSE_FD);
	}
	if (argc < 5) {
		fprintf(stderr, "usage: dsec-view NODE SANDBOXES PAGE TREE... | --hold\n");
		return EXIT_USAGE;
	}
	shield();
	page = map_page(argv[3]);
	if (page == NULL || node_open(&node, argv[1], argv[2], argv + 4) || drop_rights(SERVER_RIGHTS)) {
		fprintf(stderr, "dsec-view: %s\n", strerror(errno));
		return EXIT_USAGE;
	}
	return serve(&node, FUSE_FD, page);
}

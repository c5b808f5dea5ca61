/* What a sandbox can do without while nobody uses it: pages of files, which it would read again. The kernel tells the monitor what is free then. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "machine.h"

#define CGROUP "/sys/fs/cgroup/sandbox"
/* So much of it at a time: the coldest go first, and what is used again in between stays for long. */
#define PART 4
#define LEAST_BYTES (4ull << 20)

static unsigned long long stat_of(const char *stat, const char *key) {
	const char *at = strstr(stat, key);
	return at == NULL ? 0 : strtoull(at + strlen(key), NULL, 10);
}

/* Pages that somebody maps or has used lately may be kept by the kernel: it gives up what it can, and then fails. */
static _Noreturn void give_up(unsigned long long bytes) {
	char text[32];
	snprintf(text, sizeof text, "%llu", bytes);
	machine_write(CGROUP "/memory.reclaim", text);
	_exit(0);
}

int rest_begin(struct machine *machine, unsigned long long *file_bytes) {
	char stat[4096];
	if (!read_text(CGROUP "/memory.stat", stat, sizeof stat)) return errno;
	*file_bytes = stat_of(stat, "\ninactive_file ") + stat_of(stat, "\nactive_file ");
	/* Children are nobody's, and their ids are used again: one too many means that less is done. */
	if (machine->resting > 0 && kill(machine->resting, 0) == 0) return EBUSY;
	if (*file_bytes < LEAST_BYTES) return 0;
	unsigned long long part = *file_bytes / PART;
	machine->resting = fork();
	if (machine->resting == 0) give_up(part < LEAST_BYTES ? LEAST_BYTES : part);
	return machine->resting < 0 ? errno : 0;
}

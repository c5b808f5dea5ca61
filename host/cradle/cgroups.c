#include "cgroups.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { REMOVE_ATTEMPTS = 400, REMOVE_PAUSE_NS = 5 * 1000 * 1000 };

static int write_file(int dir, const char *file, const char *value)
{
	size_t length = strlen(value);
	int fd = openat(dir, file, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t written;
	int error;

	if (fd < 0)
		return -1;
	written = write(fd, value, length);
	error = written < 0 ? errno : EIO;
	close(fd);
	if (written == (ssize_t)length)
		return 0;
	errno = error;
	return -1;
}

static int configure(int dir, const struct request *request, const struct cgroup *cgroup, struct fault *fault)
{
	for (unsigned at = 0; at < cgroup->writes; at++) {
		const struct cgroup_write *item = &request->writes[cgroup->first_write + at];

		if (write_file(dir, item->file, item->value))
			return fault_set(fault, "cgroup %s: write %s to %s", cgroup->dir, item->value, item->file);
	}
	return 0;
}

/*
 * `tasks` where there is one (v1): a single thread that moves itself by it spares the kernel the lock that stops every fork of
 * the host, and waits for a grace period to get it, while it holds the one lock of all cgroups.
 */
static int hand_over(int dir, const struct cgroup *cgroup, int *handed_over, unsigned *count, struct fault *fault)
{
	int door = openat(dir, "tasks", O_WRONLY | O_CLOEXEC | O_NOFOLLOW);

	if (door < 0 && errno == ENOENT)
		door = openat(dir, "cgroup.procs", O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (door < 0)
		return fault_set(fault, "cgroup %s: open its list of tasks", cgroup->dir);
	handed_over[(*count)++] = door;
	return 0;
}

/*
 * The sandbox's root may make cgroups below it and move processes between them. In v2 that takes the list of the one above both,
 * too. Limits stay the host's: their files are.
 */
static int delegate(const struct cgroup *cgroup, uint32_t owner, int *handed_over, unsigned *count, struct fault *fault)
{
	int dir = open(cgroup->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	if (dir < 0)
		return fault_set(fault, "cgroup %s: open", cgroup->dir);
	if (fchown(dir, owner, owner) || fchownat(dir, "cgroup.procs", owner, owner, AT_SYMLINK_NOFOLLOW)) {
		close(dir);
		return fault_set(fault, "cgroup %s: delegate", cgroup->dir);
	}
	handed_over[(*count)++] = dir;
	return 0;
}

static int make_one(const struct request *request, const struct cgroup *cgroup, struct progress *progress,
		    int *handed_over, unsigned *count, struct fault *fault)
{
	int dir, result;

	/* Counted first: a worker that dies in between leaves one too many to remove, not one too few. */
	progress->cgroups_made++;
	if (mkdir(cgroup->dir, 0755)) {
		progress->cgroups_made--;
		return fault_set(fault, "cgroup %s: make", cgroup->dir);
	}
	dir = open(cgroup->dir, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (dir < 0)
		return fault_set(fault, "cgroup %s: open", cgroup->dir);
	result = configure(dir, request, cgroup, fault);
	if (result == 0 && cgroup->hand_over)
		result = hand_over(dir, cgroup, handed_over, count, fault);
	close(dir);
	return result;
}

int cgroups_make(const struct request *request, struct progress *progress, int *handed_over, unsigned *count,
		 struct fault *fault)
{
	*count = 0;
	for (unsigned at = 0; at < request->cgroup_count; at++)
		if (make_one(request, &request->cgroups[at], progress, handed_over, count, fault))
			return -1;
	/* Behind the doors: the agent is told how many there are of both. */
	for (unsigned at = 0; at < request->cgroup_count; at++)
		if (request->cgroups[at].delegate &&
		    delegate(&request->cgroups[at], request->uid_base, handed_over, count, fault))
			return -1;
	return 0;
}

/* A dead process leaves its cgroup a moment after its death is seen. */
static void remove_one(const char *dir)
{
	const struct timespec pause = { .tv_nsec = REMOVE_PAUSE_NS };

	for (int attempt = 0; attempt < REMOVE_ATTEMPTS; attempt++) {
		if (rmdir(dir) == 0 || errno != EBUSY)
			return;
		nanosleep(&pause, NULL);
	}
}

void cgroups_remove(const struct request *request, struct progress *progress)
{
	while (progress->cgroups_made > 0) {
		remove_one(request->cgroups[progress->cgroups_made - 1].dir);
		progress->cgroups_made--;
	}
}

int cgroup_enter(const char *dir, struct fault *fault)
{
	int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int result;

	if (fd < 0)
		return fault_set(fault, "agent cgroup %s: open", dir);
	result = write_file(fd, "cgroup.procs", "0");
	if (result)
		fault_set(fault, "agent cgroup %s: enter", dir);
	close(fd);
	return result;
}

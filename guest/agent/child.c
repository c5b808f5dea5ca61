/* From a clone of the spawner to the command: descriptors, user, limits, directory, program. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calls.h"
#include "cell.h"
#include "files.h"
#include "program.h"
#include "session.h"
#include "spawner.h"
#include "start.h"
#include "user.h"

#define REPORT 3
#define MARKER 4

static _Noreturn void fail(int report, enum stage stage, int error) {
	struct report message = {.stage = (uint8_t)stage, .value = error};
	ssize_t ignored = write(report, &message, sizeof message);
	(void)ignored;
	_exit(127);
}

/* No input: the sandbox's own null device, or a pipe at its end where there is none to be had. */
static int empty_input(void) {
	int fd = open("/dev/null", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat status;
	if (fd >= 0 && fstat(fd, &status) == 0 && S_ISCHR(status.st_mode)) {
		fcntl(fd, F_SETFL, 0);
		return fd;
	}
	int ends[2];
	if (pipe2(ends, O_CLOEXEC) != 0) return -1;
	close(ends[1]);
	return ends[0];
}

/* The terminal becomes the child's own: it leads a session since it was born, and nobody else has this one yet. */
static int arrange_streams(const struct spawn *spawn, bool terminal) {
	int out = spawn->fds[PASSED_OUT];
	if (terminal) {
		if (ioctl(out, TIOCSCTTY, 0) != 0) return errno;
		return dup2(out, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0 ? errno : 0;
	}
	int input = spawn->fds[PASSED_INPUT] >= 0 ? spawn->fds[PASSED_INPUT] : empty_input();
	return input < 0 || dup2(input, 0) < 0 || dup2(out, 1) < 0 || dup2(spawn->fds[PASSED_ERR], 2) < 0 ? errno : 0;
}

/* Afterwards: 0 to 2 the streams, 3 the report, from 4 on the marker of a write or what a session needs, nothing else. */
static int arrange(const struct spawn *spawn, bool terminal) {
	static const enum passed wanted[] = {PASSED_REPORT, PASSED_MARKER, PASSED_CONTROL, PASSED_SHELL};
	int moved[sizeof wanted / sizeof wanted[0]], count = 0;
	int error = arrange_streams(spawn, terminal);
	if (error != 0) return error;
	/* Out of the way first: each may lie in the place of another. */
	for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
		if (spawn->fds[wanted[i]] < 0) continue;
		moved[count] = fcntl(spawn->fds[wanted[i]], F_DUPFD_CLOEXEC, REPORT + 2 * PASSED_LIMIT);
		if (moved[count++] < 0) return errno;
	}
	for (int i = 0; i < count; i++) {
		if (dup3(moved[i], REPORT + i, O_CLOEXEC) < 0) return errno;
	}
	return 0;
}

/* All but the streams, and in the keeper of a cell the directories of its cgroups. */
static int close_rest(const struct options *options, const struct spawn *spawn, bool keeper) {
	int used = REPORT + 1;
	for (int at = PASSED_MARKER; at <= PASSED_SHELL; at++) used += spawn->fds[at] >= 0;
	if (!keeper) return close_from(used) != 0 ? errno : 0;
	if (options->cgroups > 0 && close_between(used, REPORT + options->cgroups) != 0) return errno;
	return close_from(used + options->cgroups + options->cells) != 0 ? errno : 0;
}

/*
 * The spawner is protected from the kernel's memory killer, commands are not. The file belongs to the process only while it is
 * dumpable; by now it holds nothing that is not the command's own.
 */
int become_killable(void) {
	prctl(PR_SET_DUMPABLE, 1);
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	int error = fd < 0 || write(fd, "0", 1) != 1 ? errno : 0;
	if (fd >= 0) close(fd);
	prctl(PR_SET_DUMPABLE, 0);
	return error;
}

static int apply_rlimits(const struct options *options) {
	if (setrlimit(RLIMIT_NOFILE, &options->nofile) != 0) return errno;
	for (int i = 0; i < options->rlimits; i++) {
		const struct rlimit_setting *setting = &options->rlimit[i];
		if (setrlimit(setting->resource, &setting->value) != 0) return errno;
	}
	return 0;
}

static int become(const struct identity *identity) {
	if (setgroups((size_t)identity->group_count, identity->groups) != 0) return errno;
	if (setresgid(identity->gid, identity->gid, identity->gid) != 0) return errno;
	return setresuid(identity->uid, identity->uid, identity->uid) != 0 ? errno : 0;
}

static const uint8_t *map_body(const struct spawn *spawn) {
	if (spawn->fds[PASSED_FILE] < 0) return spawn->body;
	void *pages = mmap(NULL, spawn->body_size, PROT_READ, MAP_PRIVATE, spawn->fds[PASSED_FILE], 0);
	return pages == MAP_FAILED ? NULL : pages;
}

static void run(const struct start *start, const struct identity *identity) {
	struct program_failure failure = program_exec(start, identity);
	fail(REPORT, failure.missing_interpreter ? STAGE_INTERPRETER : STAGE_EXEC, failure.error);
}

/*
 * A program of the platform that keeps the container's rights, to give them up in each of its forks. It finds on descriptor 4 what that
 * takes: u32 size of the filter on system calls, the filter, the name of the AppArmor profile.
 */
static _Noreturn void serve_forks(const struct options *options, const struct start *start, const struct identity *identity) {
	size_t size;
	const void *filter = seccomp_program(&size);
	uint32_t length = (uint32_t)size;
	int fd = memfd_create("confinement", 0);
	if (fd < 0 || write(fd, &length, sizeof length) != sizeof length || write(fd, filter, size) != (ssize_t)size ||
	    write(fd, options->profile, strlen(options->profile)) < 0 || lseek(fd, 0, SEEK_SET) != 0) {
		fail(REPORT, STAGE_SETUP, errno);
	}
	if (fd != MARKER && (dup2(fd, MARKER) < 0 || close(fd) != 0)) fail(REPORT, STAGE_SETUP, errno);
	if (chdir("/") != 0) fail(REPORT, STAGE_CWD, errno);
	run(start, identity);
	_exit(127);
}

void child_main(const struct options *options, const struct spawn *spawn) {
	static struct identity identity;
	struct start start;
	int first_report = spawn->fds[PASSED_REPORT];
	setsid();
	/* After setsid: whoever knows the pid may signal the group. */
	struct report born = {.value = getpid()};
	if (write(first_report, &born, sizeof born) != sizeof born) _exit(127);
	const uint8_t *body = map_body(spawn);
	if (body == NULL) fail(first_report, STAGE_SETUP, errno);
	if (start_parse(body, spawn->body_size, &start) != 0) fail(first_report, STAGE_REQUEST, EINVAL);
	bool keeper = start.action == ACTION_CELL;
	if ((keeper || start.action == ACTION_FORK_SERVER) && options->cells == 0) fail(first_report, STAGE_CELL, ENOSYS);
	int error = arrange(spawn, start.terminal.rows != 0);
	if (error != 0) fail(first_report, STAGE_SETUP, error);
	error = close_rest(options, spawn, keeper);
	if (error != 0) fail(REPORT, STAGE_SETUP, error);
	if ((error = identity_resolve(start.user, &identity)) != 0) fail(REPORT, STAGE_USER, error);
	if (keeper) cell_main(options, &start, &identity, REPORT);
	signal(SIGPIPE, SIG_DFL);
	if ((error = become_killable()) != 0) fail(REPORT, STAGE_SETUP, error);
	if (start.action == ACTION_FORK_SERVER) serve_forks(options, &start, &identity);
	if (options->cells > 0 && (error = confine_rights(options, NULL)) != 0) fail(REPORT, STAGE_CONFINE, error);
	if ((error = apply_rlimits(options)) != 0) fail(REPORT, STAGE_RLIMIT, error);
	/* Programs open their terminal by its name, too. */
	if (start.terminal.rows != 0 && fchown(0, identity.uid, (gid_t)-1) != 0) fail(REPORT, STAGE_SETUP, errno);
	if ((error = become(&identity)) != 0) fail(REPORT, STAGE_USER, error);
	if (chdir(start.cwd) != 0) fail(REPORT, STAGE_CWD, errno);
	if (start.action == ACTION_EXEC) run(&start, &identity);
	if (start.action == ACTION_SESSION) runner_main(&start, &identity, REPORT);
	/* The action is under way: what stops it from here on is its exit code. */
	close(REPORT);
	_exit(files_run(&start, spawn->fds[PASSED_MARKER] >= 0 ? MARKER : -1));
}

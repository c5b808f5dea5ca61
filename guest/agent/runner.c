/*
 * The parent of a session's shell: a process of the session's user that holds the ends of a line's pipes where the shell can open
 * them, reads the status, and reaps what the session leaves behind.
 *
 * The shell reads its script from a pipe. For a line it is told to source the line's text with three descriptors of this process
 * as its streams; they are opened for that alone, so that a background job holds nothing but its own line's. Then it is told to
 * report: a file that writes the status to a descriptor of this process, and returns it, so that `$?` is the line's in the next.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"
#include "program.h"
#include "session.h"
#include "spawner.h"

/* Numbers by which the shell opens what it needs: they stand in its script. */
#define AT_SCRIPT 17
#define AT_STATUS 18
#define AT_REPORT 19
#define AT_LINE 20 /* LINE_ENDS of them */
/* This process's own. */
#define AT_OWN 30

#define TEXT_OF(value) #value
#define TEXT(value) TEXT_OF(value)

struct runner {
	pid_t shell;
	int script, status, signals;
	uint32_t sequence; /* of the line that the shell has; 0: none */
};

static _Noreturn void fail(int report, int error) {
	struct report message = {.stage = STAGE_EXEC, .value = error};
	ssize_t ignored = write(report, &message, sizeof message);
	(void)ignored;
	_exit(127);
}

/* Moves a descriptor to a number; nothing else is there. */
static int place(int fd, int number) {
	if (fd < 0 || dup3(fd, number, O_CLOEXEC) < 0) return -1;
	close(fd);
	return number;
}

static int place_own(int fd) {
	int own = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, AT_OWN);
	if (fd >= 0) close(fd);
	return own;
}

static bool open_channels(struct runner *runner) {
	static const char report[] = "builtin printf '%s %s\\n' \"$1\" \"$2\" >/proc/$PPID/fd/18\nbuiltin return \"$2\"\n";
	int script[2], status[2];
	if (pipe2(script, O_CLOEXEC) != 0 || pipe2(status, O_CLOEXEC | O_NONBLOCK) != 0) return false;
	int text = memfd_create("report", MFD_CLOEXEC);
	if (text < 0 || write(text, report, sizeof report - 1) != sizeof report - 1) return false;
	runner->script = place_own(script[1]);
	runner->status = place_own(status[0]);
	/* These may lie where others belong: out of the way first. */
	int read_end = place_own(script[0]), write_end = place_own(status[1]);
	text = place_own(text);
	fcntl(runner->script, F_SETFL, O_NONBLOCK);
	return runner->script >= 0 && runner->status >= 0 && place(read_end, AT_SCRIPT) >= 0 && place(write_end, AT_STATUS) >= 0 &&
	       place(text, AT_REPORT) >= 0;
}

/* The shell itself. `go` tells when this process may be looked into. */
static _Noreturn void become_shell(const struct start *start, const struct identity *identity, int report, int go, pid_t parent) {
	static char path[48];
	static char *argv[] = {"bash", "--norc", "--noprofile", "-p", path, NULL};
	char **environment = program_environment(start, identity);
	if (environment == NULL) fail(report, ENOMEM);
	/* Apart from this process, so that a line may signal its own group; and not without it. */
	setsid();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_DUMPABLE, 1);
	for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL);
	snprintf(path, sizeof path, "/proc/%d/fd/%d", parent, AT_SCRIPT);
	char ready;
	if (read(go, &ready, 1) != 1) _exit(127);
	execute(RUNNER_SHELL, argv, environment);
	fail(report, errno);
}

static void say(uint32_t type, uint32_t sequence, int32_t value) {
	struct runner_message message = {.type = type, .sequence = sequence, .value = value};
	send(RUNNER_CONTROL, &message, sizeof message, MSG_NOSIGNAL);
}

static void tell_shell(const struct runner *runner, const char *script, int length) {
	/* A shell that does not read its script while nothing is asked of it is none any more. */
	ssize_t ignored = write(runner->script, script, (size_t)length);
	(void)ignored;
}

static void close_line(void) { close_between(AT_LINE, AT_LINE + LINE_ENDS - 1); }

/* No input: the null device, or an empty file where the sandbox has something else under its name. */
static int empty_input(void) {
	int fd = open("/dev/null", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat status;
	if (fd >= 0 && fstat(fd, &status) == 0 && S_ISCHR(status.st_mode)) return fd;
	if (fd >= 0) close(fd);
	return memfd_create("empty", MFD_CLOEXEC);
}

static void take_line(struct runner *runner, const struct line_message *head, const int fds[LINE_ENDS]) {
	char script[256];
	runner->sequence = head->sequence;
	for (int i = 0; i < LINE_ENDS; i++) {
		int fd = fds[i] < 0 && i == LINE_INPUT ? empty_input() : fds[i];
		if (fd >= 0) place(fd, AT_LINE + i);
	}
	int length = snprintf(script, sizeof script,
			      "{ builtin . /proc/$PPID/fd/%d; } </proc/$PPID/fd/%d >/proc/$PPID/fd/%d 2>/proc/$PPID/fd/%d\n"
			      "builtin . /proc/$PPID/fd/%d %u $?\n",
			      AT_LINE + LINE_TEXT, AT_LINE + LINE_INPUT, AT_LINE + LINE_OUT, AT_LINE + LINE_ERR, AT_REPORT,
			      head->sequence);
	tell_shell(runner, script, length);
}

/* One line from the agent. False: the agent is gone. */
static bool hear_agent(struct runner *runner) {
	struct line_message head = {0};
	struct iovec piece = {&head, sizeof head};
	union {
		char bytes[CMSG_SPACE(LINE_ENDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct msghdr message = {
		.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
	ssize_t got = recvmsg(RUNNER_CONTROL, &message, MSG_CMSG_CLOEXEC);
	if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return false;
	struct cmsghdr *passed = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	if (passed == NULL || passed->cmsg_type != SCM_RIGHTS) return true;
	int received[LINE_ENDS], fds[LINE_ENDS] = {-1, -1, -1, -1};
	size_t count = (passed->cmsg_len - CMSG_LEN(0)) / sizeof(int), taken = 0;
	memcpy(received, CMSG_DATA(passed), count * sizeof(int));
	for (int i = 0; i < LINE_ENDS && taken < count; i++) {
		/* They may lie where a line's belong. */
		if (head.passed >> i & 1) fds[i] = place_own(received[taken++]);
	}
	take_line(runner, &head, fds);
	return true;
}

/* `SEQUENCE STATUS`, as the report writes it; anything else came from somebody else. */
static void hear_status(struct runner *runner) {
	char text[256];
	unsigned sequence, status;
	ssize_t got = read(runner->status, text, sizeof text - 1);
	if (got <= 0) return;
	text[got] = 0;
	if (sscanf(text, "%u %u", &sequence, &status) != 2 || sequence != runner->sequence || status > 255) return;
	runner->sequence = 0;
	close_line();
	say(RUNNER_DONE, sequence, (int32_t)status);
}

static void reap(struct runner *runner) {
	struct signalfd_siginfo info[4];
	ssize_t ignored = read(runner->signals, info, sizeof info);
	(void)ignored;
	int status;
	for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
		if (pid != runner->shell) continue;
		runner->shell = 0;
		close_line();
		/* What the shell had reported before it ended is heard first. */
		hear_status(runner);
		say(RUNNER_OVER, 0, WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
	}
}

static _Noreturn void serve(struct runner *runner) {
	struct pollfd polled[] = {{RUNNER_CONTROL, POLLIN, 0}, {runner->status, POLLIN, 0}, {runner->signals, POLLIN, 0}};
	for (;;) {
		if (poll(polled, 3, -1) < 0) continue;
		if (polled[1].revents != 0) hear_status(runner);
		if (polled[2].revents != 0) reap(runner);
		if (polled[0].revents != 0 && !hear_agent(runner)) {
			if (runner->shell > 0) kill(runner->shell, SIGKILL);
			_exit(0);
		}
	}
}

static int take_children(void) {
	sigset_t children;
	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	sigprocmask(SIG_BLOCK, &children, NULL);
	static const int deaf[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM, SIGTSTP, SIGTTIN, SIGTTOU};
	for (size_t i = 0; i < sizeof deaf / sizeof deaf[0]; i++) signal(deaf[i], SIG_IGN);
	return signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
}

_Noreturn void runner_main(const struct start *start, const struct identity *identity, int report) {
	/*
	 * No file of a user's is read (-p), and from here on lines may set what they like. At the signal a line is given up, not the
	 * session; the report of one that has ended is not. It is not SIGINT: the shell takes a trap that returns only once for that.
	 */
	static const char prologue[] =
		"set +p; BASH_ARGV0=bash; shopt -s execfail\n"
		"trap '[[ ${#BASH_SOURCE[@]} -gt 1 && ${BASH_SOURCE[0]} != */fd/19 ]] && builtin return 130' " TEXT(GIVE_UP) "\n"
		/* From here on the signal does not end it. */
		"builtin . /proc/$PPID/fd/" TEXT(AT_REPORT) " 0 0\n";
	struct runner runner = {0};
	int go[2];
	prctl(PR_SET_NAME, "dsec-session");
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (!open_channels(&runner) || pipe2(go, O_CLOEXEC) != 0) fail(report, errno);
	go[0] = place_own(go[0]);
	go[1] = place_own(go[1]);
	pid_t self = getpid();
	runner.shell = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
	if (runner.shell == 0) become_shell(start, identity, report, go[0], self);
	if (runner.shell < 0) fail(report, errno);
	/* From here on the shell may open what this process holds, and whoever runs as its user may read what it knows. */
	spawner_wipe();
	prctl(PR_SET_DUMPABLE, 1);
	runner.signals = place_own(take_children());
	tell_shell(&runner, prologue, sizeof prologue - 1);
	say(RUNNER_READY, 0, runner.shell);
	ssize_t ignored = write(go[1], "", 1);
	(void)ignored;
	close(go[0]);
	close(go[1]);
	close(RUNNER_SHELL);
	close(report);
	serve(&runner);
}

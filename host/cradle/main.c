/*
 * dsec-cradle AGENT [fd|paths] [/VIEW]: makes sandboxes on request. One per node; README.md has the protocol of descriptor 3.
 * It ends when its peer closes the connection. Sandboxes do not end with it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "minimal.h"
#include "overlay.h"
#include "slots.h"
#include "wire.h"

enum {
	LINK_FD = 3,
	EXIT_FAULT = 1,
	EXIT_PROTOCOL = 2,
	/* How late a death may be seen whose signal merged with another's. */
	SWEEP_MS = 20,
};

struct inbox {
	size_t length;
	uint8_t bytes[4 + FRAME_HEADER + MAX_FRAME];
};

/*
 * Whoever can read the binary can trace the agent: only an execute-only file of an id that no sandbox has makes the kernel
 * keep the agent's memory from the root of its sandbox.
 */
static int open_agent(const char *path, struct fault *fault)
{
	struct stat status;
	int fd = open(path, O_PATH | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &status))
		return fault_set(fault, "agent %s: open", path);
	if (!S_ISREG(status.st_mode) || status.st_uid != 0 || (status.st_mode & 07777) != 0711) {
		errno = EPERM;
		return fault_set(fault, "agent %s: is not a root-owned file of mode 0711", path);
	}
	return fd;
}

static int write_own(const char *path, const char *text, struct fault *fault)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool whole;

	if (fd < 0)
		return fault_set(fault, "open %s", path);
	whole = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	return whole ? 0 : fault_set(fault, "write %s", path);
}

/*
 * Agents inherit it. A node without CAP_SYS_RESOURCE runs without: sandboxes still have memory limits of their own, of which
 * agents are no part, so only a host that is short of memory as a whole may choose an agent.
 *
 * The old file of the two lowers the score and leaves alone how low a process without rights may set it again: by the new one,
 * every command in a sandbox could shield itself. Its -16 is -941 in the new scale.
 */
static int shield(struct fault *fault)
{
	if (write_own("/proc/self/oom_score_adj", "0", fault) == 0 && write_own("/proc/self/oom_adj", "-16", fault) == 0)
		return 0;
	if (fault->error != EACCES && fault->error != EPERM)
		return -1;
	fprintf(stderr, "dsec-cradle: agents are not shielded from the out-of-memory killer: no CAP_SYS_RESOURCE\n");
	return 0;
}

/* What agents would otherwise inherit from whoever started the node. */
static int detach(struct fault *fault)
{
	/* A kernel may be built without keys. */
	if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS)
		return fault_set(fault, "join an empty keyring");
	/* A signal for the terminal's foreground is for the node to answer. Fails, harmlessly, when it leads a session already. */
	setsid();
	umask(022);
	/* The /sys that sandboxes share shows the network of who mounts it: this one, which has a loopback and nothing else. */
	return unshare(CLONE_NEWNET) ? fault_set(fault, "leave the host's network") : 0;
}

static int prepare(struct cradle *cradle, int argc, char **argv, struct fault *fault)
{
	static const char SHELL[] = "--shell=";
	const char *mode = NULL, *view = NULL, *shell = NULL;

	if (argc < 2 || argc > 5) {
		errno = EINVAL;
		return fault_set(fault, "usage: dsec-cradle AGENT [fd|paths] [/VIEW] [--shell=/PROGRAM]");
	}
	for (int at = 2; at < argc; at++)
		if (strncmp(argv[at], SHELL, sizeof SHELL - 1) == 0)
			shell = argv[at] + sizeof SHELL - 1;
		else
			*(argv[at][0] == '/' ? &view : &mode) = argv[at];
	cradle->agent = open_agent(argv[1], fault);
	cradle->shell = shell == NULL ? -1 : open(shell, O_RDONLY | O_CLOEXEC);
	if (shell != NULL && cradle->shell < 0)
		return fault_set(fault, "shell %s: open", shell);
	if (cradle->agent < 0 || shield(fault) || detach(fault))
		return -1;
	cradle->host_ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	if (cradle->host_ns < 0)
		return fault_set(fault, "open the host's mount namespace");
	cradle->host_proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (cradle->host_proc < 0)
		return fault_set(fault, "open /proc");
	cradle->minimal_ns = minimal_make(cradle->host_ns, cradle->host_proc, view, fault);
	if (cradle->minimal_ns < 0)
		return -1;
	cradle->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (cradle->bell < 0)
		return fault_set(fault, "make the bell");
	cradle->link = LINK_FD;
	cradle->overlay_mode = overlay_probe();
	if (mode != NULL)
		cradle->overlay_mode = strcmp(mode, "paths") == 0 ? OVERLAY_PATHS : OVERLAY_FD;
	return 0;
}

/* False: the peer does not speak this protocol. */
static bool handle(struct slots *slots, const uint8_t *frame, size_t length)
{
	unsigned type = (unsigned)wire_number(frame, 2);
	uint32_t tag = (uint32_t)wire_number(frame + 4, 4);

	if (type == MESSAGE_CREATE)
		slots_create(slots, tag, frame + FRAME_HEADER, length - FRAME_HEADER);
	else if (type == MESSAGE_CANCEL)
		slots_cancel(slots, tag);
	else if (type == MESSAGE_BLANK)
		slots_blank(slots, tag, frame + FRAME_HEADER, length - FRAME_HEADER);
	else if (type == MESSAGE_DROP)
		slots_drop(slots, tag);
	return type >= MESSAGE_CREATE && type <= MESSAGE_DROP;
}

/* Handles whole frames while there is room for another create. */
static bool drain(struct inbox *inbox, struct slots *slots)
{
	size_t at = 0;

	while (inbox->length - at >= 4 && !slots_full(slots)) {
		size_t length = wire_number(inbox->bytes + at, 4);

		if (length < FRAME_HEADER || length > FRAME_HEADER + MAX_FRAME)
			return false;
		if (inbox->length - at - 4 < length)
			break;
		if (!handle(slots, inbox->bytes + at + 4, length))
			return false;
		at += 4 + length;
	}
	memmove(inbox->bytes, inbox->bytes + at, inbox->length - at);
	inbox->length -= at;
	return true;
}

/* 1: bytes came, 0: the peer is gone. */
static int receive(struct inbox *inbox)
{
	ssize_t got = recv(LINK_FD, inbox->bytes + inbox->length, sizeof inbox->bytes - inbox->length, MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 1;
	if (got <= 0)
		return 0;
	inbox->length += (size_t)got;
	return 1;
}

static void clear(int bell)
{
	eventfd_t rings;

	/* Nothing to read is fine: the answers are looked for either way. */
	(void)!eventfd_read(bell, &rings);
}

/*
 * Collects the children that signals name. One signal may stand for several deaths, so that a sweep over all children must
 * follow; it is put off a little, since it takes time for every live sandbox while most deaths are those of workers.
 */
static void hear_deaths(int deaths, struct slots *slots)
{
	struct signalfd_siginfo infos[16];
	ssize_t got;

	while ((got = read(deaths, infos, sizeof infos)) > 0)
		for (size_t at = 0; at < (size_t)got / sizeof *infos; at++)
			slots_collect(slots, (pid_t)infos[at].ssi_pid);
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

struct server {
	struct slots *slots;
	int bell;
	int deaths;
	bool open;
	/* When to sweep, 0 for not at all. */
	uint64_t sweep_at_ms;
	int status;
	struct inbox inbox;
};

static int until_sweep(const struct server *server)
{
	uint64_t now = now_ms();

	if (server->sweep_at_ms == 0)
		return -1;
	return server->sweep_at_ms > now ? (int)(server->sweep_at_ms - now) : 0;
}

/* Creates that nobody will hear of are taken back. */
static void end_link(struct server *server)
{
	server->open = false;
	slots_cancel_all(server->slots);
}

static void handle_frames(struct server *server)
{
	if (drain(&server->inbox, server->slots))
		return;
	fprintf(stderr, "dsec-cradle: the peer sent a frame that is none\n");
	server->status = EXIT_PROTOCOL;
	end_link(server);
}

/* One turn: answers and deaths first, they make room for requests. */
static void turn(struct server *server)
{
	struct pollfd fds[] = { { server->bell, POLLIN, 0 }, { server->deaths, POLLIN, 0 }, { LINK_FD, POLLIN, 0 } };

	fds[2].fd = server->open && !slots_full(server->slots) ? LINK_FD : -1;
	if (poll(fds, 3, until_sweep(server)) < 0)
		return;
	if (fds[0].revents != 0) {
		clear(server->bell);
		slots_answer(server->slots);
	}
	if (fds[1].revents != 0) {
		hear_deaths(server->deaths, server->slots);
		if (server->sweep_at_ms == 0)
			server->sweep_at_ms = now_ms() + SWEEP_MS;
	}
	if (until_sweep(server) == 0) {
		server->sweep_at_ms = 0;
		slots_collect_all(server->slots);
	}
	if (fds[2].revents != 0 && !receive(&server->inbox))
		end_link(server);
	/* Frames may have waited for a slot. */
	if (server->open)
		handle_frames(server);
}

static int block_deaths(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int main(int argc, char **argv)
{
	static struct cradle cradle;
	static struct server server;
	struct fault fault;
	struct slots *slots;
	int deaths = block_deaths();

	if (prepare(&cradle, argc, argv, &fault)) {
		wire_send_failed(LINK_FD, 0, &fault);
		return EXIT_FAULT;
	}
	slots = slots_new(&cradle, LINK_FD);
	if (deaths < 0 || slots == NULL) {
		fault_set(&fault, "start");
		wire_send_failed(LINK_FD, 0, &fault);
		return EXIT_FAULT;
	}
	wire_send_hello(LINK_FD, cradle.overlay_mode == OVERLAY_FD ? "fd" : "paths");
	server.slots = slots;
	server.bell = cradle.bell;
	server.deaths = deaths;
	server.open = true;
	while (server.open || !slots_empty(slots))
		turn(&server);
	slots_free(slots);
	return server.status;
}

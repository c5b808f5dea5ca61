/* Entry: arguments, the loop, signals. */
#include "agent.h"

#include <fcntl.h>
#include <net/if.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "blank.h"
#include "machine.h"
#include "options.h"

#define LISTENER 3
#define EVENTS 64
/* Descriptors for TASK_LIMIT tasks of four each, and some. */
#define DESCRIPTORS 8192
#define NOBODYS_GROUP 65534
/* How long memory without use is kept. */
#define TIDY_AFTER_US 1000000u

static struct agent agent;

uint64_t monotonic_us(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

/* Fatal: the sandbox ends with its init, and the node reads the status. */
static void require(bool success, int status) {
	if (!success) _exit(status);
}

void *pages_map(size_t size) {
	void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED) return NULL;
	/* What one task gave the agent, a process of another must not find in its memory. */
	madvise(pages, size, MADV_DONTFORK);
	return pages;
}

void pages_unmap(void *pages, size_t size) {
	if (pages != NULL) munmap(pages, size);
}

void close_fd(int *fd) {
	if (*fd >= 0) close(*fd);
	*fd = -1;
}

bool read_text(const char *path, char *text, size_t size) {
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) return false;
	ssize_t got = read(fd, text, size - 1);
	close(fd);
	if (got <= 0) return false;
	text[got] = 0;
	return true;
}

void agent_watch(struct agent *a, int fd, uint32_t events, enum source source, const struct task *task) {
	uint64_t slot = task == NULL ? 0 : (uint64_t)(task - a->tasks) | (uint64_t)(task->generation & 0xffffffu) << 32;
	struct epoll_event event = {.events = events, .data.u64 = slot | (uint64_t)source << 56};
	epoll_ctl(a->epoll, EPOLL_CTL_ADD, fd, &event);
}

void agent_timer(struct agent *a, uint64_t at_us) {
	if (at_us < a->timer_us) a->timer_us = at_us;
}

static void on_signals(struct agent *a) {
	struct signalfd_siginfo info[8];
	ssize_t got = read(a->signals, info, sizeof info);
	for (ssize_t i = 0; i < got / (ssize_t)sizeof info[0]; i++) {
		if (info[i].ssi_signo == SIGCHLD) {
			a->children_due = true;
			continue;
		}
		/* Not the init of a sandbox, so nothing else ends the tasks. */
		for (uint32_t slot = 0; slot < a->slots; slot++) {
			if (a->pids[slot] > 0) kill(-a->pids[slot], SIGKILL);
		}
		_exit(0);
	}
}

static void on_task_event(struct agent *a, enum source source, struct task *task, uint32_t events) {
	switch (source) {
	case ON_REPORT:
		task_reported(a, task);
		break;
	case ON_INPUT:
		if (task->state == TASK_CONNECTING) {
			port_answered(a, task);
		} else {
			input_drain(a, task);
		}
		break;
	case ON_SESSION:
		/* Who the runner is was told before what it says now, and may be noticed later: the shell is known by its parent. */
		if (task->pid == 0 && task->report >= 0) task_reported(a, task);
		if (task->action == ACTION_SESSION) session_event(a, task);
		break;
	case ON_STDOUT:
	case ON_STDERR:
		stream_event(a, &task->streams[source - ON_STDOUT],
			     (events & (EPOLLHUP | EPOLLRDHUP | EPOLLERR)) != 0);
		break;
	default:
		break;
	}
}

/* The blank becomes the agent of a sandbox; without one it has nothing to live for. */
static void on_blank(struct agent *a) {
	struct filling *filling = pages_map(sizeof *filling);
	require(filling != NULL && blank_fill(filling) == 0, 71);
	require(options_parse(filling->argc, filling->argv, &a->options) == 0, 64);
	pages_unmap(filling, sizeof *filling);
	spawner_start(a);
}

static void on_event(struct agent *a, const struct epoll_event *event) {
	enum source source = (enum source)(event->data.u64 >> 56);
	switch (source) {
	case ON_LISTENER:
		connection_accept(a);
		break;
	case ON_CONNECTION:
		if (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP)) a->connection.readable = true;
		if (event->events & EPOLLOUT) a->connection.writable = true;
		break;
	case ON_SIGNALS:
		on_signals(a);
		break;
	case ON_NOTICE:
		notices_event(a, (uint32_t)event->data.u64, event->events);
		break;
	case ON_BLANK:
		on_blank(a);
		break;
	case ON_SPAWNER:
		if (event->events & EPOLLOUT) a->spawner.writable = true;
		if (event->events & (EPOLLIN | EPOLLHUP)) spawner_event(a);
		break;
	default: {
		struct task *task = &a->tasks[event->data.u64 & 0xffffffffu];
		uint32_t generation = (uint32_t)(event->data.u64 >> 32) & 0xffffffu;
		/* The slot may have changed hands since the kernel made the event. */
		if (task->state == TASK_FREE || (task->generation & 0xffffffu) != generation) break;
		on_task_event(a, source, task, event->events);
	}
	}
}

static void read_streams(struct agent *a) {
	struct link round = a->readable;
	if (list_empty(&a->readable)) return;
	/* One read each, so that none keeps the others waiting: those that stay readable join a new list. */
	round.next->prev = &round;
	round.prev->next = &round;
	list_init(&a->readable);
	while (!list_empty(&round)) {
		struct link *first = round.next;
		struct stream *stream = OWNER_OF(first, struct stream, readable);
		uint32_t slot = (uint32_t)(((char *)stream - (char *)a->tasks) / (ptrdiff_t)sizeof(struct task));
		link_leave(first);
		stream_read(a, &a->tasks[slot], stream);
	}
}

void agent_drop_buffers(struct agent *a) {
	uintptr_t begin = ((uintptr_t)a->receive + 4095) & ~(uintptr_t)4095;
	uintptr_t end = (uintptr_t)(a->send + SEND_CAPACITY) & ~(uintptr_t)4095;
	madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* Rings that were emptied and stand unused, and the buffers of the connection. */
static void tidy(struct agent *a) {
	if (a->now_us < a->tidy_us) {
		if (a->tidy_us != NEVER) agent_timer(a, a->tidy_us);
		return;
	}
	a->tidy_us = NEVER;
	for (uint32_t slot = 0; slot < a->slots; slot++) {
		struct task *task = &a->tasks[slot];
		for (int i = 0; task->state != TASK_FREE && i < STREAMS; i++) {
			struct stream *stream = &task->streams[i];
			if (stream->ring == NULL || stream->from != stream->to) continue;
			pages_unmap(stream->ring, OUTPUT_WINDOW);
			stream->ring = NULL;
		}
	}
	if (a->connection.receive_length == 0 && a->connection.send_head == a->connection.send_tail) agent_drop_buffers(a);
}

static int wait_ms(const struct agent *a) {
	if (!list_empty(&a->readable) || connection_busy(a) || a->children_due) return 0;
	uint64_t at_us = !list_empty(&a->held) && a->held_us < a->timer_us ? a->held_us : a->timer_us;
	if (at_us == NEVER) return -1;
	if (at_us <= a->now_us) return 0;
	uint64_t wait = (at_us - a->now_us + 999) / 1000;
	return wait > 60000 ? 60000 : (int)wait;
}

static void turn(struct agent *a) {
	struct epoll_event events[EVENTS];
	int count = epoll_wait(a->epoll, events, EVENTS, wait_ms(a));
	a->now_us = monotonic_us();
	for (int i = 0; i < count; i++) on_event(a, &events[i]);
	connection_receive(a);
	if (a->timer_us <= a->now_us) {
		a->timer_us = NEVER;
		tasks_expire(a);
		spawner_check(a);
		listeners_look(a);
		tidy(a);
	}
	spawner_feed(a);
	if (a->children_due) tasks_reap(a);
	streams_release(a);
	read_streams(a);
	connection_pump(a);
	if (count > 0 && a->tidy_us == NEVER) {
		a->tidy_us = a->now_us + TIDY_AFTER_US;
		agent_timer(a, a->tidy_us);
	}
}

bool loopback_raise(void) {
	struct ifreq request = {.ifr_name = "lo"};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	/* A kernel without it has none to raise. */
	if (fd < 0) return true;
	bool up = ioctl(fd, SIOCGIFFLAGS, &request) != 0 || (request.ifr_flags & IFF_UP) != 0;
	request.ifr_flags |= IFF_UP;
	if (!up) up = ioctl(fd, SIOCSIFFLAGS, &request) == 0;
	close(fd);
	return up;
}

static void raise_descriptors(struct options *options) {
	getrlimit(RLIMIT_NOFILE, &options->nofile);
	struct rlimit own = options->nofile;
	own.rlim_cur = own.rlim_max < DESCRIPTORS ? own.rlim_max : DESCRIPTORS;
	if (own.rlim_cur > options->nofile.rlim_cur) setrlimit(RLIMIT_NOFILE, &own);
}

/*
 * Whoever has all three user and group ids of a process may set its limits, and the root of the sandbox can take on any ids:
 * nobody has a real group that differs from the effective one. Until it takes on its user, that also keeps a child from being
 * traced. What files belong to goes by the effective group.
 */
static void become_nobodys(const struct agent *a) {
	if (a->init) require(setresgid(NOBODYS_GROUP, 0, 0) == 0, 71);
}

static void take_signals(struct agent *a) {
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	/* Init ignores what it has no handler for; elsewhere SIGTERM ends the agent together with its tasks. */
	if (!a->init) sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	a->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	require(a->signals >= 0, 71);
	agent_watch(a, a->signals, EPOLLIN, ON_SIGNALS, NULL);
}

static void prepare(struct agent *a) {
	list_init(&a->readable);
	list_init(&a->due);
	list_init(&a->waiting);
	list_init(&a->held);
	a->connection.fd = a->spawner.fd = -1;
	for (int i = 0; i < NOTICES; i++) a->notices[i] = -1;
	a->timer_us = a->look_us = a->tidy_us = NEVER;
	a->now_us = monotonic_us();
	a->init = getpid() == 1;
	if (!a->init) prctl(PR_SET_CHILD_SUBREAPER, 1);
	umask(022);
	become_nobodys(a);
	for (int fd = 0; fd < LISTENER; fd++) require(fcntl(fd, F_GETFD) >= 0, 72);
	int last = a->options.blank ? BLANK_SOCKET : LISTENER + a->options.cgroups + a->options.cells;
	for (int fd = LISTENER; fd <= last; fd++) require(ioctl(fd, FIOCLEX) == 0, 72);
	if (a->options.blank) require(blank_ready() == 0, 71);
	if (a->options.shell > 0) require(ioctl(a->options.shell, FIOCLEX) == 0, 72);
	int nonblocking = 1;
	ioctl(LISTENER, FIONBIO, &nonblocking);
	require(getrandom(a->boot_id, sizeof a->boot_id, 0) == sizeof a->boot_id, 71);
	a->epoll = epoll_create1(EPOLL_CLOEXEC);
	require(a->epoll >= 0, 71);
	raise_descriptors(&a->options);
	bool up = loopback_raise();
	require(up || !a->init, 71);
	take_signals(a);
	agent_watch(a, LISTENER, EPOLLIN, ON_LISTENER, NULL);
	if (!a->options.blank) {
		spawner_start(a);
		return;
	}
	a->spawner.retry_us = NEVER;
	agent_watch(a, BLANK_SOCKET, EPOLLIN, ON_BLANK, NULL);
}

int main(int argc, char **argv) {
	if (argc == 2 && strcmp(argv[1], "--machine") == 0 && getpid() == 1) machine_main();
	if (argc == 2 && strcmp(argv[1], "--guest") == 0) guest_main(argv[0]);
	if (options_parse(argc, argv, &agent.options) != 0) {
		static const char usage[] = "usage: dsec-agent [--guest | --whole] [--blank] [--shell=DESCRIPTOR] [--cgroups=N] [--cells=N] [--processors=LIST] [--apparmor=PROFILE] "
					    "[--rlimit=NAME:SOFT:HARD]...\n";
		ssize_t ignored = write(2, usage, sizeof usage - 1);
		(void)ignored;
		return 64;
	}
	prepare(&agent);
	for (;;) turn(&agent);
}

#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"

/* How long a port may take to appear: the kernel makes it when the device has answered. */
#define PORT_TRIES 5000
#define PORT_PAUSE_US 2000
#define PORTS 8
/* The kernel counts all devices of its bus; ours is among the first. */
#define DEVICES 32

static struct machine machine;

_Noreturn void machine_end(const char *why, int error) {
	fprintf(stderr, "dsec-machine: %s: %s\n", why, error == 0 ? "ends" : strerror(error));
	if (machine.guest) _exit(1);
	sync();
	reboot(RB_POWER_OFF);
	for (;;) pause();
}

int machine_write(const char *path, const char *text) {
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0) return -1;
	bool whole = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	return whole ? 0 : -1;
}

bool hex_read(const char *text, uint8_t *bytes, size_t size) {
	static const char digits[] = "0123456789abcdef";
	for (size_t at = 0; at < 2 * size; at++) {
		const char *digit = text[at] == 0 ? NULL : strchr(digits, text[at]);
		if (digit == NULL) return false;
		uint8_t value = (uint8_t)(digit - digits);
		bytes[at / 2] = (uint8_t)(at % 2 == 0 ? value << 4 : bytes[at / 2] | value);
	}
	return text[2 * size] == 0;
}

/* The port of that name, opened; -1: there is none yet. */
static int port_find(const char *name) {
	for (int place = 0; place < DEVICES * PORTS; place++) {
		int device = place / PORTS, number = place % PORTS;
		char path[64], found[64];
		snprintf(path, sizeof path, "/sys/class/virtio-ports/vport%dp%d/name", device, number);
		if (!read_text(path, found, sizeof found)) continue;
		found[strcspn(found, "\n")] = 0;
		if (strcmp(found, name) != 0) continue;
		snprintf(path, sizeof path, "/dev/vport%dp%d", device, number);
		return open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	}
	return -1;
}

static int port_open(const char *name) {
	for (int tries = 0; tries < PORT_TRIES; tries++) {
		int fd = port_find(name);
		if (fd >= 0) return fd;
		usleep(PORT_PAUSE_US);
	}
	machine_end(name, ENODEV);
}

/* A port without anybody at its other end is always at its end: only a change of that may wake the loop. */
int machine_watch(int fd, enum machine_source source) {
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.u32 = source};
	return epoll_ctl(machine.epoll, EPOLL_CTL_ADD, fd, &event) != 0 ? errno : 0;
}

static void watch(int fd, enum machine_source source) {
	int error = machine_watch(fd, source);
	if (error != 0) machine_end("epoll", error);
}

int machine_connect(struct machine *m, const uint8_t nonce[NONCE_BYTES]) {
	int error = bridge_open(m, nonce);
	if (error == 0) watch(m->agent, FROM_AGENT);
	return error;
}

static void turn(void) {
	struct epoll_event events[SOURCES];
	int count = epoll_wait(machine.epoll, events, SOURCES, -1);
	for (int i = 0; i < count; i++) {
		if (events[i].data.u32 == FROM_CONTROL) {
			lines_flush(&machine);
			lines_receive(&machine);
		}
		if (events[i].data.u32 == FROM_CRADLE) launch_event(&machine);
		if (events[i].data.u32 == FROM_FLUSH) lines_flushed(&machine);
	}
	bridge_pump(&machine);
}

static _Noreturn void serve(void) {
	machine.port = port_open("dsec.agent");
	watch(machine.port, FROM_PORT);
	machine.control = port_open("dsec.control");
	watch(machine.control, FROM_CONTROL);
	lines_receive(&machine);
	for (;;) turn();
}

_Noreturn void machine_main(void) {
	machine.agent = machine.flush = -1;
	signal(SIGPIPE, SIG_IGN);
	/* What orphans leave is nobody's: the kernel takes it away. */
	signal(SIGCHLD, SIG_IGN);
	machine_boot();
	machine.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (machine.epoll < 0) machine_end("epoll", errno);
	launch_start(&machine);
	watch(machine.cradle, FROM_CRADLE);
	serve();
}

/* Others of its children do one thing each, and end. */
static void on_child(int signal) {
	(void)signal;
	for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) > 0;) {
		if (pid == machine.sandbox) _exit(1);
	}
}

_Noreturn void guest_main(const char *program) {
	machine.guest = true;
	machine.agent = machine.cradle = machine.flush = -1;
	signal(SIGPIPE, SIG_IGN);
	machine.sandbox = guest_start_agent(program);
	signal(SIGCHLD, on_child);
	/* It may have ended before it was known who it is. */
	on_child(SIGCHLD);
	machine.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (machine.epoll < 0) machine_end("epoll", errno);
	serve();
}

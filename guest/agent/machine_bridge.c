/*
 * Bytes between the agent's port and the agent's socket. A port does not tell one connection from the next: bytes of the one before
 * may still be on their way when a new one begins. So each begins with a nonce, both ways, that the node has named on the control port.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent.h"
#include "bytes.h"
#include "frame.h"
#include "machine.h"

static void bridge_close(struct machine *machine) {
	close_fd(&machine->agent);
	lines_tell(machine, "closed");
}

/* A descriptor, or -1 with errno. */
static int connect_agent(int flags) {
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = AGENT_SOCKET};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
	int error = errno;
	close(fd);
	errno = error;
	return -1;
}

int bridge_open(struct machine *machine, const uint8_t nonce[NONCE_BYTES]) {
	close_fd(&machine->agent);
	int fd = connect_agent(SOCK_NONBLOCK);
	if (fd < 0) return errno;
	machine->agent = fd;
	machine->synchronised = false;
	memcpy(machine->nonce, nonce, NONCE_BYTES);
	machine->in.from = machine->in.to = machine->out.from = 0;
	memcpy(machine->out.bytes, nonce, NONCE_BYTES);
	machine->out.to = NONCE_BYTES;
	return 0;
}

int bridge_renew(void) {
	uint8_t hello[FRAME_HEADER + 4], welcome[FRAME_HEADER];
	int fd = connect_agent(0);
	if (fd < 0) return errno;
	put32(frame_write(hello, FRAME_HELLO, 1, 0, 4), PROTOCOL_VERSION);
	bool told = send(fd, hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello &&
		    recv(fd, welcome, sizeof welcome, MSG_WAITALL) == sizeof welcome && welcome[4] == FRAME_WELCOME;
	close(fd);
	return told ? 0 : EPROTO;
}

/* True when bytes were moved. `gone`: the source has ended, or the sink takes nothing any more. */
static bool flow_move(struct flow *flow, int source, int sink, bool *gone) {
	bool moved = false;
	*gone = false;
	if (flow->from == flow->to) flow->from = flow->to = 0;
	if (flow->to < sizeof flow->bytes) {
		ssize_t got = read(source, flow->bytes + flow->to, sizeof flow->bytes - flow->to);
		if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) *gone = true;
		if (got > 0) flow->to += (size_t)got;
		moved = got > 0;
	}
	if (sink >= 0 && flow->from < flow->to) {
		ssize_t put = write(sink, flow->bytes + flow->from, flow->to - flow->from);
		if (put < 0 && errno != EAGAIN && errno != EINTR) *gone = true;
		if (put > 0) flow->from += (size_t)put;
		moved = moved || put > 0;
	}
	return moved;
}

/* Drops what lies before the nonce, and the nonce. */
static void synchronise(struct machine *machine) {
	struct flow *in = &machine->in;
	while (in->to - in->from >= NONCE_BYTES) {
		if (memcmp(in->bytes + in->from, machine->nonce, NONCE_BYTES) == 0) {
			in->from += NONCE_BYTES;
			machine->synchronised = true;
			return;
		}
		in->from++;
	}
	memmove(in->bytes, in->bytes + in->from, in->to - in->from);
	in->to -= in->from;
	in->from = 0;
}

/*
 * The port's end is none of the connection: the kernel learns from one queue of the device what is said and from another that somebody has connected, in
 * any order, so that a port may seem to be at its end behind the first words of a connection. The next one ends the one before.
 */
void bridge_pump(struct machine *machine) {
	bool port_gone, agent_gone, more = true;
	while (machine->agent >= 0 && more) {
		more = flow_move(&machine->in, machine->port, machine->synchronised ? machine->agent : -1, &port_gone);
		if (!machine->synchronised) synchronise(machine);
		more = flow_move(&machine->out, machine->agent, machine->port, &agent_gone) || more;
		if (agent_gone && machine->out.from == machine->out.to) bridge_close(machine);
	}
}

/* The sending side of the connection: one buffer for small frames, and output straight from the rings. */
#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "agent.h"
#include "bytes.h"

#define PIECES 4

/* Returns bytes sent, 0 when the socket is full, -1 when the connection was dropped. */
static ssize_t send_pieces(struct agent *agent, struct iovec *pieces, int count) {
	struct connection *c = &agent->connection;
	struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)count};
	for (;;) {
		ssize_t sent = sendmsg(c->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent >= 0) return sent;
		if (errno == EINTR) continue;
		if (errno == EAGAIN) {
			c->writable = false;
			return 0;
		}
		connection_drop(agent);
		return -1;
	}
}

bool connection_flush(struct agent *agent) {
	struct connection *c = &agent->connection;
	while (c->fd >= 0 && c->send_head < c->send_tail) {
		if (!c->writable) return false;
		struct iovec piece = {agent->send + c->send_head, c->send_tail - c->send_head};
		ssize_t sent = send_pieces(agent, &piece, 1);
		if (sent <= 0) return false;
		c->send_head += (size_t)sent;
	}
	c->send_head = c->send_tail = 0;
	return c->fd >= 0;
}

/* Keeps the pieces' bytes beyond the first `sent`: what a full socket did not take of a frame it has begun. */
static void keep_rest(struct agent *agent, const struct iovec *pieces, int count, size_t sent) {
	uint8_t *to = agent->send;
	for (int i = 0; i < count; i++) {
		size_t skip = sent < pieces[i].iov_len ? sent : pieces[i].iov_len;
		sent -= skip;
		memmove(to, (uint8_t *)pieces[i].iov_base + skip, pieces[i].iov_len - skip);
		to += pieces[i].iov_len - skip;
	}
	agent->connection.send_head = 0;
	agent->connection.send_tail = (size_t)(to - agent->send);
}

bool connection_send_data(struct agent *agent, struct task *task, int which, uint32_t size) {
	struct connection *c = &agent->connection;
	struct stream *stream = &task->streams[which];
	/* keep_rest must have room for all of it. */
	if (!c->writable || c->send_tail - c->send_head > SEND_SMALL) return false;
	uint8_t header[FRAME_HEADER + OFFSET_FIELD];
	put64(frame_write(header, FRAME_OUT, (uint8_t)which, task->number, OFFSET_FIELD + size), stream->sent);
	size_t at = stream->sent % OUTPUT_WINDOW;
	size_t first = size < OUTPUT_WINDOW - at ? size : OUTPUT_WINDOW - at;
	struct iovec pieces[PIECES] = {
		{agent->send + c->send_head, c->send_tail - c->send_head},
		{header, sizeof header},
		{stream->ring + at, first},
		{stream->ring, size - first},
	};
	ssize_t sent = send_pieces(agent, pieces, PIECES);
	if (sent <= 0) return false;
	keep_rest(agent, pieces, PIECES, (size_t)sent);
	stream->sent += size;
	return true;
}

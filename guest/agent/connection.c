/* The one connection of the edge: accepting, receiving, and the order in which things are sent. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent.h"
#include "bytes.h"

#define LISTENER 3
/* Receives in one turn, so that a busy edge does not keep the tasks waiting. */
#define RECEIVE_BATCH 8

void connection_drop(struct agent *agent) {
	struct connection *c = &agent->connection;
	if (c->fd < 0) return;
	close_fd(&c->fd);
	pages_unmap(c->big, c->big_size);
	*c = (struct connection){.fd = -1};
	tasks_detach(agent);
}

/*
 * A new connection replaces the one before: an edge that was restarted must not wait for a dead one to be noticed. Who may
 * connect is decided where the socket lies: mode 0600 in a directory of the host that the sandbox has no path to.
 */
void connection_accept(struct agent *agent) {
	int fd = accept4(LISTENER, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0) return;
	connection_drop(agent);
	agent->session++;
	agent->connection = (struct connection){.fd = fd, .readable = true, .writable = true};
	agent_watch(agent, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, ON_CONNECTION, NULL);
}

static void refuse(struct agent *agent) {
	uint8_t frame[FRAME_HEADER + 4];
	put32(frame_write(frame, FRAME_PROTOCOL_ERROR, 0, 0, 4), PROTOCOL_VERSION);
	if (connection_flush(agent)) send(agent->connection.fd, frame, sizeof frame, MSG_DONTWAIT | MSG_NOSIGNAL);
	connection_drop(agent);
}

/* Flag 1: the agent was copied with its machine, and is another one from here on. */
static bool greet(struct agent *agent, const struct frame *frame) {
	struct connection *c = &agent->connection;
	if (frame->flag > 1 || c->greeted || get32(frame->payload) != PROTOCOL_VERSION) return false;
	if (frame->flag == 1 && getrandom(agent->boot_id, sizeof agent->boot_id, 0) != sizeof agent->boot_id) return false;
	c->greeted = true;
	uint8_t *at = connection_frame(agent, FRAME_WELCOME, 0, 0, 32);
	put32(at, PROTOCOL_VERSION);
	put32(at + 4, (uint32_t)getpid());
	put32(at + 8, OUTPUT_WINDOW);
	put32(at + 12, INPUT_WINDOW);
	memcpy(at + 16, agent->boot_id, sizeof agent->boot_id);
	return true;
}

/* Frames about tasks that are gone are late, not wrong: they crossed a FORGET or a failure. */
static bool handle_task(struct agent *agent, const struct frame *frame) {
	struct task *task = task_find(agent, frame->task);
	switch (frame->type) {
	case FRAME_STDIN:
		if (task == NULL) {
			put64(connection_frame(agent, FRAME_STDIN_ACK, STDIN_ABSENT, frame->task, 8), 0);
			return true;
		}
		return input_take(agent, task, get64(frame->payload), frame->payload + OFFSET_FIELD, frame->size - OFFSET_FIELD);
	case FRAME_STDIN_EOF:
		if (task != NULL) input_finish(agent, task, get64(frame->payload));
		return true;
	case FRAME_SIGNAL:
		if (task != NULL) task_signal(agent, task, (int)get32(frame->payload), frame->flag == 1);
		return frame->flag <= 1;
	case FRAME_ACK:
		if (frame->flag >= STREAMS) return false;
		return task == NULL || stream_acknowledge(agent, task, frame->flag, get64(frame->payload));
	case FRAME_RESIZE:
		if (task != NULL) terminal_resize(task, (struct terminal_size){get16(frame->payload), get16(frame->payload + 2)});
		return get16(frame->payload) != 0 && get16(frame->payload + 2) != 0;
	case FRAME_INPUT_ASK:
		if (task != NULL) input_tell(agent, task);
		return true;
	case FRAME_FORGET:
		if (task != NULL) task_forget(agent, task);
		return true;
	default:
		return false;
	}
}

static bool handle(struct agent *agent, const struct frame *frame) {
	struct connection *c = &agent->connection;
	if (frame->type == FRAME_HELLO) return greet(agent, frame);
	if (!c->greeted) return false;
	switch (frame->type) {
	case FRAME_PING:
		memcpy(connection_frame(agent, FRAME_PONG, 0, 0, 8), frame->payload, 8);
		return true;
	case FRAME_START:
		task_start(agent, frame);
		return true;
	case FRAME_LIST:
		if (!c->list_due) c->list_at = 0;
		c->list_due = true;
		return true;
	default:
		return handle_task(agent, frame);
	}
}

/* A reply must find room: no frame is handled while the edge lets replies pile up. */
static bool reply_room(const struct agent *agent) {
	return agent->connection.send_tail + FRAME_HEADER + REPLY_ROOM <= SEND_SMALL;
}

static bool make_room(struct agent *agent) {
	if (reply_room(agent) || (connection_flush(agent) && reply_room(agent))) return true;
	agent->connection.paused = true;
	return false;
}

/* Handles what is complete. False: the connection is gone, or waits for room. */
static bool handle_received(struct agent *agent) {
	struct connection *c = &agent->connection;
	size_t at = 0;
	c->paused = false;
	while (c->big == NULL) {
		struct frame frame;
		int64_t extent = frame_read(agent->receive + at, c->receive_length - at, &frame);
		if (extent < 0) {
			refuse(agent);
			return false;
		}
		if (extent > RECEIVE_CAPACITY) {
			c->big = pages_map((size_t)extent);
			c->big_size = (size_t)extent;
			c->big_length = c->receive_length - at;
			if (c->big == NULL) {
				connection_drop(agent);
				return false;
			}
			memcpy(c->big, agent->receive + at, c->big_length);
			at = c->receive_length;
			break;
		}
		if (extent == 0 || (size_t)extent > c->receive_length - at) break;
		if (!make_room(agent)) break;
		if (!handle(agent, &frame)) {
			refuse(agent);
			return false;
		}
		at += (size_t)extent;
	}
	if (c->fd < 0) return false;
	if (at > 0) {
		c->receive_length -= at;
		memmove(agent->receive, agent->receive + at, c->receive_length);
	}
	return !c->paused;
}

static bool handle_big(struct agent *agent) {
	struct connection *c = &agent->connection;
	if (c->big_length < c->big_size) return true;
	if (!make_room(agent)) return false;
	struct frame frame;
	uint8_t *big = c->big;
	frame_read(big, c->big_length, &frame);
	bool good = handle(agent, &frame);
	pages_unmap(big, c->big_size);
	c->big = NULL;
	if (!good) refuse(agent);
	return good;
}

/* False: nothing more to receive now. */
static bool receive_some(struct agent *agent) {
	struct connection *c = &agent->connection;
	uint8_t *to = c->big != NULL ? c->big + c->big_length : agent->receive + c->receive_length;
	size_t room = c->big != NULL ? c->big_size - c->big_length : RECEIVE_CAPACITY - c->receive_length;
	ssize_t got = recv(c->fd, to, room, 0);
	if (got < 0 && errno == EINTR) return true;
	if (got < 0 && errno == EAGAIN) {
		c->readable = false;
		return false;
	}
	if (got <= 0) {
		connection_drop(agent);
		return false;
	}
	if (c->big != NULL) {
		c->big_length += (size_t)got;
	} else {
		c->receive_length += (size_t)got;
	}
	return true;
}

void connection_receive(struct agent *agent) {
	struct connection *c = &agent->connection;
	for (int i = 0; i < RECEIVE_BATCH && c->fd >= 0; i++) {
		if (c->big != NULL ? !handle_big(agent) : !handle_received(agent)) return;
		if (c->fd < 0 || !c->readable || !receive_some(agent)) return;
	}
	if (c->fd >= 0) (void)(c->big != NULL ? handle_big(agent) : handle_received(agent));
}

bool connection_busy(const struct agent *agent) {
	const struct connection *c = &agent->connection;
	if (c->fd < 0) return false;
	bool room = c->writable || reply_room(agent);
	if ((c->readable || c->paused) && room) return true;
	return c->greeted && c->writable && (c->send_head < c->send_tail || list_ready(agent) || !list_empty(&agent->due));
}

uint8_t *connection_frame(struct agent *agent, uint8_t type, uint8_t flag, uint32_t task, uint32_t size) {
	struct connection *c = &agent->connection;
	if (c->send_tail + FRAME_HEADER + size > SEND_SMALL) return NULL;
	uint8_t *payload = frame_write(agent->send + c->send_tail, type, flag, task, size);
	c->send_tail += FRAME_HEADER + size;
	return payload;
}

void connection_pump(struct agent *agent) {
	struct connection *c = &agent->connection;
	while (c->fd >= 0 && c->greeted) {
		enum emitted emitted = EMITTED_ALL;
		if (list_ready(agent)) {
			emitted = list_emit(agent);
		} else if (!list_empty(&agent->due)) {
			struct task *task = OWNER_OF(agent->due.next, struct task, due);
			link_leave(&task->due);
			emitted = task_emit(agent, task);
			if (emitted != EMITTED_ALL) list_append(&agent->due, &task->due);
		} else {
			break;
		}
		if (emitted == EMITTED_BLOCKED && (!connection_flush(agent) || !c->writable)) return;
	}
	if (c->fd >= 0) connection_flush(agent);
}

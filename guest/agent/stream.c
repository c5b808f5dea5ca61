/* Bytes between a task's pipes and the edge: output kept until acknowledged, input kept until the task takes it. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent.h"
#include "bytes.h"
#include "start.h"

#define READ_SIZE 65536u
/* How long the end of a stream waits for that of the leader. */
#define HOLD_US 5000u
/* More than the kernel keeps between the two ends of a terminal: 8 KiB on the way, 4 KiB to be read. */
#define TERMINAL_HOLDS 65536u

void stream_close(struct stream *stream) {
	link_leave(&stream->readable);
	close_fd(&stream->fd);
	pages_unmap(stream->ring, OUTPUT_WINDOW);
	*stream = (struct stream){.fd = -1};
}

static void stream_mark(struct agent *agent, struct stream *stream) {
	int held = 0;
	if (stream->terminal && stream->fd >= 0) {
		/* Nothing counts what is on its way: a read that finds nothing more ends the wait, or so much that it came later. */
		stream->mark = stream->to + TERMINAL_HOLDS;
		stream_event(agent, stream, false);
		return;
	}
	if (stream->fd >= 0) ioctl(stream->fd, FIONREAD, &held);
	stream->mark = stream->to + (uint64_t)(held > 0 ? held : 0);
}

void stream_event(struct agent *agent, struct stream *stream, bool hung_up) {
	if (stream->fd < 0) return;
	if (hung_up) stream->hung_up = true;
	if (stream->to - stream->from == OUTPUT_WINDOW) {
		stream->stalled = true;
	} else {
		list_append(&agent->readable, &stream->readable);
	}
}

/* At its end, as far as can be seen without reading, and so without room for what might come. */
static bool drained(const struct stream *stream, const struct task *task) {
	int held = 0;
	bool pipe = !stream->terminal && task->action != ACTION_CONNECT;
	return pipe && stream->hung_up && ioctl(stream->fd, FIONREAD, &held) == 0 && held == 0;
}

/* Most streams end with the leader, a moment before that is known: told together they wake the edge once. */
static bool wait_for_leader(struct agent *agent, const struct task *task, struct stream *stream) {
	if (task->state != TASK_RUNNING || stream->held) return false;
	stream->held = true;
	if (list_empty(&agent->held)) agent->held_us = agent->now_us + HOLD_US;
	list_append(&agent->held, &stream->readable);
	return true;
}

static void release(struct agent *agent, struct stream *stream) {
	link_leave(&stream->readable);
	list_append(&agent->readable, &stream->readable);
}

void streams_release(struct agent *agent) {
	if (agent->held_us > agent->now_us) return;
	while (!list_empty(&agent->held)) release(agent, OWNER_OF(agent->held.next, struct stream, readable));
}

void stream_leader_ended(struct agent *agent, struct stream *stream) {
	if (stream->held && stream->fd >= 0) release(agent, stream);
	stream_mark(agent, stream);
}

static ssize_t read_into_ring(struct stream *stream, size_t room) {
	size_t at = stream->to % OUTPUT_WINDOW;
	size_t first = room < OUTPUT_WINDOW - at ? room : OUTPUT_WINDOW - at;
	struct iovec pieces[2] = {{stream->ring + at, first}, {stream->ring, room - first}};
	return readv(stream->fd, pieces, room > first ? 2 : 1);
}

void stream_read(struct agent *agent, struct task *task, struct stream *stream) {
	uint64_t free = OUTPUT_WINDOW - (stream->to - stream->from);
	if (stream->fd < 0) return;
	if (free == 0) {
		stream->stalled = true;
		return;
	}
	bool over = drained(stream, task);
	if (over && wait_for_leader(agent, task, stream)) return;
	if (stream->ring == NULL && !over) stream->ring = pages_map(OUTPUT_WINDOW);
	if (stream->ring == NULL && !over) {
		/* No memory now: the writer waits, and the next turn tries again. */
		list_append(&agent->readable, &stream->readable);
		return;
	}
	size_t room = free < READ_SIZE ? (size_t)free : READ_SIZE;
	ssize_t got = over ? 0 : read_into_ring(stream, room);
	if (got > 0) stream->to += (uint64_t)got;
	/*
	 * The pipe is empty. An end must not wait for what a command has read back out of it, by way of /proc/self/fd. A terminal
	 * hands over what it has in pieces; before it says that it has nothing, the kernel waits for all that was written.
	 */
	bool empty = stream->terminal ? got <= 0 : got < (ssize_t)room;
	if (empty && stream->mark > stream->to) {
		stream->mark = stream->to;
		task_due(agent, task);
	}
	/* What a terminal's other end says when it is closed. */
	if (got < 0 && stream->terminal && errno == EIO) got = 0;
	if (got < 0) {
		if (task->action == ACTION_CONNECT && errno != EAGAIN && errno != EINTR) port_broke(agent, task, errno);
		return;
	}
	if (got == 0) {
		stream->ended = true;
		close_fd(&stream->fd);
		if (task->action == ACTION_CONNECT) port_settle(agent, task);
	} else {
		/*
		 * A full read may have left some; after a short one the pipe was empty and announces the next bytes. Its end is
		 * announced once, perhaps together with the last bytes: from then on it is read to the end.
		 */
		bool more = (size_t)got == room || stream->hung_up || stream->terminal;
		if (more) list_append(&agent->readable, &stream->readable);
	}
	task_due(agent, task);
}

bool stream_acknowledge(struct agent *agent, struct task *task, int which, uint64_t offset) {
	struct stream *stream = &task->streams[which];
	if (task->state == TASK_FAILED) return true;
	if (!stream->resumed) {
		if (offset < stream->from || offset > stream->to) return false;
		stream->resumed = true;
		stream->sent = offset;
	}
	if (offset < stream->from) return true;
	if (offset > stream->sent) return false;
	stream->from = offset;
	if (stream->stalled && stream->fd >= 0 && stream->to - stream->from < OUTPUT_WINDOW) {
		stream->stalled = false;
		list_append(&agent->readable, &stream->readable);
	}
	if (stream->ended && stream->from == stream->to) {
		pages_unmap(stream->ring, OUTPUT_WINDOW);
		stream->ring = NULL;
	}
	task_due(agent, task);
	return true;
}

void input_close(struct input *input) {
	close_fd(&input->fd);
	close_fd(&input->marker);
	pages_unmap(input->ring, INPUT_WINDOW);
	input->ring = NULL;
	/* What nobody reads counts as taken: the edge must not wait for it. */
	input->written = input->received;
}

static void answer(struct agent *agent, struct task *task, uint8_t kind) {
	if (kind != STDIN_TAKEN || !task->input.answer_due) task->input.answer = kind;
	task->input.answer_due = true;
	task_due(agent, task);
}

static void close_when_drained(struct input *input) {
	if (!input->closing || input->written < input->received) return;
	if (input->terminal && !terminal_end_input(input)) return;
	if (input->marker >= 0) {
		ssize_t ignored = write(input->marker, "", 1);
		(void)ignored;
	}
	if (input->socket) shutdown(input->fd, SHUT_WR);
	input_close(input);
}

/* Writes what it can of `bytes`; the number taken, all of it when nobody reads any more. */
static uint32_t write_input(struct input *input, const uint8_t *bytes, uint32_t size) {
	if (input->fd < 0) return size;
	ssize_t wrote = write(input->fd, bytes, size);
	if (wrote > 0) input->in_line = bytes[wrote - 1] != '\n' && bytes[wrote - 1] != '\r';
	if (wrote >= 0) return (uint32_t)wrote;
	if (errno == EAGAIN || errno == EINTR) return 0;
	input->error = errno;
	input_close(input);
	return size;
}

void input_drain(struct agent *agent, struct task *task) {
	struct input *input = &task->input;
	uint64_t before = input->written;
	while (input->written < input->received) {
		size_t at = input->written % INPUT_WINDOW;
		uint64_t held = input->received - input->written;
		uint32_t size = (uint32_t)(held < INPUT_WINDOW - at ? held : INPUT_WINDOW - at);
		uint32_t taken = write_input(input, input->ring + at, size);
		if (taken == 0) break;
		if (input->written < input->received) input->written += taken;
		if (taken < size) break;
	}
	if (input->written == input->received) {
		pages_unmap(input->ring, INPUT_WINDOW);
		input->ring = NULL;
	}
	if (input->written > before) answer(agent, task, STDIN_TAKEN);
	close_when_drained(input);
	if (task->action == ACTION_CONNECT) port_settle(agent, task);
}

static bool keep_input(struct input *input, const uint8_t *bytes, uint32_t size) {
	if (size == 0) return true;
	if (input->ring == NULL) input->ring = pages_map(INPUT_WINDOW);
	if (input->ring == NULL) return false;
	size_t at = input->received % INPUT_WINDOW;
	size_t first = size < INPUT_WINDOW - at ? size : INPUT_WINDOW - at;
	memcpy(input->ring + at, bytes, first);
	memcpy(input->ring, bytes + first, size - first);
	input->received += size;
	return true;
}

bool input_take(struct agent *agent, struct task *task, uint64_t offset, const uint8_t *bytes, uint32_t size) {
	struct input *input = &task->input;
	if (task->state == TASK_FAILED) return true;
	if (input->absent || task->state == TASK_WAITING || task->state == TASK_CONNECTING) {
		answer(agent, task, STDIN_ABSENT);
		return true;
	}
	if (offset > input->received) {
		answer(agent, task, STDIN_GAP);
		return true;
	}
	uint64_t known = input->received - offset;
	uint32_t skip = known < size ? (uint32_t)known : size;
	bytes += skip;
	size -= skip;
	if (input->received - input->written + size > INPUT_WINDOW) {
		answer(agent, task, STDIN_GAP);
		return true;
	}
	if (input->closing || input->received > INT64_MAX) size = 0;
	if (input->written == input->received) {
		uint32_t taken = write_input(input, bytes, size);
		input->received += taken;
		input->written = input->received;
		bytes += taken;
		size -= taken;
	}
	if (!keep_input(input, bytes, size)) return false;
	answer(agent, task, STDIN_TAKEN);
	if (task->action == ACTION_CONNECT) port_settle(agent, task);
	return true;
}

void input_finish(struct agent *agent, struct task *task, uint64_t offset) {
	struct input *input = &task->input;
	if (input->absent || task->state == TASK_FAILED || task->state == TASK_WAITING || task->state == TASK_CONNECTING) {
		return;
	}
	if (offset != OFFSET_ANY && offset > input->received) {
		answer(agent, task, STDIN_GAP);
		return;
	}
	input->closing = true;
	close_when_drained(input);
	if (task->action == ACTION_CONNECT) port_settle(agent, task);
}

void input_tell(struct agent *agent, const struct task *task) {
	put64(connection_frame(agent, FRAME_INPUT_AT, task->input.absent ? STDIN_ABSENT : STDIN_TAKEN, task->number, OFFSET_FIELD),
	      task->input.received);
}

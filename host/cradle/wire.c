#include "wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum { FIELD_HEADER = 4 };

uint64_t wire_number(const uint8_t *bytes, size_t width)
{
	uint64_t value = 0;

	while (width-- > 0)
		value = value << 8 | bytes[width];
	return value;
}

int wire_next(const uint8_t **bytes, size_t *length, struct wire_field *field)
{
	if (*length == 0)
		return 0;
	if (*length < FIELD_HEADER)
		return -1;
	field->number = (unsigned)wire_number(*bytes, 2);
	field->length = wire_number(*bytes + 2, 2);
	field->bytes = *bytes + FIELD_HEADER;
	if (field->length > *length - FIELD_HEADER)
		return -1;
	*bytes += FIELD_HEADER + field->length;
	*length -= FIELD_HEADER + field->length;
	return 1;
}

static void put(uint8_t *bytes, uint64_t value, size_t width)
{
	for (size_t at = 0; at < width; at++)
		bytes[at] = (uint8_t)(value >> 8 * at);
}

/* One reply: a 32-bit number and an optional text. */
static void send_reply(int fd, enum message type, uint32_t tag, uint32_t number, const char *text)
{
	uint8_t frame[4 + FRAME_HEADER + 4 + sizeof((struct fault *)0)->stage];
	size_t size = text == NULL ? 0 : strlen(text);
	size_t total = 4 + FRAME_HEADER + 4 + size;

	put(frame, total - 4, 4);
	put(frame + 4, type, 2);
	put(frame + 6, 0, 2);
	put(frame + 8, tag, 4);
	put(frame + 12, number, 4);
	if (size > 0)
		memcpy(frame + 16, text, size);
	for (size_t at = 0; at < total;) {
		ssize_t sent = send(fd, frame + at, total - at, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return;
		at += (size_t)sent;
	}
}

void wire_send_hello(int fd, const char *overlay_mode)
{
	send_reply(fd, MESSAGE_HELLO, 0, PROTOCOL_VERSION, overlay_mode);
}

void wire_send_created(int fd, uint32_t tag, pid_t pid)
{
	send_reply(fd, MESSAGE_CREATED, tag, (uint32_t)pid, NULL);
}

void wire_send_failed(int fd, uint32_t tag, const struct fault *fault)
{
	send_reply(fd, MESSAGE_FAILED, tag, (uint32_t)fault->error, fault->stage);
}

/* The pid travels as the tag: the frame then has the same shape as every other reply. */
void wire_send_exit(int fd, pid_t pid, int wait_status)
{
	send_reply(fd, MESSAGE_EXIT, (uint32_t)pid, (uint32_t)wait_status, NULL);
}

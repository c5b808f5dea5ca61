#ifndef CRADLE_WIRE_H
#define CRADLE_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "fault.h"

enum { PROTOCOL_VERSION = 2, FRAME_HEADER = 8 };

enum message {
	MESSAGE_CREATE = 1,
	MESSAGE_CANCEL = 2,
	MESSAGE_BLANK = 3,
	MESSAGE_DROP = 4,
	MESSAGE_HELLO = 64,
	MESSAGE_CREATED = 65,
	MESSAGE_FAILED = 66,
	MESSAGE_EXIT = 67,
};

struct wire_field {
	unsigned number;
	const uint8_t *bytes;
	size_t length;
};

/* Little-endian number of `width` bytes. */
uint64_t wire_number(const uint8_t *bytes, size_t width);

/* Splits off the next field: 1, or 0 at the end, or -1 when what is left is no whole field. */
int wire_next(const uint8_t **bytes, size_t *length, struct wire_field *field);

/* Replies. They wait while the peer reads slowly and do nothing when it is gone: the end of input tells that story. */
void wire_send_hello(int fd, const char *overlay_mode);
void wire_send_created(int fd, uint32_t tag, pid_t pid);
void wire_send_failed(int fd, uint32_t tag, const struct fault *fault);
void wire_send_exit(int fd, pid_t pid, int wait_status);

#endif

#include "frame.h"

#include <stdbool.h>

#include "bytes.h"

/* Smallest and largest payload of each frame the edge may send; nothing else is taken. */
static const struct {
	bool known;
	uint32_t least, most;
} sizes[FRAME_EDGE_LIMIT] = {
	[FRAME_HELLO] = {true, 4, 4},
	[FRAME_PING] = {true, 8, 8},
	[FRAME_START] = {true, 1, START_LIMIT},
	[FRAME_STDIN] = {true, OFFSET_FIELD, OFFSET_FIELD + DATA_LIMIT},
	[FRAME_STDIN_EOF] = {true, OFFSET_FIELD, OFFSET_FIELD},
	[FRAME_SIGNAL] = {true, 4, 4},
	[FRAME_ACK] = {true, OFFSET_FIELD, OFFSET_FIELD},
	[FRAME_FORGET] = {true, 0, 0},
	[FRAME_LIST] = {true, 0, 0},
	[FRAME_RESIZE] = {true, 4, 4},
	[FRAME_INPUT_ASK] = {true, 0, 0},
};

int64_t frame_read(const uint8_t *bytes, size_t length, struct frame *frame) {
	if (length < FRAME_HEADER) return 0;
	uint32_t follows = get32(bytes);
	if (follows < FRAME_HEADER - FRAME_LENGTH_FIELD || get16(bytes + 6) != 0) return -1;
	frame->type = bytes[4];
	frame->flag = bytes[5];
	frame->task = get32(bytes + 8);
	frame->size = follows - (FRAME_HEADER - FRAME_LENGTH_FIELD);
	frame->payload = bytes + FRAME_HEADER;
	if (frame->type >= FRAME_EDGE_LIMIT || !sizes[frame->type].known) return -1;
	if (frame->size < sizes[frame->type].least || frame->size > sizes[frame->type].most) return -1;
	return (int64_t)FRAME_HEADER + frame->size;
}

uint8_t *frame_write(uint8_t *at, uint8_t type, uint8_t flag, uint32_t task, uint32_t size) {
	put32(at, FRAME_HEADER - FRAME_LENGTH_FIELD + size);
	at[4] = type;
	at[5] = flag;
	put16(at + 6, 0);
	put32(at + 8, task);
	return at + FRAME_HEADER;
}

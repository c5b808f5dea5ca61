#include "frame.h"

#include "bytes.h"

/* Smallest and largest payload of each frame the edge may send; nothing else is taken. */
static const struct {
	uint32_t least, most;
} sizes[] = {
	[FRAME_HELLO] = {4, 4},
	[FRAME_PING] = {8, 8},
	[FRAME_START] = {1, START_LIMIT},
	[FRAME_STDIN] = {OFFSET_FIELD, OFFSET_FIELD + DATA_LIMIT},
	[FRAME_STDIN_EOF] = {OFFSET_FIELD, OFFSET_FIELD},
	[FRAME_SIGNAL] = {4, 4},
	[FRAME_ACK] = {OFFSET_FIELD, OFFSET_FIELD},
	[FRAME_FORGET] = {0, 0},
	[FRAME_LIST] = {0, 0},
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
	if (frame->type < FRAME_HELLO || frame->type > FRAME_LIST) return -1;
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

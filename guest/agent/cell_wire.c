/* The keeper's two streams: requests come in on descriptor 0, results go out on 1, in as few pieces as they fit in. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "bytes.h"
#include "cell.h"

volatile sig_atomic_t cell_stopped;

int cell_read(void *bytes, size_t size) {
	for (size_t at = 0; at < size;) {
		/* A stop that comes behind this look finds the descriptor closed. */
		if (cell_stopped) return EPIPE;
		ssize_t got = read(0, (uint8_t *)bytes + at, size - at);
		if (got < 0 && (errno == EINTR || cell_stopped)) continue;
		if (got <= 0) return got == 0 ? EPIPE : errno;
		at += (size_t)got;
	}
	return 0;
}

#define HEAD 8u
#define ROOM (HEAD + CELL_PIECE)

/* Parts that wait to be written. */
static uint8_t out[2 * ROOM];
static size_t out_at, out_end;

uint8_t *cell_out_room(void) { return sizeof out - out_end >= ROOM ? out + out_end + HEAD : NULL; }

void cell_out_add(uint8_t part, uint32_t size) {
	memset(out + out_end, 0, HEAD);
	out[out_end] = part;
	put32(out + out_end + 4, size);
	out_end += HEAD + size;
}

int cell_out_push(void) {
	ssize_t wrote = write(1, out + out_at, out_end - out_at);
	if (wrote < 0) return errno == EINTR ? EAGAIN : errno;
	out_at += (size_t)wrote;
	if (out_at < out_end) return EAGAIN;
	out_at = out_end = 0;
	return 0;
}

int cell_out_flush(void) {
	int error = 0;
	while (out_at < out_end && (error == 0 || error == EAGAIN)) error = cell_out_push();
	return error;
}

int cell_send(uint8_t part, const void *bytes, uint32_t size) {
	int error = cell_out_room() == NULL ? cell_out_flush() : 0;
	if (error != 0) return error;
	if (size > 0) memcpy(cell_out_room(), bytes, size);
	cell_out_add(part, size);
	return 0;
}

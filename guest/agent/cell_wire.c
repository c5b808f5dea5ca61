/* The keeper's two streams: the request comes in on descriptor 0, the result goes out on 1. */
#include <errno.h>
#include <unistd.h>

#include "bytes.h"
#include "cell.h"

volatile sig_atomic_t cell_stopped;

int cell_read(void *bytes, size_t size) {
	for (size_t at = 0; at < size;) {
		ssize_t got = read(0, (uint8_t *)bytes + at, size - at);
		if (got < 0 && errno == EINTR && !cell_stopped) continue;
		if (cell_stopped) return EPIPE;
		if (got <= 0) return got == 0 ? EPIPE : errno;
		at += (size_t)got;
	}
	return 0;
}

int cell_write(const void *bytes, size_t size) {
	for (size_t at = 0; at < size;) {
		ssize_t wrote = write(1, (const uint8_t *)bytes + at, size - at);
		if (wrote < 0 && errno == EINTR) continue;
		if (wrote < 0) return errno;
		at += (size_t)wrote;
	}
	return 0;
}

int cell_send(uint8_t part, const void *bytes, uint32_t size) {
	uint8_t head[8] = {part};
	put32(head + 4, size);
	int error = cell_write(head, sizeof head);
	return error == 0 ? cell_write(bytes, size) : error;
}

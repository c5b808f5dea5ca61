#include "proc_net.h"

#include <string.h>

/* The state of a listening socket, as the kernel writes it. */
#define LISTENING 0x0au

/* Takes exactly `digits` hexadecimal digits. */
static bool take_hex(const char **at, const char *end, int digits, uint32_t *value) {
	if (end - *at < digits) return false;
	*value = 0;
	for (int i = 0; i < digits; i++) {
		char c = *(*at)++;
		uint32_t digit = c >= '0' && c <= '9' ? (uint32_t)(c - '0') : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10) : 16;
		if (digit == 16) return false;
		*value = *value << 4 | digit;
	}
	return true;
}

static bool take(const char **at, const char *end, char wanted) {
	if (*at == end || **at != wanted) return false;
	(*at)++;
	return true;
}

/* "ADDRESS:PORT": the address in words of the machine's own byte order. */
static bool take_endpoint(const char **at, const char *end, struct listener *endpoint) {
	*endpoint = (struct listener){0};
	uint32_t word, port;
	while (endpoint->words < 4 && take_hex(at, end, 8, &word)) {
		memcpy(endpoint->address + 4 * endpoint->words++, &word, sizeof word);
		if (*at < end && **at == ':') break;
	}
	if ((endpoint->words != 1 && endpoint->words != 4) || !take(at, end, ':') || !take_hex(at, end, 4, &port)) return false;
	endpoint->port = (uint16_t)port;
	return true;
}

bool listener_read(const char *row, size_t size, struct listener *listener) {
	const char *end = row + size;
	const char *at = memchr(row, ':', size);
	struct listener peer;
	uint32_t state;
	if (at == NULL) return false;
	at++;
	return take(&at, end, ' ') && take_endpoint(&at, end, listener) && take(&at, end, ' ') &&
	       take_endpoint(&at, end, &peer) && take(&at, end, ' ') && take_hex(&at, end, 2, &state) && state == LISTENING;
}

bool listener_on_loopback(const struct listener *listener) {
	static const uint8_t zero[16], loop4[4] = {127, 0, 0, 1};
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}, loop6[16] = {[15] = 1};
	const uint8_t *address = listener->address;
	if (listener->words == 1) return memcmp(address, zero, 4) == 0 || memcmp(address, loop4, 4) == 0;
	if (memcmp(address, zero, 16) == 0 || memcmp(address, loop6, 16) == 0) return true;
	return memcmp(address, mapped, 12) == 0 && (memcmp(address + 12, zero, 4) == 0 || memcmp(address + 12, loop4, 4) == 0);
}

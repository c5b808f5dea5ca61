/* Little-endian integers at any address. Both supported machines are little-endian, so a copy is enough. */
#ifndef BYTES_H
#define BYTES_H

#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian and so must be the machine");

static inline uint16_t get16(const uint8_t *at) {
	uint16_t value;
	memcpy(&value, at, sizeof value);
	return value;
}

static inline uint32_t get32(const uint8_t *at) {
	uint32_t value;
	memcpy(&value, at, sizeof value);
	return value;
}

static inline uint64_t get64(const uint8_t *at) {
	uint64_t value;
	memcpy(&value, at, sizeof value);
	return value;
}

static inline void put16(uint8_t *at, uint16_t value) { memcpy(at, &value, sizeof value); }
static inline void put32(uint8_t *at, uint32_t value) { memcpy(at, &value, sizeof value); }
static inline void put64(uint8_t *at, uint64_t value) { memcpy(at, &value, sizeof value); }

#endif

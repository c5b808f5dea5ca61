/* Records about directory entries in the coding of core/entries.ts, gathered on their way to stdout. */
#ifndef FILES_ENTRY_H
#define FILES_ENTRY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

enum entry_type {
	ENTRY_FILE = 0,
	ENTRY_DIRECTORY = 1,
	ENTRY_SYMLINK = 2,
	ENTRY_FIFO = 3,
	ENTRY_SOCKET = 4,
	ENTRY_CHARACTER_DEVICE = 5,
	ENTRY_BLOCK_DEVICE = 6,
};

#define ENTRY_FIXED 40u
#define ENTRY_NAME_LIMIT 4095u
#define ENTRY_TARGET_LIMIT 4095u
#define NAME_MAX_BYTES 255u

/* How an entry is called in a record: not always as in its directory. */
struct shown {
	const char *name;
	size_t size;
};

/* Looks at `name` in `directory`, following nothing. 0 or an errno. */
int entry_look(int directory, const char *name, struct stat *status);
uint8_t entry_type(const struct stat *status);
/* Appends one record. `target` is NULL where there is none. */
int entry_append(uint8_t type, const struct stat *status, struct shown shown, struct shown target);
/* Appends the record of `name` in `directory`. ENOENT when it is gone meanwhile. */
int entry_put(int directory, const char *name, const struct stat *status, struct shown shown);
/* Appends any bytes, at most PIECE of them. */
int entry_bytes(const uint8_t *bytes, size_t size);
/* Puts out what was gathered. */
int entry_flush(void);

#endif

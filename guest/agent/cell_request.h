/* What the edge says of a call: a head, texts, then files, then input. guest/protocol/README.md draws it. */
#ifndef CELL_REQUEST_H
#define CELL_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#define CELL_HEAD 72u
/* argv, env and the names of wanted files together. */
#define CELL_TEXTS_LIMIT (1u << 20)
#define CELL_NAME_LIMIT 1024u
#define CELL_FILE_HEAD 16u

struct cell_limits {
	uint64_t cpu_us, wall_us, memory_bytes, output_bytes;
	uint64_t file_bytes; /* of all wanted files together */
	uint32_t pids;
};

/* Texts point into what was parsed; `argv`, `env` and `wanted` are runs that end with a NUL each. */
struct cell_request {
	struct cell_limits limits;
	uint64_t input_bytes;
	uint32_t files;
	uint32_t argv_size, env_size, wanted_size;
	const char *argv, *env, *wanted;
};

struct cell_file {
	uint32_t mode, name_size;
	uint64_t size;
};

/* Reads a head of CELL_HEAD bytes. 0, or -1 for what no edge sends; the texts that follow have the three sizes together. */
int cell_head_parse(const uint8_t *bytes, struct cell_request *request);
/* Takes over the texts of a head that was parsed. 0 or -1. */
int cell_texts_parse(const char *texts, struct cell_request *request);
/* Reads a file's head of CELL_FILE_HEAD bytes. 0 or -1. */
int cell_file_parse(const uint8_t *bytes, struct cell_file *file);
/* Whether it is a path below a directory, without `.`, `..`, empty parts and NUL. */
int cell_name_is_plain(const char *name, size_t size);

#endif

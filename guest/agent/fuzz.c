/* Hostile bytes against the parsers of what the edge sends, and of the rows of /proc/net/tcp. Built with clang's fuzzer: see the Makefile. */
#include <stdlib.h>
#include <string.h>

#include "cell_request.h"
#include "frame.h"
#include "proc_net.h"
#include "start.h"
#include "files_tree.h"

/* Touches every byte that a parsed START points at, so that the sanitizer sees each. */
static size_t walk(const struct start *start) {
	size_t sum = 0;
	if (start->user != NULL) sum += strlen(start->user);
	if (start->cwd != NULL) sum += strlen(start->cwd);
	if (start->line != NULL) sum += strlen(start->line);
	if (start->path != NULL) sum += strlen(start->path);
	if (start->target != NULL) sum += strlen(start->target);
	if (start->owner != NULL) sum += strlen(start->owner);
	if (start->argv != NULL) sum += texts_count(start->argv, start->argv_size);
	if (start->env != NULL) sum += texts_count(start->env, start->env_size);
	return sum;
}

static void parse_start(const uint8_t *bytes, size_t size) {
	/* A copy of the exact size: the sanitizer guards both its ends. */
	uint8_t *body = malloc(size > 0 ? size : 1);
	struct start start;
	memcpy(body, bytes, size);
	if (start_parse(body, size, &start) == 0) {
		volatile size_t sum = walk(&start);
		(void)sum;
	}
	free(body);
}

static void read_listener(const uint8_t *bytes, size_t size) {
	char *row = malloc(size > 0 ? size : 1);
	struct listener listener;
	memcpy(row, bytes, size);
	if (listener_read(row, size, &listener)) {
		volatile bool reached = listener_on_loopback(&listener);
		(void)reached;
	}
	free(row);
}

/* Records one after the other, each touched as its reader would. */
static void parse_tree(const uint8_t *bytes, size_t size) {
	volatile size_t sum = 0;
	for (size_t at = 0; at < size;) {
		struct tree_record record;
		uint8_t *rest = malloc(size - at);
		memcpy(rest, bytes + at, size - at);
		int64_t extent = tree_parse(rest, size - at, &record);
		for (uint32_t i = 0; extent > 0 && i < record.byte_count; i++) sum += record.bytes[i];
		for (uint32_t i = 0; extent > 0 && i < record.name_size; i++) sum += record.name[i];
		for (uint32_t i = 0; extent > 0 && i < record.target_size; i++) sum += record.target[i];
		free(rest);
		if (extent <= 0) break;
		at += (size_t)extent;
	}
	(void)sum;
}

/* A head, its texts, then a file's head, as a keeper reads them. */
static void parse_cell(const uint8_t *bytes, size_t size) {
	struct cell_request request;
	struct cell_file file;
	if (size >= CELL_FILE_HEAD) cell_file_parse(bytes, &file);
	if (size < CELL_HEAD || cell_head_parse(bytes, &request) != 0) return;
	size_t wanted = (size_t)request.argv_size + request.env_size + request.wanted_size;
	if (wanted > size - CELL_HEAD) return;
	char *texts = malloc(wanted);
	memcpy(texts, bytes + CELL_HEAD, wanted);
	if (cell_texts_parse(texts, &request) == 0) {
		volatile size_t sum = texts_count(request.argv, request.argv_size) + texts_count(request.env, request.env_size) +
				      texts_count(request.wanted, request.wanted_size);
		(void)sum;
	}
	free(texts);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
	parse_start(bytes, size);
	read_listener(bytes, size);
	parse_tree(bytes, size);
	parse_cell(bytes, size);
	for (size_t at = 0; at < size;) {
		struct frame frame;
		int64_t extent = frame_read(bytes + at, size - at, &frame);
		if (extent <= 0) break;
		if ((size_t)extent > size - at) break;
		if (frame.type == FRAME_START) parse_start(frame.payload, frame.size);
		at += (size_t)extent;
	}
	return 0;
}

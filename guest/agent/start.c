#include "start.h"

#include <limits.h>
#include <string.h>

#include "bytes.h"

#define TAG_HEADER 8u

struct field {
	const uint8_t *value;
	uint32_t size;
};

/* A value that is there must be one text: its only NUL is its last byte. */
static bool is_text(const struct field *field) {
	return field->size > 0 && memchr(field->value, 0, field->size) == field->value + field->size - 1;
}

static bool is_texts(const struct field *field) { return field->size > 0 && field->value[field->size - 1] == 0; }

static bool collect(const uint8_t *body, size_t size, struct field fields[START_TAG_LIMIT]) {
	while (size > 0) {
		if (size < TAG_HEADER) return false;
		uint16_t tag = get16(body);
		uint32_t length = get32(body + 4);
		if (tag == 0 || tag >= START_TAG_LIMIT || get16(body + 2) != 0 || fields[tag].value != NULL) return false;
		body += TAG_HEADER;
		size -= TAG_HEADER;
		if (length > size) return false;
		fields[tag] = (struct field){.value = body, .size = length};
		body += length;
		size -= length;
	}
	return true;
}

#define ANY_WIDTH 255

/* Whether the fields that the action needs are there. */
static bool complete(const struct field fields[START_TAG_LIMIT]) {
	uint8_t action = fields[START_ACTION].value[0];
	/* A line runs as its session does. */
	if (action == ACTION_LINE) return fields[START_SESSION].value != NULL && fields[START_LINE].value != NULL;
	if (fields[START_USER].value == NULL || fields[START_CWD].value == NULL) return false;
	if (action == ACTION_SESSION || action == ACTION_LISTENERS || action == ACTION_CELL) return true;
	if (action == ACTION_CONNECT) return fields[START_PORT].value != NULL;
	if (action == ACTION_EXEC || action == ACTION_FORK_SERVER) return is_texts(&fields[START_ARGV]) && fields[START_ARGV].value[0] != 0;
	return fields[START_PATH].value != NULL && fields[START_PATH].value[0] == '/';
}

/* Sizes of the fields that are there, and presence of those that the action needs. */
static bool well_formed(const struct field fields[START_TAG_LIMIT]) {
	/* What has no width is no field. */
	static const uint8_t widths[START_TAG_LIMIT] = {
		[START_ACTION] = 1,       [START_USER] = ANY_WIDTH, [START_CWD] = ANY_WIDTH,  [START_ENV] = ANY_WIDTH,
		[START_STDIN] = 1,        [START_TIME_LIMIT] = 8,   [START_ARGV] = ANY_WIDTH, [START_PATH] = ANY_WIDTH,
		[START_OFFSET] = 8,       [START_LENGTH] = 8,       [START_MODE] = 4,         [START_FLAG] = 1,
		[START_TERMINAL] = 4,     [START_PORT] = 2,
		[START_TARGET] = ANY_WIDTH, [START_OWNER] = ANY_WIDTH, [START_DEPTH] = 4,        [START_KEEP] = 1,
		[START_SESSION] = 4,      [START_LINE] = ANY_WIDTH,
	};
	static const uint8_t texts[] = {START_USER, START_CWD, START_PATH, START_TARGET, START_OWNER, START_LINE};
	for (int tag = 1; tag < START_TAG_LIMIT; tag++) {
		if (fields[tag].value != NULL && widths[tag] != ANY_WIDTH && fields[tag].size != widths[tag]) return false;
	}
	if (fields[START_ACTION].value == NULL) return false;
	/* Also where the action has no use for it: what was parsed can be read. */
	if (fields[START_ENV].size > 0 && !is_texts(&fields[START_ENV])) return false;
	if (fields[START_ARGV].size > 0 && !is_texts(&fields[START_ARGV])) return false;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		const struct field *field = &fields[texts[i]];
		if (field->value != NULL && !is_text(field)) return false;
	}
	return complete(fields);
}

int start_parse(const uint8_t *body, size_t size, struct start *start) {
	struct field fields[START_TAG_LIMIT] = {0};
	if (!collect(body, size, fields) || !well_formed(fields)) return -1;
	*start = (struct start){
		.action = fields[START_ACTION].value[0],
		.input = fields[START_STDIN].value != NULL && fields[START_STDIN].value[0] == 1,
		.flag = fields[START_FLAG].value != NULL && fields[START_FLAG].value[0] == 1,
		.keep = fields[START_KEEP].value != NULL && fields[START_KEEP].value[0] == 1,
		.depth = fields[START_DEPTH].value != NULL ? get32(fields[START_DEPTH].value) : 1,
		.port = fields[START_PORT].value != NULL ? get16(fields[START_PORT].value) : 0,
		.mode = fields[START_MODE].value != NULL ? get32(fields[START_MODE].value) : 0,
		.time_limit_ms = fields[START_TIME_LIMIT].value != NULL ? get64(fields[START_TIME_LIMIT].value) : 0,
		.offset = fields[START_OFFSET].value != NULL ? get64(fields[START_OFFSET].value) : 0,
		.length = fields[START_LENGTH].value != NULL ? get64(fields[START_LENGTH].value) : UINT64_MAX,
		.user = (const char *)fields[START_USER].value,
		.cwd = (const char *)fields[START_CWD].value,
		.path = (const char *)fields[START_PATH].value,
		.target = (const char *)fields[START_TARGET].value,
		.owner = (const char *)fields[START_OWNER].value,
		.line = (const char *)fields[START_LINE].value,
		.session = fields[START_SESSION].value != NULL ? get32(fields[START_SESSION].value) : 0,
		.argv = (const char *)fields[START_ARGV].value,
		.argv_size = fields[START_ARGV].size,
		.env = (const char *)fields[START_ENV].value,
		.env_size = fields[START_ENV].size,
	};
	bool of_session = start->action == ACTION_SESSION || start->action == ACTION_LINE;
	bool of_cells = start->action == ACTION_CELL || start->action == ACTION_FORK_SERVER;
	bool process = (start->action >= ACTION_EXEC && start->action <= ACTION_WATCH) || of_session || of_cells;
	if (!process && !start_is_direct(start->action)) return -1;
	if (fields[START_PORT].value != NULL && start->port == 0) return -1;
	if (start->action == ACTION_CONNECT && !start->input) return -1;
	if (fields[START_TERMINAL].value != NULL) {
		if (start->action != ACTION_EXEC) return -1;
		start->terminal.rows = get16(fields[START_TERMINAL].value);
		start->terminal.columns = get16(fields[START_TERMINAL].value + 2);
		if (start->terminal.rows == 0 || start->terminal.columns == 0) return -1;
	}
	if (start->action == ACTION_CELL && (!start->input || start->length > INT64_MAX || start->offset == 0)) return -1;
	if (start->mode > 07777 || start->offset > INT64_MAX) return -1;
	if ((start->action == ACTION_WRITE || start->action == ACTION_WRITE_TREE) && !start->input) return -1;
	if (start->action == ACTION_CHOWN && start->owner == NULL) return -1;
	if (start->action == ACTION_SYMLINK && start->target == NULL) return -1;
	if (start->action == ACTION_MOVE && (start->target == NULL || start->target[0] != '/')) return -1;
	if (start->depth < 1 || start->depth > LIST_DEPTH_LIMIT) return -1;
	return 0;
}

bool start_is_direct(uint8_t action) { return action == ACTION_CONNECT || action == ACTION_LISTENERS; }

size_t texts_count(const char *texts, size_t size) {
	size_t count = 0;
	for (const char *at = texts, *end = texts + size; at < end; at += strlen(at) + 1) count++;
	return count;
}

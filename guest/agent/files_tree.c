#include "files_tree.h"

#include <stdbool.h>
#include <string.h>

#include "bytes.h"

/* A path that leads down from a root and nowhere else. */
static bool is_below(const uint8_t *name, size_t size) {
	for (size_t at = 0; at <= size;) {
		const uint8_t *slash = memchr(name + at, '/', size - at);
		size_t end = slash == NULL ? size : (size_t)(slash - name);
		size_t part = end - at;
		if (part == 0 || part > NAME_MAX_BYTES || (part <= 2 && memcmp(name + at, "..", part) == 0)) return false;
		at = end + 1;
	}
	return memchr(name, 0, size) == NULL;
}

static bool parse_entry(const uint8_t *bytes, uint32_t body, struct tree_record *record) {
	if (body < ENTRY_FIXED - 4u) return false;
	*record = (struct tree_record){
		.type = bytes[4],
		.name_size = get16(bytes + 6),
		.mode = get32(bytes + 8),
		.uid = get32(bytes + 12),
		.gid = get32(bytes + 16),
		.size = get64(bytes + 20),
		.mtime_ns = (int64_t)get64(bytes + 28),
		.target_size = get16(bytes + 36),
		.name = bytes + ENTRY_FIXED,
	};
	record->target = record->name + record->name_size;
	bool linked = record->type == ENTRY_SYMLINK || record->type == TREE_LINK;
	if (bytes[5] != 0 || get16(bytes + 38) != 0 || record->mode > 07777 || record->size > INT64_MAX) return false;
	if (ENTRY_FIXED - 4u + record->name_size + record->target_size != body) return false;
	if (record->name_size > ENTRY_NAME_LIMIT || record->target_size > ENTRY_TARGET_LIMIT) return false;
	if (record->name_size > 0 && !is_below(record->name, record->name_size)) return false;
	if (record->name_size == 0 && record->type != ENTRY_DIRECTORY) return false;
	if (linked != (record->target_size > 0) || (record->size > 0 && record->type != ENTRY_FILE)) return false;
	if (record->type == TREE_LINK) return is_below(record->target, record->target_size);
	return memchr(record->target, 0, record->target_size) == NULL;
}

static bool parse_bytes(const uint8_t *bytes, uint32_t body, struct tree_record *record) {
	uint32_t count = body - (TREE_HEAD - 4u);
	*record = (struct tree_record){.type = bytes[4], .bytes = bytes + TREE_HEAD, .byte_count = count};
	if (bytes[5] != 0 || get16(bytes + 6) != 0) return false;
	if (record->type == TREE_END) return count == 0;
	if (record->type == TREE_DATA) return count > 0 && count <= TREE_DATA_LIMIT;
	return count % TREE_EXTENT == 0 && count <= TREE_MAP_LIMIT * TREE_EXTENT;
}

int64_t tree_parse(const uint8_t *bytes, size_t length, struct tree_record *record) {
	if (length < TREE_HEAD) return 0;
	uint32_t body = get32(bytes);
	if (body < TREE_HEAD - 4u || body > TREE_RECORD_LIMIT - 4u || bytes[4] > TREE_END) return -1;
	if (length < 4u + (size_t)body) return 0;
	bool good = bytes[4] <= TREE_LINK ? parse_entry(bytes, body, record) : parse_bytes(bytes, body, record);
	return good ? 4 + (int64_t)body : -1;
}

/* The stream of entries that a tree is on its way to or from the edge. core/tree.ts draws it. */
#ifndef FILES_TREE_H
#define FILES_TREE_H

#include <stddef.h>
#include <stdint.h>

#include "files_entry.h"

enum tree_type {
	/* 0 to 6: enum entry_type */
	TREE_LINK = 7,
	TREE_DATA = 8,
	TREE_MAP = 9,
	TREE_END = 10,
};

#define TREE_HEAD 8u
#define TREE_DATA_LIMIT 65536u
#define TREE_EXTENT 16u
/* Extents of one record, and of one file: what is left of a file with more is sent as it stands, zeros and all. */
#define TREE_MAP_LIMIT 4096u
#define TREE_EXTENTS 65536u
#define TREE_RECORD_LIMIT (TREE_HEAD + TREE_MAP_LIMIT * TREE_EXTENT)

/* One record; names and bytes lie in what was parsed. */
struct tree_record {
	uint8_t type;
	uint32_t mode, uid, gid;
	uint64_t size;
	int64_t mtime_ns;
	const uint8_t *name, *target;
	uint16_t name_size, target_size;
	const uint8_t *bytes; /* of data, or the extents of a map: offset and length, each u64 */
	uint32_t byte_count;
};

/*
 * Reads the record at the start of `bytes`: its extent once all of it is there, 0 before, -1 for what no edge sends. Names are
 * relative, without empty components, `.` and `..`; only that of the root is empty. Links have a target that is such a name.
 */
int64_t tree_parse(const uint8_t *bytes, size_t length, struct tree_record *record);

#endif

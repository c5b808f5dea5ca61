#ifndef CRADLE_REQUEST_H
#define CRADLE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault.h"

/* Bounds of one request: generous for a real sandbox, small enough that a request never allocates. */
enum {
	MAX_FRAME = 65536,
	/* As many as an overlay takes. */
	MAX_LAYERS = 500,
	MAX_CGROUPS = 16,
	MAX_CGROUP_WRITES = 128,
	MAX_AGENT_CGROUPS = 16,
	MAX_ARGUMENTS = 64,
	MAX_HOSTNAME = 64,
	/* Ids of one sandbox, mapped from 0 inside. */
	ID_RANGE = 65536,
};

/* Field numbers on the wire; README.md says what each holds. */
enum field {
	FIELD_ID = 1,
	FIELD_UID_BASE = 2,
	FIELD_LAYER = 3,
	FIELD_UPPER_DIR = 4,
	FIELD_WORK_DIR = 5,
	FIELD_HOSTNAME = 6,
	FIELD_HOSTS = 7,
	FIELD_RESOLV_CONF = 8,
	FIELD_SOCKET_PATH = 9,
	FIELD_ARGUMENT = 10,
	FIELD_CGROUP = 11,
	FIELD_CGROUP_WRITE = 12,
	FIELD_CGROUP_HAND_OVER = 13,
	FIELD_AGENT_CGROUP = 14,
	FIELD_SHM_BYTES = 15,
	FIELD_CGROUP_DELEGATE = 16,
};

struct cgroup_write {
	const char *file;
	const char *value;
};

struct cgroup {
	const char *dir;
	bool hand_over;
	bool delegate;
	unsigned first_write;
	unsigned writes;
};

/* A parsed CREATE or BLANK. Every text points into the frame it was parsed from and ends with NUL. */
struct request {
	const char *id;
	uint32_t uid_base;
	uint64_t shm_bytes;
	const char *upper_dir;
	const char *work_dir;
	const char *hostname;
	const char *hosts;
	const char *resolv_conf;
	const char *socket_path;
	/* Lowest first. */
	const char *layers[MAX_LAYERS];
	const char *arguments[MAX_ARGUMENTS];
	const char *agent_cgroups[MAX_AGENT_CGROUPS];
	struct cgroup cgroups[MAX_CGROUPS];
	struct cgroup_write writes[MAX_CGROUP_WRITES];
	unsigned layer_count;
	unsigned argument_count;
	unsigned agent_cgroup_count;
	unsigned cgroup_count;
	unsigned write_count;
};

/* A blank needs ids, a socket and the size of /dev/shm; a create needs all that is not a list. */
enum purpose { FOR_BLANK, FOR_CREATE };

/*
 * Parses the fields of a CREATE or BLANK (what follows the frame's header). Accepts any bytes; returns -1 with EINVAL or E2BIG
 * and the offending field in `fault` unless the request is complete and well formed. `bytes` must outlive `request`.
 */
int request_parse(const uint8_t *bytes, size_t length, enum purpose purpose, struct request *request, struct fault *fault);

#endif

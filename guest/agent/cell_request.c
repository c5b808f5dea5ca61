#include "cell_request.h"

#include <stdbool.h>
#include <string.h>

#include "bytes.h"

static bool is_run(const char *texts, uint32_t size) { return size == 0 || texts[size - 1] == 0; }

int cell_head_parse(const uint8_t *bytes, struct cell_request *request) {
	*request = (struct cell_request){
		.limits =
			{
				.cpu_us = get64(bytes),
				.wall_us = get64(bytes + 8),
				.memory_bytes = get64(bytes + 16),
				.output_bytes = get64(bytes + 24),
				.file_bytes = get64(bytes + 32),
				.pids = get32(bytes + 48),
			},
		.input_bytes = get64(bytes + 40),
		.files = get32(bytes + 52),
		.argv_size = get32(bytes + 56),
		.env_size = get32(bytes + 60),
		.wanted_size = get32(bytes + 64),
	};
	const struct cell_limits *limits = &request->limits;
	if (limits->cpu_us == 0 || limits->wall_us == 0 || limits->memory_bytes == 0 || limits->pids == 0) return -1;
	if (limits->cpu_us > INT64_MAX || limits->wall_us > INT64_MAX || limits->memory_bytes > INT64_MAX) return -1;
	if (limits->output_bytes > INT64_MAX || limits->file_bytes > INT64_MAX || request->input_bytes > INT64_MAX) return -1;
	if (get32(bytes + 68) != 0 || request->argv_size == 0) return -1;
	uint64_t texts = (uint64_t)request->argv_size + request->env_size + request->wanted_size;
	return texts > CELL_TEXTS_LIMIT ? -1 : 0;
}

int cell_texts_parse(const char *texts, struct cell_request *request) {
	request->argv = texts;
	request->env = request->argv + request->argv_size;
	request->wanted = request->env + request->env_size;
	if (!is_run(request->argv, request->argv_size) || request->argv[0] == 0) return -1;
	if (!is_run(request->env, request->env_size) || !is_run(request->wanted, request->wanted_size)) return -1;
	const char *end = request->wanted + request->wanted_size;
	for (const char *at = request->wanted; at < end; at += strlen(at) + 1) {
		if (cell_name_is_plain(at, strlen(at)) == 0) return -1;
	}
	return 0;
}

int cell_file_parse(const uint8_t *bytes, struct cell_file *file) {
	*file = (struct cell_file){.mode = get32(bytes), .name_size = get32(bytes + 4), .size = get64(bytes + 8)};
	if (file->mode > 0777 || file->name_size == 0 || file->name_size > CELL_NAME_LIMIT) return -1;
	return file->size > INT64_MAX ? -1 : 0;
}

int cell_name_is_plain(const char *name, size_t size) {
	if (size == 0 || memchr(name, 0, size) != NULL) return 0;
	for (size_t at = 0; at <= size;) {
		const char *slash = memchr(name + at, '/', size - at);
		size_t part = slash == NULL ? size - at : (size_t)(slash - name) - at;
		if (part == 0 || (part == 1 && name[at] == '.') || (part == 2 && name[at] == '.' && name[at + 1] == '.')) return 0;
		at += part + 1;
	}
	return 1;
}

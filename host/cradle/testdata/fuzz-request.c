/* libFuzzer: any bytes as the fields of a CREATE, then of a BLANK. A request that passes must hold what the worker relies on. */
#include <stdlib.h>
#include <string.h>

#include "request.h"

static void check_create(const struct request *request)
{
	size_t total = strlen(request->id) + strlen(request->hosts) + strlen(request->resolv_conf);

	for (unsigned at = 0; at < request->layer_count; at++)
		total += strlen(request->layers[at]);
	for (unsigned at = 0; at < request->cgroup_count; at++)
		total += request->cgroups[at].first_write + request->cgroups[at].writes;
	if (request->layer_count == 0 || total == (size_t)-1 || strlen(request->hostname) > MAX_HOSTNAME)
		abort();
}

static void try_as(enum purpose purpose, const uint8_t *bytes, size_t size)
{
	static struct request request;
	struct fault fault;

	if (request_parse(bytes, size, purpose, &request, &fault) == 0) {
		if (purpose == FOR_CREATE)
			check_create(&request);
		if (request.uid_base < ID_RANGE || request.socket_path[0] != '/' || request.shm_bytes == 0)
			abort();
	} else if (fault.error == 0 || strlen(fault.stage) == 0) {
		abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *exact;

	if (size > MAX_FRAME)
		return 0;
	/* An allocation of the exact size: reading past the frame's end is an error that the sanitizer sees. */
	exact = malloc(size == 0 ? 1 : size);
	memcpy(exact, data, size);
	try_as(FOR_CREATE, exact, size);
	try_as(FOR_BLANK, exact, size);
	free(exact);
	return 0;
}

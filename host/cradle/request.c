#include "request.h"

#include <errno.h>
#include <string.h>

#include "wire.h"

static int refuse(struct fault *fault, int error, unsigned field, const char *why)
{
	errno = error;
	return fault_set(fault, "request field %u: %s", field, why);
}

/* A text ends with the only NUL it has. */
static bool is_text(const struct wire_field *field)
{
	return field->length > 0 && memchr(field->bytes, 0, field->length) == field->bytes + field->length - 1;
}

static bool is_path(const struct wire_field *field)
{
	return is_text(field) && field->bytes[0] == '/';
}

static int take_text(const struct wire_field *field, const char **slot, struct fault *fault)
{
	if (*slot != NULL)
		return refuse(fault, EINVAL, field->number, "given twice");
	if (!is_text(field))
		return refuse(fault, EINVAL, field->number, "is no text");
	*slot = (const char *)field->bytes;
	return 0;
}

static int take_path(const struct wire_field *field, const char **slot, struct fault *fault)
{
	if (!is_path(field))
		return refuse(fault, EINVAL, field->number, "is no absolute path");
	return take_text(field, slot, fault);
}

static int append(const struct wire_field *field, const char **list, unsigned *count, unsigned most, struct fault *fault)
{
	if (*count == most)
		return refuse(fault, E2BIG, field->number, "given too often");
	list[(*count)++] = (const char *)field->bytes;
	return 0;
}

static int append_path(const struct wire_field *field, const char **list, unsigned *count, unsigned most,
		       struct fault *fault)
{
	if (!is_path(field))
		return refuse(fault, EINVAL, field->number, "is no absolute path");
	return append(field, list, count, most, fault);
}

static int take_cgroup(const struct wire_field *field, struct request *request, struct fault *fault)
{
	struct cgroup *cgroup;

	if (!is_path(field))
		return refuse(fault, EINVAL, field->number, "is no absolute path");
	if (request->cgroup_count == MAX_CGROUPS)
		return refuse(fault, E2BIG, field->number, "given too often");
	cgroup = &request->cgroups[request->cgroup_count++];
	cgroup->dir = (const char *)field->bytes;
	cgroup->first_write = request->write_count;
	return 0;
}

/* `file NUL value NUL`, for the cgroup named last. */
static int take_cgroup_write(const struct wire_field *field, struct request *request, struct fault *fault)
{
	const char *file = (const char *)field->bytes;
	const uint8_t *split = memchr(field->bytes, 0, field->length);
	struct wire_field value;

	if (request->cgroup_count == 0)
		return refuse(fault, EINVAL, field->number, "comes before any cgroup");
	if (request->write_count == MAX_CGROUP_WRITES)
		return refuse(fault, E2BIG, field->number, "given too often");
	if (split == NULL || split == field->bytes || strchr(file, '/') != NULL)
		return refuse(fault, EINVAL, field->number, "names no file of a cgroup");
	value = (struct wire_field){ field->number, split + 1, field->length - (size_t)(split + 1 - field->bytes) };
	if (!is_text(&value))
		return refuse(fault, EINVAL, field->number, "has no value");
	request->writes[request->write_count++] = (struct cgroup_write){ file, (const char *)value.bytes };
	request->cgroups[request->cgroup_count - 1].writes++;
	return 0;
}

static int take_hand_over(const struct wire_field *field, struct request *request, struct fault *fault)
{
	if (request->cgroup_count == 0)
		return refuse(fault, EINVAL, field->number, "comes before any cgroup");
	request->cgroups[request->cgroup_count - 1].hand_over = true;
	return 0;
}

static int take_delegate(const struct wire_field *field, struct request *request, struct fault *fault)
{
	if (request->cgroup_count == 0)
		return refuse(fault, EINVAL, field->number, "comes before any cgroup");
	request->cgroups[request->cgroup_count - 1].delegate = true;
	return 0;
}

static int take_number(const struct wire_field *field, size_t width, uint64_t *value, struct fault *fault)
{
	if (field->length != width)
		return refuse(fault, EINVAL, field->number, "has the wrong width");
	*value = wire_number(field->bytes, width);
	return 0;
}

static int take(const struct wire_field *field, struct request *r, struct fault *fault)
{
	uint64_t number = 0;

	switch (field->number) {
	case FIELD_ID:
		return take_text(field, &r->id, fault);
	case FIELD_UID_BASE:
		if (take_number(field, 4, &number, fault))
			return -1;
		r->uid_base = (uint32_t)number;
		return 0;
	case FIELD_LAYER:
		return append_path(field, r->layers, &r->layer_count, MAX_LAYERS, fault);
	case FIELD_UPPER_DIR:
		return take_path(field, &r->upper_dir, fault);
	case FIELD_WORK_DIR:
		return take_path(field, &r->work_dir, fault);
	case FIELD_HOSTNAME:
		return take_text(field, &r->hostname, fault);
	case FIELD_HOSTS:
		return take_text(field, &r->hosts, fault);
	case FIELD_RESOLV_CONF:
		return take_text(field, &r->resolv_conf, fault);
	case FIELD_SOCKET_PATH:
		return take_path(field, &r->socket_path, fault);
	case FIELD_ARGUMENT:
		if (!is_text(field))
			return refuse(fault, EINVAL, field->number, "is no text");
		return append(field, r->arguments, &r->argument_count, MAX_ARGUMENTS, fault);
	case FIELD_CGROUP:
		return take_cgroup(field, r, fault);
	case FIELD_CGROUP_WRITE:
		return take_cgroup_write(field, r, fault);
	case FIELD_CGROUP_HAND_OVER:
		return take_hand_over(field, r, fault);
	case FIELD_CGROUP_DELEGATE:
		return take_delegate(field, r, fault);
	case FIELD_AGENT_CGROUP:
		return append_path(field, r->agent_cgroups, &r->agent_cgroup_count, MAX_AGENT_CGROUPS, fault);
	case FIELD_SHM_BYTES:
		return take_number(field, 8, &r->shm_bytes, fault);
	default:
		return refuse(fault, EINVAL, field->number, "is unknown");
	}
}

static int require(const void *value, unsigned field, struct fault *fault)
{
	return value == NULL ? refuse(fault, EINVAL, field, "is missing") : 0;
}

static int check_ids(const struct request *r, struct fault *fault)
{
	if (require(r->socket_path, FIELD_SOCKET_PATH, fault))
		return -1;
	/* A range that held a host id would give the sandbox that id's files. */
	if (r->uid_base < ID_RANGE || r->uid_base > UINT32_MAX - ID_RANGE)
		return refuse(fault, EINVAL, FIELD_UID_BASE, "leaves no range of ids outside the host's own");
	if (r->shm_bytes == 0 || r->shm_bytes > INT64_MAX)
		return refuse(fault, EINVAL, FIELD_SHM_BYTES, "is out of range");
	return 0;
}

static int check_create(const struct request *r, struct fault *fault)
{
	size_t name;

	if (require(r->id, FIELD_ID, fault) || require(r->layers[0], FIELD_LAYER, fault) ||
	    require(r->upper_dir, FIELD_UPPER_DIR, fault) || require(r->work_dir, FIELD_WORK_DIR, fault) ||
	    require(r->hostname, FIELD_HOSTNAME, fault) || require(r->hosts, FIELD_HOSTS, fault) ||
	    require(r->resolv_conf, FIELD_RESOLV_CONF, fault))
		return -1;
	name = strlen(r->hostname);
	if (name == 0 || name > MAX_HOSTNAME)
		return refuse(fault, EINVAL, FIELD_HOSTNAME, "is not 1 to 64 bytes");
	return 0;
}

int request_parse(const uint8_t *bytes, size_t length, enum purpose purpose, struct request *request, struct fault *fault)
{
	struct wire_field field;
	int more;

	memset(request, 0, sizeof *request);
	while ((more = wire_next(&bytes, &length, &field)) > 0)
		if (take(&field, request, fault))
			return -1;
	if (more < 0) {
		errno = EINVAL;
		return fault_set(fault, "request: a field runs over the end of its frame");
	}
	return purpose == FOR_CREATE && check_create(request, fault) ? -1 : check_ids(request, fault);
}

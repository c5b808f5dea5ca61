#include "user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Far beyond honest files; a lookup must end. */
#define DATABASE_LIMIT (8u << 20)
#define LINE_LIMIT 65536u
#define FIELDS 7

struct lines {
	int fd;
	size_t start, end, total;
	bool skipping; /* what is being read belongs to a line that is too long */
	int error;     /* why not all could be read, or 0 */
	char bytes[LINE_LIMIT];
};

static struct lines lines;

/* 0, or an errno. A file that is missing has no lines. Never waits: no FIFO or device is opened for reading. */
static int lines_open(const char *path) {
	struct stat status;
	lines = (struct lines){.fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};
	if (lines.fd < 0) return errno == ENOENT || errno == ENOTDIR ? 0 : errno;
	int error = fstat(lines.fd, &status) != 0 ? errno : !S_ISREG(status.st_mode) ? EINVAL : 0;
	if (error != 0) {
		close(lines.fd);
		lines.fd = -1;
	}
	return error;
}

/* 0, or the errno that cut the lines short. */
static int lines_close(void) {
	if (lines.fd >= 0) close(lines.fd);
	lines.fd = -1;
	return lines.error;
}

/* The next line without its end, or NULL. A line that is too long is left out. */
static char *lines_next(void) {
	for (;;) {
		char *line = lines.bytes + lines.start;
		char *newline = memchr(line, '\n', lines.end - lines.start);
		if (newline != NULL) {
			*newline = 0;
			lines.start = (size_t)(newline - lines.bytes) + 1;
			if (!lines.skipping) return line;
			lines.skipping = false;
			continue;
		}
		if (lines.start > 0) {
			memmove(lines.bytes, line, lines.end - lines.start);
			lines.end -= lines.start;
			lines.start = 0;
		}
		if (lines.end == LINE_LIMIT - 1) {
			lines.end = 0;
			lines.skipping = true;
		}
		ssize_t got = -1;
		if (lines.fd >= 0 && lines.total < DATABASE_LIMIT) {
			got = read(lines.fd, lines.bytes + lines.end, LINE_LIMIT - 1 - lines.end);
			if (got < 0) lines.error = errno;
		}
		if (got <= 0) {
			if (lines.end == 0 || lines.skipping) return NULL;
			lines.bytes[lines.end] = 0;
			lines.end = 0;
			return lines.bytes;
		}
		lines.end += (size_t)got;
		lines.total += (size_t)got;
	}
}

static int split(char *line, char *fields[FIELDS]) {
	int count = 0;
	for (char *at = line; at != NULL && count < FIELDS; count++) {
		fields[count] = at;
		at = strchr(at, ':');
		if (at != NULL) *at++ = 0;
	}
	return count;
}

/* A decimal id below the one that means "none". */
static bool parse_id(const char *text, uint32_t *id) {
	uint64_t value = 0;
	size_t length = strlen(text);
	if (length == 0 || length > 10) return false;
	for (; *text != 0; text++) {
		if (*text < '0' || *text > '9') return false;
		value = value * 10 + (uint64_t)(*text - '0');
	}
	if (value >= UINT32_MAX) return false;
	*id = (uint32_t)value;
	return true;
}

static bool keep_text(char *to, size_t room, const char *text) {
	size_t length = strlen(text);
	if (length >= room) return false;
	memcpy(to, text, length + 1);
	return true;
}

/* Fills uid, gid, name and home from the entry of that name or number. */
static int look_up_user(const char *text, struct identity *identity) {
	uint32_t id = 0, uid, gid;
	bool numeric = parse_id(text, &id);
	bool found = false;
	int error = lines_open("/etc/passwd");
	/* Numbers need no entry: they are the way in when the file is broken. */
	if (error != 0 && !numeric) return error;
	bool any = lines.fd >= 0;
	for (char *line; !found && (line = lines_next()) != NULL;) {
		char *fields[FIELDS];
		if (split(line, fields) < 6 || !parse_id(fields[2], &uid) || !parse_id(fields[3], &gid)) continue;
		if (numeric ? uid != id : strcmp(fields[0], text) != 0) continue;
		found = keep_text(identity->name, sizeof identity->name, fields[0]);
		identity->uid = uid;
		identity->gid = gid;
		if (!keep_text(identity->home, sizeof identity->home, fields[5][0] == '/' ? fields[5] : "/")) identity->home[0] = 0;
	}
	error = lines_close();
	if (found) return 0;
	/* What could not be read may well name the user. */
	if (error != 0 && !numeric) return error;
	identity->name[0] = 0;
	keep_text(identity->home, sizeof identity->home, "/");
	if (numeric) {
		identity->uid = id;
		identity->gid = 0;
		return 0;
	}
	/* An image without any users still has the one that every kernel knows. */
	if (any || strcmp(text, "root") != 0) return ENOENT;
	identity->uid = identity->gid = 0;
	keep_text(identity->name, sizeof identity->name, "root");
	keep_text(identity->home, sizeof identity->home, "/root");
	return 0;
}

static int look_up_group(const char *text, struct identity *identity) {
	uint32_t gid;
	if (parse_id(text, &gid)) {
		identity->gid = gid;
		return 0;
	}
	int error = lines_open("/etc/group");
	if (error != 0) return error;
	bool found = false;
	for (char *line; !found && (line = lines_next()) != NULL;) {
		char *fields[FIELDS];
		if (split(line, fields) < 3 || strcmp(fields[0], text) != 0 || !parse_id(fields[2], &gid)) continue;
		identity->gid = gid;
		found = true;
	}
	error = lines_close();
	return found ? 0 : error != 0 ? error : ENOENT;
}

/* True when a comma-separated list names the user. */
static bool names(const char *members, const char *name) {
	size_t length = strlen(name);
	for (const char *at = members; *at != 0;) {
		size_t member = strcspn(at, ",");
		if (member == length && memcmp(at, name, length) == 0) return true;
		at += member;
		if (*at == ',') at++;
	}
	return false;
}

static int add_supplementary(struct identity *identity) {
	identity->group_count = 0;
	identity->groups[identity->group_count++] = identity->gid;
	if (identity->name[0] == 0) return 0;
	int error = lines_open("/etc/group");
	if (error != 0) return error;
	for (char *line; (line = lines_next()) != NULL && identity->group_count < GROUPS_KEPT;) {
		char *fields[FIELDS];
		uint32_t gid;
		if (split(line, fields) < 4 || !parse_id(fields[2], &gid) || gid == identity->gid) continue;
		if (names(fields[3], identity->name)) identity->groups[identity->group_count++] = gid;
	}
	return lines_close();
}

int identity_resolve(const char *text, struct identity *identity) {
	char user[NAME_KEPT];
	const char *colon = strchr(text, ':');
	size_t length = colon != NULL ? (size_t)(colon - text) : strlen(text);
	if (length == 0 || length >= sizeof user) return EINVAL;
	memcpy(user, text, length);
	user[length] = 0;
	int error = look_up_user(user, identity);
	if (error != 0) return error;
	if (colon == NULL) return add_supplementary(identity);
	identity->group_count = 0;
	return look_up_group(colon + 1, identity);
}

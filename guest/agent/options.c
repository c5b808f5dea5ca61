#include "options.h"

#include <string.h>

static const struct {
	const char *name;
	int resource;
} resources[] = {
	{"core", RLIMIT_CORE},       {"cpu", RLIMIT_CPU},       {"data", RLIMIT_DATA},   {"fsize", RLIMIT_FSIZE},
	{"memlock", RLIMIT_MEMLOCK}, {"nofile", RLIMIT_NOFILE}, {"nproc", RLIMIT_NPROC}, {"stack", RLIMIT_STACK},
};

/* A decimal number, or "unlimited"; moves `text` behind it. */
static bool take_amount(const char **text, rlim_t *amount) {
	static const char unlimited[] = "unlimited";
	if (strncmp(*text, unlimited, sizeof unlimited - 1) == 0) {
		*text += sizeof unlimited - 1;
		*amount = RLIM_INFINITY;
		return true;
	}
	const char *at = *text;
	uint64_t value = 0;
	for (; *at >= '0' && *at <= '9'; at++) {
		uint64_t digit = (uint64_t)(*at - '0');
		if (value > (UINT64_MAX - 1 - digit) / 10) return false;
		value = value * 10 + digit;
	}
	if (at == *text) return false;
	*text = at;
	*amount = value;
	return true;
}

static bool take_rlimit(const char *text, struct options *options) {
	if (options->rlimits == RLIMIT_LIMIT) return false;
	struct rlimit_setting *setting = &options->rlimit[options->rlimits];
	const char *colon = strchr(text, ':');
	if (colon == NULL) return false;
	size_t length = (size_t)(colon - text);
	for (size_t i = 0; i < sizeof resources / sizeof resources[0]; i++) {
		if (strlen(resources[i].name) != length || memcmp(resources[i].name, text, length) != 0) continue;
		setting->resource = resources[i].resource;
		const char *at = colon + 1;
		if (!take_amount(&at, &setting->value.rlim_cur) || *at++ != ':') return false;
		if (!take_amount(&at, &setting->value.rlim_max) || *at != 0) return false;
		if (setting->value.rlim_cur > setting->value.rlim_max) return false;
		options->rlimits++;
		return true;
	}
	return false;
}

/* `0-2,5` */
static bool take_processors(const char *text, cpu_set_t *processors) {
	CPU_ZERO(processors);
	for (;;) {
		rlim_t first, last;
		if (!take_amount(&text, &first)) return false;
		last = first;
		if (*text == '-' && (text++, !take_amount(&text, &last))) return false;
		if (first > last || last >= 8 * sizeof *processors) return false;
		for (rlim_t at = first; at <= last; at++) CPU_SET(at, processors);
		if (*text == 0) return true;
		if (*text++ != ',') return false;
	}
}

/* A copy: what a blank is filled from goes away. */
static bool take_profile(const char *text, char profile[PROFILE_LIMIT + 1]) {
	size_t length = strlen(text);
	if (length == 0 || length > PROFILE_LIMIT) return false;
	memcpy(profile, text, length + 1);
	return true;
}
/* Where a descriptor that the agent is given may lie: above the listener, and where nothing of its own is yet. */
#define FIRST_DESCRIPTOR 3
#define LAST_DESCRIPTOR 255

int options_parse(int argc, char **argv, struct options *options) {
	for (int i = 1; i < argc; i++) {
		const char *text = argv[i];
		rlim_t count;
		if (strncmp(text, "--cgroups=", 10) == 0) {
			text += 10;
			if (!take_amount(&text, &count) || *text != 0 || count > CGROUP_LIMIT) return -1;
			options->cgroups = (int)count;
		} else if (strncmp(text, "--cells=", 8) == 0) {
			text += 8;
			/* The last of those that are there already. */
			if (!take_amount(&text, &count) || *text != 0 || count > (rlim_t)options->cgroups) return -1;
			options->cells = (int)count;
			options->cgroups -= (int)count;
		} else if (strcmp(text, "--blank") == 0) {
			options->blank = true;
		} else if (strcmp(text, "--whole") == 0) {
			options->whole = true;
		} else if (strncmp(text, "--apparmor=", 11) == 0) {
			if (!take_profile(text + 11, options->profile)) return -1;
		} else if (strncmp(text, "--shell=", 8) == 0) {
			text += 8;
			if (!take_amount(&text, &count) || *text != 0 || count <= FIRST_DESCRIPTOR || count > LAST_DESCRIPTOR) return -1;
			options->shell = (int)count;
		} else if (strncmp(text, "--rlimit=", 9) == 0) {
			if (!take_rlimit(text + 9, options)) return -1;
		} else if (strncmp(text, "--processors=", 13) == 0) {
			if (!take_processors(text + 13, &options->processors)) return -1;
		} else {
			return -1;
		}
	}
	return 0;
}

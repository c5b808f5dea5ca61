/* Finding a program and giving it its arguments and environment. */
#include "program.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
/* PATH, HOME, USER, LOGNAME */
#define ADDED 4

/* Pointers to the texts of a run, with `spare` places behind them. */
static char **pointers(const char *texts, size_t size, size_t spare) {
	size_t count = texts_count(texts, size);
	char **all = pages_map((count + spare + 1) * sizeof *all);
	if (all == NULL) return NULL;
	size_t at = 0;
	for (const char *text = texts; text < texts + size; text += strlen(text) + 1) all[at++] = (char *)text;
	return all;
}

static const char *find_variable(char *const *environment, const char *prefix) {
	size_t length = strlen(prefix);
	for (; *environment != NULL; environment++) {
		if (strncmp(*environment, prefix, length) == 0) return *environment + length;
	}
	return NULL;
}

/* `room` holds prefix and value. Nothing is added over what the caller has set. */
static void add_variable(char **environment, const char *prefix, const char *value, char *room) {
	if (find_variable(environment, prefix) != NULL) return;
	size_t length = strlen(prefix);
	memcpy(room, prefix, length);
	memcpy(room + length, value, strlen(value) + 1);
	while (*environment != NULL) environment++;
	*environment = room;
}

char **program_environment(const struct start *start, const struct identity *identity) {
	static char path[sizeof "PATH=" DEFAULT_PATH];
	static char home[sizeof "HOME=" + sizeof identity->home];
	static char user[sizeof "USER=" + sizeof identity->name];
	static char logname[sizeof "LOGNAME=" + sizeof identity->name];
	char **environment = pointers(start->env, start->env_size, ADDED);
	if (environment == NULL) return NULL;
	add_variable(environment, "PATH=", DEFAULT_PATH, path);
	add_variable(environment, "HOME=", identity->home, home);
	if (identity->name[0] != 0) {
		add_variable(environment, "USER=", identity->name, user);
		add_variable(environment, "LOGNAME=", identity->name, logname);
	}
	return environment;
}

static struct program_failure try_file(const char *file, char **argv, char **environment) {
	execve(file, argv, environment);
	struct program_failure failure = {.error = errno};
	failure.missing_interpreter = failure.error == ENOENT && access(file, F_OK) == 0;
	return failure;
}

/* The directories of PATH in turn. What exists but may not be run is reported only when no later one runs. */
static struct program_failure search(char **argv, char **environment) {
	static char file[PATH_MAX];
	struct program_failure refused = {.error = ENOENT};
	const char *name = argv[0];
	size_t length = strlen(name);
	for (const char *at = find_variable(environment, "PATH="); at != NULL;) {
		const char *colon = strchr(at, ':');
		size_t directory = colon != NULL ? (size_t)(colon - at) : strlen(at);
		if (directory + 1 + length + 1 <= sizeof file) {
			/* An empty entry is the current directory. */
			memcpy(file, at, directory);
			size_t end = directory;
			if (directory > 0) file[end++] = '/';
			memcpy(file + end, name, length + 1);
			struct program_failure failure = try_file(file, argv, environment);
			bool absent = (failure.error == ENOENT && !failure.missing_interpreter) || failure.error == ENOTDIR;
			if (!absent && failure.error != EACCES) return failure;
			if (failure.error == EACCES && access(file, F_OK) == 0) refused = failure;
		}
		at = colon != NULL ? colon + 1 : NULL;
	}
	return refused;
}

struct program_failure program_exec(const struct start *start, const struct identity *identity) {
	char **argv = pointers(start->argv, start->argv_size, 0);
	char **environment = program_environment(start, identity);
	if (argv == NULL || environment == NULL) return (struct program_failure){.error = ENOMEM};
	return strchr(argv[0], '/') != NULL ? try_file(argv[0], argv, environment) : search(argv, environment);
}

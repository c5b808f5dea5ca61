/*
 * Stands in for the agent in tests. Serves one connection after the other on descriptor 3: reads a line of text up to the end
 * of input, answers, closes. `@facts` tells what the agent sees of itself; `@exit N` ends it; all else runs in the sandbox's
 * shell with every capability the agent has, which is more than any command of the real agent gets.
 */
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "blank.h"

extern char **environ;

static void link_fact(FILE *out, const char *label, const char *path)
{
	char target[512];
	ssize_t length = readlink(path, target, sizeof target - 1);

	target[length < 0 ? 0 : length] = 0;
	fprintf(out, "%s %s\n", label, target);
}

static void file_fact(FILE *out, const char *label, const char *path)
{
	char text[4096];
	int fd = open(path, O_RDONLY);
	ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof text - 1);

	text[length < 0 ? 0 : length] = 0;
	fprintf(out, "%s %s%s", label, text, length > 0 && text[length - 1] == '\n' ? "" : "\n");
	close(fd);
}

static void descriptor_facts(FILE *out)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	char path[300], label[300];

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		if (entry->d_name[0] == '.' || atoi(entry->d_name) == dirfd(dir) || atoi(entry->d_name) == fileno(out))
			continue;
		snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
		snprintf(label, sizeof label, "fd %s", entry->d_name);
		link_fact(out, label, path);
	}
	if (dir != NULL)
		closedir(dir);
}

static void facts(FILE *out, int argc, char **argv)
{
	static const char *const NAMESPACES[] = { "cgroup", "ipc", "mnt", "net", "pid", "user", "uts" };
	char path[64], label[64];
	sigset_t mask;
	size_t variables = 0;

	while (environ[variables] != NULL)
		variables++;
	sigprocmask(SIG_SETMASK, NULL, &mask);
	fprintf(out, "pid %d\nuid %d\ngid %d\ngroups %d\nsid %d\n", getpid(), getuid(), getgid(), getgroups(0, NULL), getsid(0));
	fprintf(out, "environment %zu\nsigchld-blocked %d\n", variables, sigismember(&mask, SIGCHLD));
	for (int at = 0; at < argc; at++)
		fprintf(out, "arg %s\n", argv[at]);
	for (size_t at = 0; at < sizeof NAMESPACES / sizeof *NAMESPACES; at++) {
		snprintf(path, sizeof path, "/proc/self/ns/%s", NAMESPACES[at]);
		snprintf(label, sizeof label, "ns-%s", NAMESPACES[at]);
		link_fact(out, label, path);
	}
	file_fact(out, "oom", "/proc/self/oom_score_adj");
	file_fact(out, "uid-map", "/proc/self/uid_map");
	file_fact(out, "gid-map", "/proc/self/gid_map");
	link_fact(out, "cwd", "/proc/self/cwd");
	link_fact(out, "root", "/proc/self/root");
	descriptor_facts(out);
}

static void run_shell(int connection, const char *text)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		dup2(connection, 1);
		dup2(connection, 2);
		close_range(3, ~0U, 0);
		execl("/bin/sh", "sh", "-c", text, NULL);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) != pid)
		;
	dprintf(connection, "\nstatus %d", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* Enters every cgroup that was handed over, as the real agent's spawner does. */
static void enter_cgroups(int connection, int count)
{
	for (int fd = 4; fd < 4 + count; fd++)
		dprintf(connection, "enter %d %s\n", fd, write(fd, "0", 1) == 1 ? "done" : "refused");
}

static void serve(int connection, int argc, char **argv)
{
	static char text[65536];
	size_t length = 0;
	ssize_t got;

	while (length < sizeof text - 1 && (got = read(connection, text + length, sizeof text - 1 - length)) > 0)
		length += (size_t)got;
	text[length] = 0;
	if (strncmp(text, "@exit ", 6) == 0)
		_exit(atoi(text + 6));
	if (strcmp(text, "@facts") == 0) {
		FILE *out = fdopen(dup(connection), "w");

		facts(out, argc, argv);
		fclose(out);
	} else if (strcmp(text, "@enter") == 0) {
		enter_cgroups(connection, argc > 1 ? atoi(argv[1] + strlen("--cgroups=")) : 0);
	} else {
		run_shell(connection, text);
	}
}

int main(void)
{
	static struct filling filling;

	/* The real agent's own code: what the launcher sends it is part of the test. */
	if (blank_ready() || blank_fill(&filling))
		_exit(2);
	for (int at = 1; at < filling.argc; at++)
		if (strcmp(filling.argv[at], "--die") == 0)
			_exit(3);
	for (;;) {
		int connection = accept4(3, NULL, NULL, SOCK_CLOEXEC);

		if (connection < 0)
			_exit(1);
		serve(connection, filling.argc, filling.argv);
		close(connection);
	}
}

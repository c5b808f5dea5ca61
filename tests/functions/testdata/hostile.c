/*
 * A call that leaves behind whatever it can (`leave`), and one that looks for it (`look`): every line that `look` prints is something that
 * crossed from one call to another. `leave` prints what it could do, so that a test knows that it tried. Static: it runs in any base.
 */
#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/ptrace.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEY 0x64736563
#define PORT 4242
#define MARK "left-behind"

static const char *const places[] = {
	"/tmp/" MARK,      "/var/tmp/" MARK, "/work" "/" MARK, "/dev/shm/" MARK, "/run/" MARK,      "/run/lock/" MARK,
	"/root/" MARK,     "/home/" MARK,    "/etc/" MARK,  "/usr/bin/" MARK, "/bin/" MARK,      "/dev/" MARK,
	"/dev/mqueue/" MARK, "/var/spool/cron/" MARK, "/var/spool/cron/crontabs/" MARK, "/etc/cron.d/" MARK, "/" MARK,
};
#define PLACES (sizeof places / sizeof places[0])

static void tell(const char *what) {
	printf("%s\n", what);
	fflush(stdout);
}

static int bind_abstract(void) {
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "\0" MARK};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	return bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 1) == 0 ? 0 : -1;
}

static int reach_abstract(const char *name, size_t size, int type) {
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	memcpy(address.sun_path, name, size);
	int fd = socket(AF_UNIX, type, 0);
	return connect(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size));
}

static int port(int connecting) {
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connecting) return connect(fd, (struct sockaddr *)&address, sizeof address);
	return bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 1) == 0 ? 0 : -1;
}

/* A packet to itself, which is counted, and a query that finds no way, which is, too. */
static int send_to_itself(void) {
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in away = {.sin_family = AF_INET, .sin_port = htons(53), .sin_addr.s_addr = htonl(0x08080808)};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	ssize_t sent = sendto(fd, MARK, sizeof MARK, 0, (struct sockaddr *)&own, sizeof own);
	if (sendto(fd, MARK, sizeof MARK, 0, (struct sockaddr *)&away, sizeof away) >= 0) tell("sent something away");
	return close(fd) == 0 && sent > 0 ? 0 : -1;
}

/* Numbers that follow a name in a line of /proc/net: how many of them are not zero. */
static int counted(const char *path, const char *name) {
	char line[1024];
	int count = 0;
	FILE *file = fopen(path, "r");
	while (file != NULL && fgets(line, sizeof line, file) != NULL) {
		char *at = strstr(line, name);
		if (at == NULL) continue;
		for (char *word = strtok(at + strlen(name), " \t\n"); word != NULL; word = strtok(NULL, " \t\n")) count += strtoul(word, NULL, 10) != 0;
	}
	if (file != NULL) fclose(file);
	return count;
}

static void write_everywhere(void) {
	for (size_t at = 0; at < PLACES; at++) {
		int fd = open(places[at], O_WRONLY | O_CREAT, 0666);
		if (fd < 0) continue;
		if (write(fd, MARK, sizeof MARK) > 0) printf("wrote %s\n", places[at]);
		close(fd);
	}
	int fd = open("/bin/sh", O_WRONLY);
	if (fd >= 0) tell("opened the shell for writing");
}

static void make_objects(void) {
	if (shmget(KEY, 4096, IPC_CREAT | 0666) >= 0) tell("made shared memory");
	if (semget(KEY, 1, IPC_CREAT | 0666) >= 0) tell("made a semaphore");
	if (msgget(KEY, IPC_CREAT | 0666) >= 0) tell("made a message queue");
	if (shm_open("/" MARK, O_CREAT | O_RDWR, 0666) >= 0) tell("made a shared file");
	if (mq_open("/" MARK, O_CREAT | O_RDWR, 0666, NULL) != (mqd_t)-1) tell("made a POSIX queue");
	if (bind_abstract() == 0) tell("listens on an abstract name");
	if (port(0) == 0) tell("listens on a port");
	if (send_to_itself() == 0) tell("sent to itself");
	if (syscall(SYS_add_key, "user", MARK, MARK, sizeof MARK, -4) >= 0) tell("added a key");
	int count = 0;
	while (inotify_init() >= 0) count++;
	if (count > 0) tell("used up inotify");
}

/* Nobody's child, in a session of its own, deaf to signals. */
static void leave_daemon(void) {
	if (fork() != 0) return;
	setsid();
	for (int number = 1; number < 32; number++) signal(number, SIG_IGN);
	if (fork() != 0) _exit(0);
	close(0);
	close(1);
	close(2);
	for (;;) {
		if (fork() == 0) {
			setsid();
			for (;;) pause();
		}
		sleep(1);
	}
}

/* Whoever is there: the init of the cell, the platform's processes, those of other calls. */
static int attack_processes(void) {
	int hits = 0;
	for (pid_t pid = 1; pid < 5000; pid++) {
		char path[64];
		if (pid == getpid() || pid == getppid()) continue;
		snprintf(path, sizeof path, "/proc/%d/mem", pid);
		int fd = open(path, O_RDWR);
		if (fd >= 0) hits++;
		if (ptrace(PTRACE_ATTACH, pid, NULL, NULL) == 0) hits++;
		if (kill(pid, 0) == 0) hits++;
	}
	return hits;
}

static void leave(void) {
	write_everywhere();
	make_objects();
	/* Before there are any of its own. */
	if (attack_processes() > 0) tell("reached processes");
	leave_daemon();
	setenv("LEFT", MARK, 1);
	umask(0);
	kill(-1, SIGCONT);
	tell("left");
}

static void look(void) {
	struct stat status;
	/* Before it sends something itself. */
	if (counted("/proc/net/dev", "lo:") != 0) tell("packets were counted");
	if (counted("/proc/net/snmp", "Udp:") != 0) tell("datagrams were counted");
	for (size_t at = 0; at < PLACES; at++) {
		if (lstat(places[at], &status) == 0) printf("found %s\n", places[at]);
	}
	if (shmget(KEY, 1, 0) >= 0) tell("found shared memory");
	if (semget(KEY, 1, 0) >= 0) tell("found a semaphore");
	if (msgget(KEY, 0) >= 0) tell("found a message queue");
	if (shm_open("/" MARK, O_RDONLY, 0) >= 0) tell("found a shared file");
	if (mq_open("/" MARK, O_RDONLY) != (mqd_t)-1) tell("found a POSIX queue");
	if (reach_abstract("\0" MARK, sizeof "\0" MARK, SOCK_STREAM) == 0) tell("reached an abstract name");
	if (reach_abstract("\0dsec-fork-server", sizeof "\0dsec-fork-server" - 1, SOCK_SEQPACKET) == 0) tell("reached the fork server");
	if (port(1) == 0) tell("reached a port");
	if (port(0) != 0) tell("the port is taken");
	if (syscall(SYS_request_key, "user", MARK, NULL, -4) >= 0) tell("found a key");
	if (inotify_init() < 0) tell("no inotify is left");
	if (getenv("LEFT") != NULL) tell("found a variable");
	if (getpid() != 2) printf("processes were numbered before: %d\n", getpid());
	if (stat("/dev/mqueue", &status) == 0 && status.st_mtime != 0) tell("queues were made");
	if (umask(022) != 022) tell("another umask");
	DIR *processes = opendir("/proc");
	for (struct dirent *entry; processes != NULL && (entry = readdir(processes)) != NULL;) {
		int pid = atoi(entry->d_name);
		/* The cell's own init, and this program with whoever started it. */
		if (pid > 1 && pid != getpid() && pid != getppid()) printf("found process %d\n", pid);
	}
	tell("looked");
}

int main(int argc, char **argv) {
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && strcmp(argv[1], "leave") == 0) leave();
	if (argc > 1 && strcmp(argv[1], "look") == 0) look();
	return 0;
}

/*
 * What the contract's servers in a sandbox do: `server echo|http|sink PORT`. A process for each connection, so that none waits
 * for another. Answers of HTTP end with their connection.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE 65536

static char buffer[PIECE];

static void write_all(int fd, const void *bytes, size_t size) {
	for (const char *at = bytes; size > 0;) {
		ssize_t wrote = write(fd, at, size);
		if (wrote <= 0) _exit(1);
		at += wrote;
		size -= (size_t)wrote;
	}
}

static void say(int fd, const char *text) { write_all(fd, text, strlen(text)); }

static uint32_t crc_of(uint32_t crc, const uint8_t *bytes, size_t size) {
	static uint32_t table[256];
	if (table[1] == 0) {
		for (uint32_t i = 0; i < 256; i++) {
			table[i] = i;
			for (int bit = 0; bit < 8; bit++) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320u : 0);
		}
	}
	crc = ~crc;
	for (size_t i = 0; i < size; i++) crc = crc >> 8 ^ table[(crc ^ bytes[i]) & 0xff];
	return ~crc;
}

static void echo(int fd) {
	ssize_t got;
	while ((got = read(fd, buffer, sizeof buffer)) > 0) write_all(fd, buffer, (size_t)got);
}

/* The head of a request; what came behind it stays in `rest`. */
static char head[PIECE], *rest;
static size_t rest_size;

static void read_head(int fd) {
	size_t size = 0;
	for (char *end = NULL; end == NULL; end = strstr(head, "\r\n\r\n")) {
		ssize_t got = read(fd, head + size, sizeof head - 1 - size);
		if (got <= 0) _exit(1);
		size += (size_t)got;
		head[size] = 0;
	}
	rest = strstr(head, "\r\n\r\n") + 4;
	rest_size = size - (size_t)(rest - head);
}

static const char *header(const char *name) {
	for (char *line = strstr(head, "\r\n"); line != NULL && line < rest - 2; line = strstr(line + 2, "\r\n")) {
		if (strncasecmp(line + 2, name, strlen(name)) == 0) return line + 2 + strlen(name) + 2;
	}
	return NULL;
}

static void send_bytes(int fd, long count) {
	char line[128];
	for (size_t i = 0; i < sizeof buffer; i++) buffer[i] = (char)(i % 251);
	snprintf(line, sizeof line, "HTTP/1.1 200 OK\r\nContent-Length: %ld\r\n\r\n", count);
	say(fd, line);
	for (long left = count; left > 0; left -= PIECE) write_all(fd, buffer, (size_t)(left < PIECE ? left : PIECE));
}

static void tell_sum(int fd) {
	const char *length = header("content-length");
	long left = length == NULL ? 0 : atol(length);
	uint32_t crc = crc_of(0, (uint8_t *)rest, rest_size);
	left -= (long)rest_size;
	while (left > 0) {
		ssize_t got = read(fd, buffer, sizeof buffer);
		if (got <= 0) _exit(1);
		crc = crc_of(crc, (uint8_t *)buffer, (size_t)got);
		left -= got;
	}
	char answer[128];
	snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\n\r\n%u", crc);
	say(fd, answer);
}

static void http(int fd) {
	struct linger reset = {1, 0};
	char target[256] = "";
	read_head(fd);
	sscanf(head, "%*s %255s", target);
	if (strcmp(target, "/head") == 0) {
		say(fd, "HTTP/1.1 200 OK\r\n\r\n");
		write_all(fd, head, (size_t)(rest - head));
	} else if (strncmp(target, "/bytes/", 7) == 0) {
		send_bytes(fd, atol(target + 7));
	} else if (strcmp(target, "/sum") == 0) {
		tell_sum(fd);
	} else if (strcmp(target, "/events") == 0) {
		say(fd, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
		/* Each event when the one before was asked for: by a file that the test makes. */
		for (char name[] = "/tmp/event-1"; name[11] <= '3'; name[11]++) {
			while (access(name, F_OK) != 0) usleep(1000);
			say(fd, "9\r\ndata: x\n\n\r\n");
		}
		say(fd, "0\r\n\r\n");
	} else if (strcmp(target, "/poll") == 0) {
		sleep(2);
		say(fd, "HTTP/1.1 200 OK\r\n\r\nat last");
	} else if (strcmp(target, "/socket") == 0) {
		say(fd, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n");
		echo(fd);
	} else if (strcmp(target, "/broken") == 0) {
		say(fd, "HTTP/1.1 200 OK\r\n\r\na part");
		usleep(50000);
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
	} else {
		say(fd, "HTTP/1.1 404 Not Found\r\n\r\nnothing here");
	}
}

/* Takes connections and reads nothing. */
static void sink(int fd) {
	(void)fd;
	pause();
}

int main(int argc, char **argv) {
	if (argc != 3) return 64;
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
	int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 512) != 0) return 71;
	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		int fd = accept(listener, NULL, NULL);
		if (fd < 0) return 71;
		if (fork() == 0) {
			close(listener);
			if (strcmp(argv[1], "echo") == 0) echo(fd);
			if (strcmp(argv[1], "http") == 0) http(fd);
			if (strcmp(argv[1], "sink") == 0) sink(fd);
			close(fd);
			_exit(0);
		}
		close(fd);
	}
}

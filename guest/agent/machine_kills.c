/* Who was killed for want of memory: only the log of the kernel says. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "machine.h"

/* The kernel gives no record longer than this. */
#define RECORD_BYTES 8192
/* What is told of one: all that matters comes first. */
#define TOLD_BYTES 480
/* Facility 0 is the kernel: what others write into its log is no evidence. */
#define FACILITY_SHIFT 3

/* `priority,number,microseconds,flags;text`. Whether it tells of a kill, which two of them do: who, then how large. */
static bool tells_of_kill(const char *record, unsigned long long after) {
	char *at;
	unsigned long priority = strtoul(record, &at, 10);
	if (*at != ',' || priority >> FACILITY_SHIFT != 0 || strtoull(at + 1, NULL, 10) <= after) return false;
	const char *text = strchr(record, ';');
	if (text == NULL) return false;
	return strncmp(text + 1, "oom-kill:", 9) == 0 || strstr(text, "Killed process ") != NULL;
}

static void tell(const char *record, char *text, size_t size) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	size_t length = strcspn(record, "\n");
	if (length > TOLD_BYTES) length = TOLD_BYTES;
	int at = snprintf(text, size, "%lld ", (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
	for (size_t i = 0; i < length && (size_t)at + 3 <= size; i++) {
		at += snprintf(text + at, size - (size_t)at, "%02x", (unsigned char)record[i]);
	}
}

int kills_next(unsigned long long after, char *text, size_t size) {
	static char record[RECORD_BYTES + 1];
	*text = 0;
	int log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (log < 0) return errno;
	for (;;) {
		ssize_t got = read(log, record, RECORD_BYTES);
		/* The log ran over what was not read yet; it goes on with the oldest that is left. */
		if (got < 0 && errno == EPIPE) continue;
		if (got <= 0) break;
		record[got] = 0;
		if (!tells_of_kill(record, after)) continue;
		tell(record, text, size);
		break;
	}
	close(log);
	return 0;
}

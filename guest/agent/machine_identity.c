/* What a machine that was copied must not share with its copies. */
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "machine.h"

#define SEED_BYTES 64

/* SECONDS.NANOSECONDS since 1970. */
int identity_clock(const char *seconds) {
	char *rest = NULL;
	struct timespec now = {.tv_sec = (time_t)strtoll(seconds, &rest, 10)};
	if (*rest == '.') now.tv_nsec = strtol(rest + 1, &rest, 10);
	if (*rest != 0) return EINVAL;
	return clock_settime(CLOCK_REALTIME, &now) != 0 ? errno : 0;
}

int identity_seed(const char *hex) {
	struct {
		struct rand_pool_info head;
		uint8_t bytes[SEED_BYTES];
	} seed = {.head = {.entropy_count = 8 * SEED_BYTES, .buf_size = SEED_BYTES}};
	if (!hex_read(hex, seed.bytes, SEED_BYTES)) return EINVAL;
	int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
	if (fd < 0) return errno;
	/* The second makes the kernel use the first at once, not within minutes. */
	int error = ioctl(fd, RNDADDENTROPY, &seed) != 0 || ioctl(fd, RNDRESEEDCRNG) != 0 ? errno : 0;
	close(fd);
	return error;
}

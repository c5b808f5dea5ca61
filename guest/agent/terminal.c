/* Terminals: the master stays with the agent, the other end goes to the command without ever having been opened by a name. */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "agent.h"

/*
 * Of the sandbox's own devpts. Nobody inside can put anything else there: the path goes through two mounts that the sandbox
 * cannot move, and that file system lets nobody make or remove a file.
 */
#define MULTIPLEXER "/dev/pts/ptmx"

static int give_size(int fd, struct terminal_size size) {
	struct winsize window = {.ws_row = size.rows, .ws_col = size.columns};
	return ioctl(fd, TIOCSWINSZ, &window) != 0 ? errno : 0;
}

/* Erasing takes a character, not a byte of one. */
static int expect_utf8(int fd) {
	struct termios modes;
	if (tcgetattr(fd, &modes) != 0) return errno;
	modes.c_iflag |= IUTF8;
	return tcsetattr(fd, TCSANOW, &modes) != 0 ? errno : 0;
}

int terminal_open(struct terminal_size size, int *master, int *slave) {
	int unlock = 0;
	*slave = -1;
	*master = open(MULTIPLEXER, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (*master < 0) return errno;
	int error = ioctl(*master, TIOCSPTLCK, &unlock) != 0 ? errno : 0;
	if (error == 0) {
		*slave = ioctl(*master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
		if (*slave < 0) error = errno;
	}
	if (error == 0) error = give_size(*master, size);
	if (error == 0) error = expect_utf8(*slave);
	if (error != 0) {
		close_fd(master);
		close_fd(slave);
	}
	return error;
}

void terminal_resize(struct task *task, struct terminal_size size) {
	/* The kernel tells the foreground processes with a SIGWINCH when it is another size. */
	if (task->streams[STDOUT].terminal && task->streams[STDOUT].fd >= 0) give_size(task->streams[STDOUT].fd, size);
}

bool terminal_end_input(struct input *input) {
	struct termios modes;
	if (input->fd < 0 || tcgetattr(input->fd, &modes) != 0) return true;
	/* A program that takes its input raw has no end of it; it would read the character. */
	if (!(modes.c_lflag & ICANON)) return true;
	uint8_t end[2] = {modes.c_cc[VEOF], modes.c_cc[VEOF]};
	/* The first ends a line that was begun, the second finds an empty one: that is the end. */
	size_t count = input->in_line ? 2 : 1;
	ssize_t wrote = write(input->fd, end, count);
	if (wrote < 0) return errno != EAGAIN && errno != EINTR;
	if ((size_t)wrote == count) return true;
	input->in_line = input->in_line && wrote == 0;
	return false;
}

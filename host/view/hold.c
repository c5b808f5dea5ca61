/* Somebody who has the connection with the kernel beside the server and the node, and does nothing that could end it. */
#include <errno.h>
#include <poll.h>

#include "serve.h"

int hold(int fuse)
{
	/* Not for requests, which are the server's: errors are told without being asked for. */
	struct pollfd connection = { .fd = fuse, .events = 0 };

	for (;;) {
		int count = poll(&connection, 1, -1);

		if (count < 0 && errno != EINTR)
			return 1;
		/* Unmounted: nobody can see these files any more. */
		if (count > 0 && (connection.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0)
			return 0;
	}
}

/* Directory entries in the coding of core/entries.ts. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "files.h"
#include "files_walk.h"

int files_list(const char *path, uint32_t depth, bool hidden) {
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) return errno;
	int error = files_walk(fd, &(struct walk){.limit = depth, .cut = true, .hidden = hidden, .visit = entry_put});
	return error != 0 ? error : entry_flush();
}

int files_stat(const char *path) {
	size_t begin, end;
	struct stat status;
	files_last(path, &begin, &end);
	int error = entry_look(AT_FDCWD, path, &status);
	if (error == 0) error = entry_put(AT_FDCWD, path, &status, (struct shown){path + begin, end - begin});
	return error != 0 ? error : entry_flush();
}

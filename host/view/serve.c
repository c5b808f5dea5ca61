/* The kernel's side: requests of FUSE, one at a time. */
#include <errno.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "serve.h"
#include "view.h"

enum {
	/* Names and attributes never change: the kernel asks once. */
	FOREVER_S = 1u << 30,
	TEXT_BYTES = 1024 * 1024,
	/* As files of /sys have, whatever they hold. None at all would end a sendfile(2) before its first byte. */
	FILE_BYTES = 4096,
	/* What stdio takes for its buffer: most files are read in one go, as their numbers belong together. */
	BLOCK_BYTES = 65536,
	MINOR = 31,
	/* For one answer. Whoever takes longer hangs, and all readers with it: the end of this process is the way on. */
	ANSWER_S = 5,
};

static const struct {
	const char *name;
	void (*make)(const struct node *node, const struct sandbox *sandbox, struct text *text);
} FILES[] = {
	{ "meminfo", make_meminfo }, { "swaps", make_swaps },   { "cpuinfo", make_cpuinfo }, { "stat", make_stat },
	{ "uptime", make_uptime },   { "loadavg", make_loadavg }, { "online", make_online },
	{ "vmstat", make_vmstat },   { "diskstats", make_diskstats },
};
enum { FILE_COUNT = sizeof FILES / sizeof *FILES, FIRST_FILE = FUSE_ROOT_ID + 1 };

static char text_bytes[TEXT_BYTES];

/* A reply that the kernel does not want any more (ENOENT) is nobody's loss. */
static void reply(int fuse, uint64_t unique, int error, const void *body, size_t length)
{
	struct fuse_out_header header = { .len = (uint32_t)(sizeof header + length), .error = -error, .unique = unique };
	struct iovec pieces[2] = { { &header, sizeof header }, { (void *)body, length } };

	(void)!writev(fuse, pieces, length > 0 ? 2 : 1);
}

static bool is_file(uint64_t node_id)
{
	return node_id >= FIRST_FILE && node_id < FIRST_FILE + FILE_COUNT;
}

static struct fuse_attr attributes_of(uint64_t node_id)
{
	bool is_dir = node_id == FUSE_ROOT_ID;

	return (struct fuse_attr){
		.ino = node_id, .mode = is_dir ? S_IFDIR | 0555 : S_IFREG | 0444, .nlink = is_dir ? 2 : 1,
		.size = is_dir ? 0 : FILE_BYTES, .blksize = BLOCK_BYTES,
	};
}

static void on_init(int fuse, const struct fuse_in_header *in)
{
	struct fuse_init_out out = { .major = FUSE_KERNEL_VERSION, .minor = MINOR, .max_write = 4096, .time_gran = 1 };

	reply(fuse, in->unique, 0, &out, sizeof out);
}

static void on_lookup(int fuse, const struct fuse_in_header *in, const char *name, size_t length)
{
	if (in->nodeid != FUSE_ROOT_ID || length == 0 || name[length - 1] != 0) {
		reply(fuse, in->unique, ENOENT, NULL, 0);
		return;
	}
	for (uint64_t at = 0; at < FILE_COUNT; at++) {
		struct fuse_entry_out out = {
			.nodeid = FIRST_FILE + at, .entry_valid = FOREVER_S, .attr_valid = FOREVER_S, .attr = attributes_of(FIRST_FILE + at),
		};

		if (strcmp(FILES[at].name, name) != 0)
			continue;
		reply(fuse, in->unique, 0, &out, sizeof out);
		return;
	}
	reply(fuse, in->unique, ENOENT, NULL, 0);
}

static void on_getattr(int fuse, const struct fuse_in_header *in)
{
	struct fuse_attr_out out = { .attr_valid = FOREVER_S, .attr = attributes_of(in->nodeid) };

	reply(fuse, in->unique, 0, &out, sizeof out);
}

/* Every read reaches this program: nothing of what one sandbox was told may be kept for another. */
static void on_open(int fuse, const struct fuse_in_header *in)
{
	struct fuse_open_out out = { .open_flags = FOPEN_DIRECT_IO };

	reply(fuse, in->unique, 0, &out, sizeof out);
}

static void on_read(int fuse, const struct node *node, const struct fuse_in_header *in, const struct fuse_read_in *read)
{
	struct text text = { .bytes = text_bytes, .capacity = sizeof text_bytes };
	static struct sandbox sandbox;
	size_t length;
	int error;

	if (!is_file(in->nodeid)) {
		reply(fuse, in->unique, EISDIR, NULL, 0);
		return;
	}
	/*
	 * Reads for the page cache (splice, mmap) have no owner. What they got would be kept, and shown to other sandboxes: callers
	 * of sendfile(2) then read.
	 */
	if (!(read->read_flags & FUSE_READ_LOCKOWNER)) {
		reply(fuse, in->unique, EINVAL, NULL, 0);
		return;
	}
	error = caller_sandbox(node, in->pid, &sandbox);
	if (error != 0) {
		/* The numbers of the machine are for nobody here. */
		reply(fuse, in->unique, EACCES, NULL, 0);
		return;
	}
	FILES[in->nodeid - FIRST_FILE].make(node, &sandbox, &text);
	if (read->offset >= text.length) {
		reply(fuse, in->unique, 0, NULL, 0);
		return;
	}
	length = text.length - read->offset;
	reply(fuse, in->unique, 0, text.bytes + read->offset, length < read->size ? length : read->size);
}

static void on_statfs(int fuse, const struct fuse_in_header *in)
{
	struct fuse_statfs_out out = { .st = { .bsize = 4096, .frsize = 4096, .namelen = 255 } };

	reply(fuse, in->unique, 0, &out, sizeof out);
}

static void answer(const struct node *node, int fuse, const struct request_page *page, size_t length)
{
	const struct fuse_in_header *in = &page->header;
	size_t body = length - sizeof *in;

	switch (in->opcode) {
	case FUSE_INIT:
		on_init(fuse, in);
		break;
	case FUSE_LOOKUP:
		on_lookup(fuse, in, page->body.name, body < sizeof page->body.name ? body : sizeof page->body.name);
		break;
	case FUSE_GETATTR:
		on_getattr(fuse, in);
		break;
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		on_open(fuse, in);
		break;
	case FUSE_READ:
		on_read(fuse, node, in, &page->body.read);
		break;
	case FUSE_READDIR:
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
		reply(fuse, in->unique, 0, NULL, 0);
		break;
	case FUSE_STATFS:
		on_statfs(fuse, in);
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break;
	default:
		reply(fuse, in->unique, ENOSYS, NULL, 0);
	}
}

int serve(const struct node *node, int fuse, struct request_page *page)
{
	/* Whoever was here before died with this one in hand: a reader must not wait for it for ever. */
	if (page->header.unique != 0)
		reply(fuse, page->header.unique, EIO, NULL, 0);
	for (;;) {
		ssize_t got;

		page->header.unique = 0;
		got = read(fuse, page, sizeof *page);
		if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT))
			continue;
		/* Unmounted: nobody can see these files any more. */
		if (got < 0)
			return errno == ENODEV ? 0 : 1;
		if ((size_t)got < sizeof page->header)
			continue;
		/* SIGALRM ends the process: the node starts another one, which gives the request up. */
		alarm(ANSWER_S);
		answer(node, fuse, page, (size_t)got);
		alarm(0);
	}
}

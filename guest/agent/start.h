/* The body of a START frame: what to run, as tagged fields. */
#ifndef START_H
#define START_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Levels that one list can span: each keeps a directory open. */
#define LIST_DEPTH_LIMIT 64u

enum action {
	ACTION_EXEC = 1,
	ACTION_READ = 2,
	ACTION_WRITE = 3,
	ACTION_LIST = 4,
	ACTION_STAT = 5,
	ACTION_MKDIR = 6,
	ACTION_REMOVE = 7,
	ACTION_CHMOD = 8,
	ACTION_CHOWN = 9,
	ACTION_SYMLINK = 10,
	ACTION_MOVE = 11,
	ACTION_SESSION = 16, /* a shell that lines are given to */
	ACTION_LINE = 17,    /* a line for the shell of a session */
	/* Without a process: the agent does them itself. */
	ACTION_CONNECT = 20,
	ACTION_LISTENERS = 21,
	ACTION_READ_TREE = 12,
	ACTION_WRITE_TREE = 13,
	ACTION_WATCH = 14,
	ACTION_CELL = 24,        /* the place of one call of a function; see cell.h */
	ACTION_FORK_SERVER = 25, /* a program that makes those of cells */
};

enum start_tag {
	START_ACTION = 1,      /* u8 */
	START_USER = 2,        /* string */
	START_CWD = 3,         /* string */
	START_ENV = 4,         /* strings, NAME=value each */
	START_STDIN = 5,       /* u8: 1 when the edge will send input */
	START_TIME_LIMIT = 6,  /* u64 milliseconds */
	START_ARGV = 7,        /* strings */
	START_PATH = 8,        /* string, absolute */
	START_OFFSET = 9,      /* u64; of a cell: calls that its keeper serves */
	START_LENGTH = 10,     /* u64; of a cell: bytes that can be written in it */
	START_MODE = 11,       /* u32 */
	START_FLAG = 12,       /* u8: parents of what makes a name, recursive of remove, without hidden names of list,
	                          owners of write tree, recursive of watch, a cell whose program the fork server makes */
	START_TERMINAL = 13,   /* u16 rows, u16 columns */
	START_SESSION = 14,    /* u32, the session's task */
	START_PORT = 15,       /* u16, not zero: connect; listeners: wait until somebody listens there */
	START_TARGET = 16,     /* string: what a link says, where a move goes (absolute) */
	START_OWNER = 17,      /* string: as START_USER */
	START_DEPTH = 18,      /* u32: levels of a list, from 1 */
	START_KEEP = 19,       /* u8: a move replaces nothing */
	START_LINE = 28,       /* string */
	START_TAG_LIMIT = 29,
};

/* The size of a terminal in characters. No rows: no terminal. */
struct terminal_size {
	uint16_t rows, columns;
};

/* Texts point into the parsed body and end with a NUL there. `argv` and `env` are runs of such texts. */
struct start {
	uint8_t action;
	bool input;
	bool flag;
	struct terminal_size terminal;
	bool keep;
	uint16_t port; /* 0: none */
	uint32_t mode;
	uint32_t depth;
	uint64_t time_limit_ms; /* 0: none */
	uint64_t offset;
	uint64_t length; /* UINT64_MAX: to the end */
	uint32_t session;
	const char *user, *cwd, *path, *target, *owner, *line;
	const char *argv, *env;
	size_t argv_size, env_size;
};

/* What the agent does itself: no process, no body to keep. */
bool start_is_direct(uint8_t action);

/* 0, or -1 when the body breaks the rules of protocol/README.md. Reads nothing beyond `size` bytes. */
int start_parse(const uint8_t *body, size_t size, struct start *start);

/* Number of texts in a run. */
size_t texts_count(const char *texts, size_t size);

#endif

/* The frames between edge and agent: numbers, sizes, and the check of a header. ../protocol/README.md draws them all. */
#ifndef FRAME_H
#define FRAME_H

#include <stddef.h>
#include <stdint.h>

#define PROTOCOL_VERSION 1u

enum frame_type {
	/* edge to agent */
	FRAME_HELLO = 1,
	FRAME_PING = 2,
	FRAME_START = 3,
	FRAME_STDIN = 4,
	FRAME_STDIN_EOF = 5,
	FRAME_SIGNAL = 6,
	FRAME_ACK = 7,
	FRAME_FORGET = 8,
	FRAME_LIST = 9,
	FRAME_RESIZE = 10,
	FRAME_INPUT_ASK = 11,
	FRAME_EDGE_LIMIT = 32,
	/* agent to edge */
	FRAME_WELCOME = 64,
	FRAME_PONG = 65,
	FRAME_STARTED = 66,
	FRAME_START_FAILED = 67,
	FRAME_OUT = 68,
	FRAME_OUT_EOF = 69,
	FRAME_EXIT = 70,
	FRAME_STDIN_ACK = 71,
	FRAME_TASK = 72,
	FRAME_LIST_END = 73,
	FRAME_PROTOCOL_ERROR = 74,
	FRAME_INPUT_AT = 75,
};

/* The step of a start that failed: the flag of START_FAILED. */
enum stage {
	STAGE_REQUEST = 1, /* the START frame itself */
	STAGE_LIMIT = 2,   /* the agent has no record, descriptor or memory left for it */
	STAGE_CONFINE = 3, /* the spawner cannot enter the sandbox's cgroups or drop its rights */
	STAGE_SPAWN = 4,   /* no process could be made */
	STAGE_SETUP = 5,
	STAGE_USER = 6,
	STAGE_RLIMIT = 7,
	STAGE_CWD = 8,
	STAGE_EXEC = 9,
	STAGE_INTERPRETER = 10, /* the program exists, its interpreter does not */
	STAGE_DUPLICATE = 11,   /* the number is taken */
	STAGE_CONNECT = 12,     /* nobody takes connections at the port */
	STAGE_SESSION = 13,     /* the agent was given no shell (ENOENT), or the session of a line is none (ESRCH) */
	STAGE_CELL = 14,        /* no cell could be made */
};

/* Flags of STDIN_ACK. */
enum stdin_answer { STDIN_TAKEN = 0, STDIN_GAP = 1, STDIN_ABSENT = 2 };

#define FRAME_HEADER 12u
#define FRAME_LENGTH_FIELD 4u
/* Most bytes of a stream in one frame. */
#define DATA_LIMIT 65536u
/* A START carries argv and environment: the kernel takes 2 MiB of both by default. */
#define START_LIMIT (2u << 20)
#define OFFSET_FIELD 8u
/* STDIN_EOF at whatever offset the agent has reached. */
#define OFFSET_ANY UINT64_MAX

struct frame {
	uint8_t type, flag;
	uint32_t task;
	uint32_t size;
	const uint8_t *payload;
};

/*
 * Reads the header at the start of `bytes`. Returns the extent of the whole frame once FRAME_HEADER bytes are there, 0 before,
 * -1 when no edge of this protocol would send it. `frame->payload` is set whether or not the payload has arrived.
 */
int64_t frame_read(const uint8_t *bytes, size_t length, struct frame *frame);

/* Writes a header for `size` bytes of payload and returns where the payload goes. */
uint8_t *frame_write(uint8_t *at, uint8_t type, uint8_t flag, uint32_t task, uint32_t size);

#endif

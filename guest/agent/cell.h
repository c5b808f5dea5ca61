/*
 * A cell: the place where one call of a function runs, used once. Its keeper, which is this code, stays outside of it, and makes
 * one cell after the other, each for a user of its own.
 *
 *   edge ══ requests, results ══ agent ── pipes ──► keeper ──► init of the room: holds its namespaces, reaps
 *                                                     │  └────► program: the call, in the room's namespaces and the cell's cgroups
 *                                                     └── socket ──► fork server of the container, which may make the program instead
 *
 * Nothing of a cell is cleaned for the next call. Its files end with a file system of its own, its processes are killed by their
 * cgroup, and their end is seen before the result is sent. Its namespaces, the room, serve the next cell only when nothing in
 * them tells of this one: no process, no socket, no object of System V, no queue, not one packet that was counted. Its cgroups do
 * when no memory is counted but what the kernel keeps for itself.
 */
#ifndef CELL_H
#define CELL_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent.h"
#include "cell_request.h"
#include "start.h"
#include "user.h"

struct cell_cgroup {
	int parent, dir;
	bool first; /* cgroup v1 */
	/* Its files; -1: there is none. */
	int door, limit, swap, usage, peak, kills, pids, cpu, pressure, events, kill;
	uint64_t base_bytes, base_kills; /* from before the cell */
};

/* What is measured of a call, by its cgroup. */
struct cell_usage {
	uint64_t cpu_us, peak_bytes;
	bool out_of_memory;
};

struct cell {
	const struct options *options;
	uid_t uid;
	uint64_t calls_left; /* that the keeper may still serve, each as the next user */
	uint64_t space_bytes;
	const char *cwd;
	int self_fd; /* the keeper's own */
	int processors;
	struct cell_cgroup cgroups[CGROUP_LIMIT];
	int cgroup_count;
	char name[16];  /* of its cgroups */
	int space, work; /* the writable file system, and the directory in it that calls begin in */
	pid_t init; /* 0: there is no room */
	int init_fd, init_socket;
	pid_t program; /* 0: none, or the fork server's */
	int served;    /* the fork server's socket: it tells the program's end there; -1: none */
	int watch;     /* readable once the program has ended */
	int go;        /* the program that is there already waits for its words here; -1: it is started at the call */
	int ends[3];   /* our ends of the program's stdin, stdout, stderr */
	int program_ends[3];
};

/* cell.c: never returns. Descriptors 0 and 1 are the request and the result; `report` is closed when the cell is ready. */
_Noreturn void cell_main(const struct options *options, const struct start *start, const struct identity *identity, int report);

/* cell_room.c: 0 or an errno. */
/* Once for a container: places for what cells put there, and a root that nobody can write to. */
int cell_prepare_container(void);
/* A room that tells of nobody, the one before or a new one, and in it the space of the next cell. */
int cell_room_open(struct cell *cell);
/* Ends the room, and with it everything that is in it. */
int cell_room_close(struct cell *cell);
/* Enters the room's namespaces, all but that of processes. */
int cell_enter(const struct cell *cell);

/* cell_space.c: 0 or an errno. */
int cell_space_open(struct cell *cell);
int cell_space_close(struct cell *cell);

/* cell_traces.c */
/* What a new room looks like: asked from its namespace of objects and queues, with its /proc mounted. 0 or an errno. */
int cell_traces_learn(void);
void cell_traces_forget(void);
/* Whether it looks so still. */
bool cell_traces_none(void);

/* cell_cgroup.c: 0 or an errno. */
/* Those of the cell before, when they are as good as new. Nobody may be in them. */
int cell_cgroups_ready(struct cell *cell);
int cell_cgroups_limit(const struct cell *cell, const struct cell_limits *limits);
/* Moves the calling process in. */
int cell_cgroups_join(const struct cell *cell);
void cell_cgroups_measure(const struct cell *cell, const struct cell_limits *limits, struct cell_usage *usage);
/* Since the cgroups were made. */
uint64_t cell_cgroups_cpu_us(const struct cell *cell);
/* How long somebody in the cell could have run while no processor was free; 0 where the kernel does not tell. */
uint64_t cell_cgroups_stalled_us(const struct cell *cell);
/* Ends every process in them at once, those that are being born, too. False: this kernel cannot. */
bool cell_cgroups_kill(const struct cell *cell);
/* Waits until all that were killed have ended. */
int cell_cgroups_settle(const struct cell *cell);
/* Fails with EBUSY while any process is left in them: the proof that none is. */
int cell_cgroups_remove(struct cell *cell);

/* cell_program.c: 0 or an errno. */
int cell_open_ends(struct cell *cell);
/* Makes the program before its call: by a fork of the server, or by starting `start`'s own, which then waits. */
int cell_program_ready(struct cell *cell, const struct start *start);
/* The call begins. `unrunnable`: the error is that of the program itself. */
int cell_program_go(struct cell *cell, const struct cell_request *request, bool *unrunnable);
/* True: it has ended, with `status` as of wait(2). */
bool cell_program_ended(struct cell *cell, int *status);
/* Ends everything in the cell, and returns when nothing runs there any more. 0, or an errno. */
int cell_end(struct cell *cell);
/* Lets go of what leads to a program that has ended. */
void cell_forget(struct cell *cell);
/* Waits for the end of a child, whatever signal comes meanwhile: one that stops the call says nothing about its end. 0 or an errno. */
int process_collect(pid_t pid);

/* cell_pump.c: carries bytes and holds the limits until the program's end. */
enum cell_verdict { VERDICT_ENDED, VERDICT_CPU, VERDICT_WALL, VERDICT_OUTPUT, VERDICT_MEMORY, VERDICT_FAULT, VERDICT_UNRUNNABLE };
struct cell_outcome {
	uint8_t verdict; /* enum cell_verdict */
	bool ended;      /* everything that ran in the cell */
	int status;
	int error; /* why the program could not be run */
	uint64_t wall_us;
	struct cell_usage usage;
};
/* Returns how much of the input is still to be read from the edge. */
uint64_t cell_pump(struct cell *cell, const struct cell_request *request, struct cell_outcome *outcome);

/* cell_files.c: the files of a request, and those that it wants back. 0 or an errno. */
int cell_files_take(const struct cell *cell, const struct cell_request *request);
int cell_files_give(const struct cell *cell, const struct cell_request *request);

/* cell_wire.c: 0 or an errno. */
extern volatile sig_atomic_t cell_stopped; /* the edge gives the call up: the next wait ends */
int cell_read(void *bytes, size_t size);
/* Most bytes of a part. */
#define CELL_PIECE 65536u
enum cell_part { PART_STDOUT = 1, PART_STDERR = 2, PART_FILE = 3, PART_DATA = 4, PART_END = 5, PART_REFUSED = 6, PART_READY = 7 };
/* Adds a part to what is to be written; waits only where there is no room for it. */
int cell_send(uint8_t part, const void *bytes, uint32_t size);
/* Where the bytes of the next part may be put; NULL: something must be written first. */
uint8_t *cell_out_room(void);
/* What was put there becomes a part. */
void cell_out_add(uint8_t part, uint32_t size);
/* Writes what the stream takes now: 0 when that was all, EAGAIN when it was not. */
int cell_out_push(void);
/* Writes all there is; the stream must be a blocking one. */
int cell_out_flush(void);

#endif

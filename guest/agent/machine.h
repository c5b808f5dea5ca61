/*
 * The first process of a virtual machine: it makes of a bare kernel what a sandbox needs, and carries out what the node says on the
 * control port. The sandbox itself is made by the launcher of containers, which runs beside it: inside a machine a sandbox is as it is
 * on a host, and its agent is the same.
 *
 *   node ══ control port ══► machine ──► launcher ──► agent (process 1 of the sandbox)
 *     ╚════ agent's port ══► machine ══ socket ═══════════╝
 */
#ifndef MACHINE_H
#define MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest line of the node: a request of the launcher, two characters a byte, and some. */
#define LINE_LIMIT (160u * 1024)
/* Answers that wait for the port to take them. */
#define ANSWERS_LIMIT (16u * 1024)
#define NONCE_BYTES 32
/* The longest id of a line. */
#define LINE_ID_BYTES 32
#define BRIDGE_BYTES 65536u
/* Where the agent listens. */
#ifndef AGENT_SOCKET
#define AGENT_SOCKET "/run/agent.sock"
#endif

/* Bytes on their way, from a descriptor to another. */
struct flow {
	size_t from, to;
	uint8_t bytes[BRIDGE_BYTES];
};

/* What wakes the loop. */
enum machine_source { FROM_CONTROL, FROM_PORT, FROM_AGENT, FROM_CRADLE, FROM_FLUSH, SOURCES };

struct machine {
	bool guest; /* beside a system that is not ours: it has no launcher, and is never switched off from here */
	int epoll;
	int control; /* port of the node's lines */
	int port;    /* port of the agent's frames */
	int cradle;  /* socket of the launcher */
	int flush;   /* tells that the upper's disk has what was written, -1: nobody waits for that */
	int sandbox; /* process that is the agent, which a guest shares its namespaces with; 0: none yet */
	int resting; /* process that makes the sandbox smaller; 0: none has yet */
	int agent;   /* connection to the agent, -1: none */
	bool synchronised; /* the nonce of this connection has come */
	uint8_t nonce[NONCE_BYTES];
	struct flow in, out; /* towards the agent, towards the node */
	size_t line_length;
	bool line_skipped; /* it was too long: what is left of it goes, too */
	char line[LINE_LIMIT];
	char flush_id[LINE_ID_BYTES + 1]; /* of the line that asked for it */
	size_t answers_length;
	char answers[ANSWERS_LIMIT];
};

/* Never returns: the machine is switched off with it. */
_Noreturn void machine_main(void);
/*
 * The same as a service of any system: starts the agent, for the whole machine, and connects it with its port. `program` is what to start.
 * Ends when the agent does.
 */
_Noreturn void guest_main(const char *program);
/* Listens where the bridge connects, and starts the agent on that: its process. */
int guest_start_agent(const char *program);
/* Says why on the console and switches the machine off; as a guest, ends. */
_Noreturn void machine_end(const char *why, int error);
/* Has the loop look at a descriptor when something changes there. 0 or an errno. */
int machine_watch(int fd, enum machine_source source);
/* 0, or -1 with errno. */
int machine_write(const char *path, const char *text);

/* machine_boot.c: mounts, modules, root, cgroups. Ends the machine where it cannot. */
void machine_boot(void);

/* machine_disks.c: disks by their serial numbers. 0 or an errno. */
int disks_mount_layer(unsigned number, char *devices);
int disks_mount_upper(const char *device);
/* Begins to write what the upper holds in memory; `machine->flush` can be read when that is done. */
int disks_flush(struct machine *machine);
/* What came of it. */
int disks_flushed(struct machine *machine);
/* Nothing writes to the upper any more, and its disk is a whole file system without what lies in a journal. Who writes waits. */
int disks_lock(void);
int disks_unlock(void);

/* machine_launch.c */
void launch_start(struct machine *machine);
/* Has the launcher carry out a request, in hexadecimal. 0 or an errno; `step` is what failed. */
int launch_request(struct machine *machine, const char *hex, char *step, size_t size);
/* The launcher speaks: a sandbox whose agent has ended takes the machine with it. */
void launch_event(struct machine *machine);

/* machine_lines.c: reads what has come on the control port and answers every whole line. */
void lines_receive(struct machine *machine);
/* Answers the line that asked for a flush. */
void lines_flushed(struct machine *machine);
/* Gives the port what it takes of the answers. */
void lines_flush(struct machine *machine);
/* Says something that the node has not asked for. */
void lines_tell(struct machine *machine, const char *text);

/* Connects the agent's port with the agent, and watches. 0 or an errno. */
int machine_connect(struct machine *machine, const uint8_t nonce[NONCE_BYTES]);

/* machine_bridge.c */
/* Connects to the agent; what comes on the port before the nonce belongs to an earlier connection. 0 or an errno. */
int bridge_open(struct machine *machine, const uint8_t nonce[NONCE_BYTES]);
/* Has the agent of a sandbox that was copied take another boot id. 0 or an errno. */
int bridge_renew(void);
/* Moves what can be moved, both ways. */
void bridge_pump(struct machine *machine);

/*
 * machine_rest.c: begins to give up a part of the files that the kernel keeps in memory for the sandbox; says how many bytes those are. EBUSY: it does so already.
 * 0 or an errno.
 */
int rest_begin(struct machine *machine, unsigned long long *file_bytes);

/*
 * machine_kills.c: the first record of the kernel's log with a number above `after` that tells of a process which was killed for want of memory: microseconds
 * since boot now, and the record in hexadecimal. Empty: there is none. 0 or an errno.
 */
int kills_next(unsigned long long after, char *text, size_t size);

/* machine_identity.c: 0 or an errno. */
int identity_clock(const char *seconds);
int identity_seed(const char *hex);
/* Gives the sandbox whose agent is that process another host name, in its namespace and its files. `hosts` is its /etc/hosts in hexadecimal. */
int identity_name(int agent, const char *hostname, const char *hosts);

/*
 * machine_person.c: gives the sandbox of this machine a machine-id of its own and, where it was another one before, a boot id of the kernel's.
 * 0 or an errno.
 */
int identity_person(const struct machine *machine, bool was_another);

/* Exactly `size` bytes of hexadecimal digits. */
bool hex_read(const char *text, uint8_t *bytes, size_t size);

#endif

/*
 * The state of the agent: one thread, one loop, fixed tables. Everything that grows with a task is mapped when first needed and
 * unmapped after, so that an idle agent costs a few pages.
 *
 *   edge ══ connection ══► tasks ──► spawner ──► children (of the agent: it is their parent and reaps them)
 *                            ▲                      │ pipes: stdin, stdout, stderr, report
 *                            └──────────────────────┘
 */
#ifndef AGENT_H
#define AGENT_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "frame.h"
#include "list.h"
#include "start.h"

/* Unacknowledged bytes kept of each output stream; the writer waits when they are reached. Powers of two. */
#define OUTPUT_WINDOW (256u * 1024)
/* Bytes the edge may send beyond what a task's stdin has taken. */
#define INPUT_WINDOW (256u * 1024)
/* Tasks that run, or have ended and are not forgotten. */
#define TASK_LIMIT 1024
/* Of those, connections to ports and waits for them: they leave room for commands, whoever opens them. */
#define DIRECT_LIMIT (TASK_LIMIT / 2)
/* Bytes of START bodies held for tasks that have not started yet. */
#define WAITING_LIMIT (16u << 20)
/* One receive buffer: the largest frame but START, and room to batch small ones behind it. */
#define RECEIVE_CAPACITY (DATA_LIMIT + 8192u)
/* One send buffer: small frames wait here, and the unsent rest of a data frame. */
#define SEND_SMALL 8192u
#define SEND_CAPACITY (SEND_SMALL + FRAME_HEADER + OFFSET_FIELD + DATA_LIMIT)
/* No reply to a frame, and no control frame of a task, is larger. */
#define REPLY_ROOM 128u
#define CGROUP_LIMIT 16
#define RLIMIT_LIMIT 16
#define PROFILE_LIMIT 64
#define NEVER UINT64_MAX
/* Filters whose callers are answered: one for each spawner that was followed by another, and still has commands alive. */
#define NOTICES 8

enum { STDOUT, STDERR, STREAMS };

struct stream {
	struct link readable; /* on agent.readable while the pipe may hold bytes and the window has room */
	int fd;               /* -1: nobody in the sandbox holds the other end, or the task is not started */
	bool stalled;         /* the window was full when the pipe may have held bytes */
	bool hung_up;         /* nobody will write any more */
	bool terminal;        /* the master of a terminal: only a refused read says that it is empty */
	bool ended;           /* and everything was read */
	bool resumed; /* this connection has said from where it wants the stream */
	bool eof_sent;
	bool held; /* its end waits for that of the leader, or has done so */
	uint8_t *ring;
	uint64_t from, sent, to; /* acknowledged, handed to this connection, read from the pipe */
	uint64_t mark;           /* what the leader's end must wait for, once it has ended */
};

struct input {
	int fd;     /* -1: none, closed or nobody reads any more */
	int marker; /* write tasks: a byte here says that the input is whole */
	uint8_t *ring;
	uint64_t received, written;
	bool absent; /* the task has no stdin */
	bool terminal;
	bool in_line; /* of a terminal: the last byte it took was no newline */
	int error;   /* of the write after which nobody reads any more */
	bool socket; /* its end is told by shutdown: the reading half lives on */
	bool closing;
	bool answer_due;
	uint8_t answer; /* enum stdin_answer */
};

/* What the shell opens for a line, in the order in which it is passed; the input may be missing. */
enum line_end { LINE_TEXT, LINE_OUT, LINE_ERR, LINE_INPUT, LINE_ENDS };

enum task_state { TASK_FREE, TASK_WAITING, TASK_CONNECTING, TASK_FAILED, TASK_RUNNING, TASK_ENDED };
enum cause {
	CAUSE_EXITED = 0,
	CAUSE_SIGNALED = 1,
	CAUSE_TIMEOUT = 2,
	CAUSE_SESSION_ENDED = 3, /* of a line: its session ended before it ran */
	CAUSE_LIVE = 255,
};
/* Beside a cause: the session ended together with the line. */
#define CAUSE_WITH_SESSION 0x40

struct ending {
	uint8_t cause;
	int32_t value; /* exit code, or minus the signal */
	uint64_t wall_us, cpu_us, max_rss_kib;
};

struct task {
	struct link due;     /* on agent.due while there may be something to send */
	struct link waiting; /* on agent.waiting until the spawner has it */
	enum task_state state;
	uint32_t number;
	uint32_t generation; /* of the slot: tells late events of an earlier task apart */
	uint32_t session;    /* the connection that started it */
	pid_t pid;           /* 0 until reported */
	int report;          /* read end: pid, then a failure, then end of file at exec */
	uint8_t failed_stage;
	int32_t failed_errno;
	uint8_t tries;
	uint8_t action;
	struct terminal_size terminal;
	uint16_t port;
	bool second_address; /* a connect to ::1, after 127.0.0.1 refused */
	bool forgotten; /* only its process is left, to be reaped */
	bool started_due;
	bool exit_sent;
	bool timed_out;
	bool reaped; /* its pid is no longer its own */
	uint8_t *body; /* the START body, until the task has started */
	uint32_t body_size;
	uint64_t time_limit_us;
	uint64_t began_us;
	uint64_t deadline_us;
	struct stream streams[STREAMS];
	struct input input;
	struct ending ending;
	struct session *shell; /* of a session: its own; of a line: the one that it is given to, until the line has ended */
	struct link queued;    /* of a line: on the session's lines until the shell has it */
	int line_ends[LINE_ENDS];
	uint32_t line_size; /* of its text, against WAITING_LIMIT while it waits */
};

struct connection {
	int fd; /* -1: none */
	bool greeted;
	bool readable, writable;
	bool paused; /* a frame waits for room for its reply */
	bool list_due;
	uint32_t list_at;
	uint8_t *big; /* a START larger than the receive buffer, being received */
	size_t big_size, big_length;
	size_t receive_length;
	size_t send_head, send_tail;
};

struct spawner {
	int fd;
	pid_t pid; /* 0: none */
	bool writable;
	uint8_t failures; /* in a row: each doubles the pause before the next */
	uint64_t born_us;
	uint64_t retry_us;
};

struct rlimit_setting {
	int resource;
	struct rlimit value;
};

struct options {
	bool blank; /* what follows comes later, from the launcher */
	int cgroups;
	int cells; /* directories of cgroups behind those of `cgroups`: the container runs functions */
	char profile[PROFILE_LIMIT + 1]; /* of AppArmor, for all but the agent; empty: none */
	bool whole; /* the machine is the sandbox: what runs keeps all rights */
	int shell; /* descriptor of the program that sessions run; 0: none */
	int rlimits;
	struct rlimit_setting rlimit[RLIMIT_LIMIT];
	/* What commands start on; none set: wherever the agent may run. */
	cpu_set_t processors;
	/* What commands inherit: the agent raises its own. */
	struct rlimit nofile;
};

struct agent {
	struct options options;
	int epoll, signals;
	bool init; /* pid 1 of a sandbox */
	bool children_due;
	uint8_t boot_id[16];
	uint32_t session;
	uint64_t now_us;
	uint64_t timer_us; /* no timer is due before */
	uint64_t look_us;  /* when to look for listeners again; NEVER: nobody waits for one */
	uint64_t tidy_us;  /* when to give unused memory back */
	size_t waiting_bytes;
	uint32_t starting; /* tasks in state TASK_WAITING */
	uint32_t slots;    /* slots ever used */
	struct spawner spawner;
	int notices[NOTICES]; /* listeners of filters, -1: none */
	int notices_next;
	struct connection connection;
	struct link readable, due, waiting;
	struct link held; /* streams at their end, until that of their leaders or held_us */
	uint64_t held_us;
	/* Beside the tasks, so that a search touches little memory. */
	uint32_t numbers[TASK_LIMIT];
	pid_t pids[TASK_LIMIT];
	struct task tasks[TASK_LIMIT];
	uint8_t receive[RECEIVE_CAPACITY];
	uint8_t send[SEND_CAPACITY];
};

/* What an epoll event is about; packed with the slot and its generation. */
enum source {
	ON_LISTENER,
	ON_CONNECTION,
	ON_SIGNALS,
	ON_SPAWNER,
	ON_REPORT,
	ON_INPUT,
	ON_STDOUT,
	ON_STDERR,
	ON_BLANK,
	ON_SESSION,
	ON_NOTICE,
};

/* agent.c */
void agent_watch(struct agent *agent, int fd, uint32_t events, enum source source, const struct task *task);
uint64_t monotonic_us(void);
void agent_timer(struct agent *agent, uint64_t at_us);
/* Gives back the buffers of the connection, with what passed through them. */
void agent_drop_buffers(struct agent *agent);
/* Zeroed, and not inherited by other processes. */
void *pages_map(size_t size);
void pages_unmap(void *pages, size_t size);
void close_fd(int *fd);
/* A network namespace starts with its loopback down. False: it stays so. */
bool loopback_raise(void);
/* A small file of the kernel, read at once and ended by a zero. False: nothing could be read. */
bool read_text(const char *path, char *text, size_t size);

/* connection.c */
void connection_accept(struct agent *agent);
void connection_receive(struct agent *agent);
void connection_drop(struct agent *agent);
/* Sends what is due until nothing is or the socket is full. */
void connection_pump(struct agent *agent);
/* Room for one small frame with `size` bytes of payload, or NULL: the caller stays due. */
uint8_t *connection_frame(struct agent *agent, uint8_t type, uint8_t flag, uint32_t task, uint32_t size);
/* True when work is left that needs no event. */
bool connection_busy(const struct agent *agent);

/* emit.c */
enum emitted { EMITTED_ALL, EMITTED_MORE, EMITTED_BLOCKED };
enum emitted task_emit(struct agent *agent, struct task *task);
/* A list was asked for and can be given. */
bool list_ready(const struct agent *agent);
enum emitted list_emit(struct agent *agent);

/* data.c */
/* Sends one OUT frame straight from the ring. False: the socket is full, nothing was taken. */
bool connection_send_data(struct agent *agent, struct task *task, int which, uint32_t size);
bool connection_flush(struct agent *agent);

/* task.c */
struct task *task_find(struct agent *agent, uint32_t number);
void task_start(struct agent *agent, const struct frame *frame);
void task_signal(struct agent *agent, struct task *task, int signal, bool group);
void task_forget(struct agent *agent, struct task *task);
void task_free(struct agent *agent, struct task *task);
void task_due(struct agent *agent, struct task *task);
void task_fail(struct agent *agent, struct task *task, uint8_t stage, int32_t error);
void task_reported(struct agent *agent, struct task *task);
/* A start that does not get on, its child stopped by root of the sandbox, say: ended, or begun again when nothing was done. */
void task_stuck(struct agent *agent, struct task *task);
/* A line, which no process of its own stands for, was taken on. */
void task_begun(struct agent *agent, struct task *task, pid_t pid);
void start_failed(struct agent *agent, uint32_t number, uint8_t stage, int32_t error);
/* The task has ended with what `ending` says. */
void task_finish(struct agent *agent, struct task *task);
/* Collects ended children, at most a batch; sets children_due again when there may be more. */
void tasks_reap(struct agent *agent);
void tasks_expire(struct agent *agent);
/* Forgets what was said on the connection that is gone. */
void tasks_detach(struct agent *agent);

/* stream.c */
void stream_read(struct agent *agent, struct task *task, struct stream *stream);
void stream_event(struct agent *agent, struct stream *stream, bool hung_up);
/* False: the offset is not the edge's to acknowledge. */
bool stream_acknowledge(struct agent *agent, struct task *task, int which, uint64_t offset);
void stream_close(struct stream *stream);
/* What is in the pipe now, the end of the leader must wait for. */
void stream_leader_ended(struct agent *agent, struct stream *stream);
/* Streams whose end has waited long enough are read to it. */
void streams_release(struct agent *agent);
bool input_take(struct agent *agent, struct task *task, uint64_t offset, const uint8_t *bytes, uint32_t size);
void input_finish(struct agent *agent, struct task *task, uint64_t offset);
void input_drain(struct agent *agent, struct task *task);
void input_close(struct input *input);
/* Says how much input has arrived, for whoever takes it over. */
void input_tell(struct agent *agent, const struct task *task);

/* terminal.c */
/* Opens the master of a new terminal of that size, and its other end. 0 or an errno. */
int terminal_open(struct terminal_size size, int *master, int *slave);
void terminal_resize(struct task *task, struct terminal_size size);
/* Types the end of input, where the terminal has one. False: it has no room for it now. */
bool terminal_end_input(struct input *input);

/* port.c */
void port_connect(struct agent *agent, struct task *task);
/* The socket of a connecting task has an answer. */
void port_answered(struct agent *agent, struct task *task);
void port_expired(struct agent *agent, struct task *task);
/* Reading failed: what was not read is lost, and whoever reads must not take that for an end. */
void port_broke(struct agent *agent, struct task *task, int error);
/* Ends the task once both halves are closed. */
void port_settle(struct agent *agent, struct task *task);
/* The edge has left in the middle: the other side hears of a reset, not of an end. */
void port_abort(struct task *task);

/* notices.c */
/* Takes over the listener of a filter: answers those who call what the filter tells of. */
void notices_add(struct agent *agent, int listener);
void notices_event(struct agent *agent, uint32_t slot, uint32_t events);

/* listeners.c */
void listeners_start(struct agent *agent, struct task *task);
void listeners_look(struct agent *agent);
/* session.c */
/* Makes the agent's side of a session that is about to start; `runner` is its end of the socket. False: no memory. */
bool session_open(struct agent *agent, struct task *task, int runner);
/* Hears what the runner says. */
void session_event(struct agent *agent, struct task *task);
/* The runner was reaped: everything that waits for it ends. */
void session_gone(struct agent *agent, struct task *task);
/* Ends it and everything that it started, which takes a while: the runner goes last. */
void session_end(struct agent *agent, struct task *task);
/* The work of a session that has a time: killing what is left. */
void session_expire(struct agent *agent, struct task *task);
void session_release(struct task *task);

/* line.c */
/* Takes a line on: it is given to its shell when the lines before it have ended. 0, or the stage that fails, with errno. */
uint8_t line_accept(struct agent *agent, struct task *task, const struct start *start);
/* The next line of a session that has none, if it can take one. */
void line_advance(struct agent *agent, struct session *session);
void line_end(struct agent *agent, struct task *task, uint8_t cause, int32_t value);
void line_signal(struct agent *agent, struct task *task, int signal);
/* Its time is over, now or since a while. */
void line_expire(struct agent *agent, struct task *task);
void line_forget(struct agent *agent, struct task *task);
void line_release(struct agent *agent, struct task *task);

/* launch.c */
void spawner_start(struct agent *agent);
void spawner_event(struct agent *agent);
/* The spawner is dead: starts it never carried out go to the next one. */
void spawner_gone(struct agent *agent);
/* Hands waiting tasks to the spawner while it takes them. */
void spawner_feed(struct agent *agent);
void spawner_check(struct agent *agent);

#endif

/* What the agent and a runner say to each other, and the agent's side of a session. */
#ifndef SESSION_H
#define SESSION_H

#include "agent.h"

/* Children that are remembered, of a session when its line began and of its shell when that was interrupted: more are not told apart from those that came later. */
#define OLDER_LIMIT 1024

/* To the runner, with the descriptors of a line. */
struct line_message {
	uint32_t sequence;
	uint32_t passed; /* a bit for each line_end */
};

/* From the runner. The session's user may look into it and forge: it can only say about its own session. */
enum runner_says {
	RUNNER_READY = 1, /* value: the pid of the shell */
	RUNNER_DONE = 2,  /* value: the status of the line; of none, number 0: the shell takes lines from now on */
	RUNNER_OVER = 3,  /* the shell has ended. value: its exit code, or minus the signal */
};

struct runner_message {
	uint32_t type;
	uint32_t sequence;
	int32_t value;
};

struct session {
	struct task *task; /* of the session itself */
	int runner;
	pid_t shell;    /* 0 until the runner has said it */
	int shell_fd;   /* the same as a descriptor: its number may become somebody else's */
	struct link lines;
	struct task *current; /* the line that the shell has */
	uint32_t sequence;
	bool open;   /* the shell takes lines */
	bool over;   /* no line begins any more */
	bool ending; /* what it started is being killed */
	uint32_t passes;
	uint64_t cpu_us;    /* of the shell when its line began */
	uint64_t late_us;   /* when a line that does not come back ends the session */
	pid_t older[OLDER_LIMIT];
	size_t older_count;
	/* A line that was interrupted: until when its shell is told so again, and the children that it had when it was told first. */
	uint64_t told_us;
	pid_t told[OLDER_LIMIT];
	size_t told_count;
};

void session_signal_shell(const struct session *session, int signal);

/*
 * Makes the shell return from the line that it runs, as soon as no process holds it: a real-time signal, by its number,
 * because C libraries count them from different ones.
 */
#define GIVE_UP 41
void session_give_up(const struct agent *agent, const struct session *session);
/* False: a line has put another program in its place. */
bool session_has_shell(const struct agent *agent, const struct session *session);

/* runner.c: becomes the shell's parent. `control` and `shell` are as the numbers say, 0 to 2 the streams, 3 the report. */
#define RUNNER_CONTROL 4
#define RUNNER_SHELL 5
struct start;
struct identity;
_Noreturn void runner_main(const struct start *start, const struct identity *identity, int report);

#endif

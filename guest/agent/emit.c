/* What there is to say about a task, and in which order: STARTED, output, ends of streams, EXIT. */
#include "agent.h"
#include "bytes.h"

/* Output up to this size is copied beside other small frames: one system call for several. */
#define SMALL_OUTPUT 4096u
#define ENDING_SIZE 28u
#define REPORT_SIZE 36u

static void put_ending(uint8_t *at, const struct ending *ending) {
	put32(at, (uint32_t)ending->value);
	put64(at + 4, ending->wall_us);
	put64(at + 12, ending->cpu_us);
	put64(at + 20, ending->max_rss_kib);
}

static bool emit_started(struct agent *agent, struct task *task) {
	uint8_t *at = connection_frame(agent, FRAME_STARTED, 0, task->number, 4);
	if (at == NULL) return false;
	put32(at, (uint32_t)task->pid);
	task->started_due = false;
	return true;
}

/* The last that is said of the task: its record goes. */
static bool emit_failure(struct agent *agent, struct task *task) {
	uint8_t *at = connection_frame(agent, FRAME_START_FAILED, task->failed_stage, task->number, 4);
	if (at == NULL) return false;
	put32(at, (uint32_t)task->failed_errno);
	task_free(agent, task);
	return true;
}

static bool emit_answer(struct agent *agent, struct task *task) {
	uint8_t *at = connection_frame(agent, FRAME_STDIN_ACK, task->input.answer, task->number, 8);
	if (at == NULL) return false;
	put64(at, task->input.written);
	task->input.answer_due = false;
	task->input.answer = STDIN_TAKEN;
	return true;
}

static bool emit_small(struct agent *agent, struct task *task, int which, uint32_t size) {
	struct stream *stream = &task->streams[which];
	uint8_t *at = connection_frame(agent, FRAME_OUT, (uint8_t)which, task->number, OFFSET_FIELD + size);
	if (at == NULL) return false;
	put64(at, stream->sent);
	size_t begin = stream->sent % OUTPUT_WINDOW;
	size_t first = size < OUTPUT_WINDOW - begin ? size : OUTPUT_WINDOW - begin;
	memcpy(at + OFFSET_FIELD, stream->ring + begin, first);
	memcpy(at + OFFSET_FIELD + first, stream->ring, size - first);
	stream->sent += size;
	return true;
}

static enum emitted emit_stream(struct agent *agent, struct task *task, int which) {
	struct stream *stream = &task->streams[which];
	if (!stream->resumed) return EMITTED_ALL;
	if (stream->sent < stream->to) {
		uint64_t held = stream->to - stream->sent;
		uint32_t size = held < DATA_LIMIT ? (uint32_t)held : DATA_LIMIT;
		bool taken = size <= SMALL_OUTPUT ? emit_small(agent, task, which, size)
						  : connection_send_data(agent, task, which, size);
		if (!taken) return EMITTED_BLOCKED;
	}
	if (stream->sent < stream->to) return EMITTED_MORE;
	if (stream->ended && !stream->eof_sent) {
		uint8_t *at = connection_frame(agent, FRAME_OUT_EOF, (uint8_t)which, task->number, OFFSET_FIELD);
		if (at == NULL) return EMITTED_BLOCKED;
		put64(at, stream->to);
		stream->eof_sent = true;
	}
	return EMITTED_ALL;
}

/* The end comes after everything that was in the pipes when the leader ended; later output of others does not hold it. */
static bool ending_due(const struct task *task) {
	if (task->state != TASK_ENDED || task->exit_sent) return false;
	for (int i = 0; i < STREAMS; i++) {
		const struct stream *stream = &task->streams[i];
		if (!stream->resumed || stream->sent < stream->mark) return false;
	}
	return true;
}

enum emitted task_emit(struct agent *agent, struct task *task) {
	if (task->state == TASK_FAILED) return emit_failure(agent, task) ? EMITTED_ALL : EMITTED_BLOCKED;
	if (task->input.answer_due && !emit_answer(agent, task)) return EMITTED_BLOCKED;
	if (task->state != TASK_RUNNING && task->state != TASK_ENDED) return EMITTED_ALL;
	if (task->started_due && !emit_started(agent, task)) return EMITTED_BLOCKED;
	enum emitted result = EMITTED_ALL;
	for (int i = 0; i < STREAMS; i++) {
		enum emitted emitted = emit_stream(agent, task, i);
		if (emitted == EMITTED_BLOCKED) return EMITTED_BLOCKED;
		if (emitted == EMITTED_MORE) result = EMITTED_MORE;
	}
	if (ending_due(task)) {
		uint8_t *at = connection_frame(agent, FRAME_EXIT, task->ending.cause, task->number, ENDING_SIZE);
		if (at == NULL) return EMITTED_BLOCKED;
		put_ending(at, &task->ending);
		task->exit_sent = true;
	}
	return result;
}

static bool emit_report(struct agent *agent, const struct task *task) {
	bool ended = task->state == TASK_ENDED;
	uint8_t cause = ended ? task->ending.cause : CAUSE_LIVE;
	uint8_t *at = connection_frame(agent, FRAME_TASK, cause, task->number, REPORT_SIZE + ENDING_SIZE);
	if (at == NULL) return false;
	put32(at, (uint32_t)task->pid);
	put64(at + 4, task->streams[STDOUT].from);
	put64(at + 12, task->streams[STDOUT].to);
	put64(at + 20, task->streams[STDERR].from);
	put64(at + 28, task->streams[STDERR].to);
	put_ending(at + REPORT_SIZE, &task->ending);
	return true;
}

/* True while a start of an earlier connection is under way: whether it came to be is what a new edge asks. */
static bool undecided(const struct agent *agent) {
	for (uint32_t slot = 0; agent->starting > 0 && slot < agent->slots; slot++) {
		const struct task *task = &agent->tasks[slot];
		if (task->state == TASK_WAITING && !task->forgotten && task->session != agent->session) return true;
	}
	return false;
}

enum emitted list_emit(struct agent *agent) {
	struct connection *c = &agent->connection;
	for (; c->list_at < agent->slots; c->list_at++) {
		const struct task *task = &agent->tasks[c->list_at];
		if (task->forgotten || (task->state != TASK_RUNNING && task->state != TASK_ENDED)) continue;
		if (!emit_report(agent, task)) return EMITTED_BLOCKED;
	}
	if (connection_frame(agent, FRAME_LIST_END, 0, 0, 0) == NULL) return EMITTED_BLOCKED;
	c->list_due = false;
	return EMITTED_ALL;
}

bool list_ready(const struct agent *agent) { return agent->connection.list_due && !undecided(agent); }

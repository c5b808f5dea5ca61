/* While a call runs: its input, its outputs up to their limit, its time. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "bytes.h"
#include "cell.h"

#define PIECE CELL_PIECE
/* How often processor time is looked at, at least and at most. */
#define LOOK_MIN_US 2000u
#define LOOK_MAX_US 100000u

enum { AT_REQUEST, AT_RESULT, AT_STDIN, AT_STDOUT, AT_STDERR, AT_END, POLLED };

struct pump {
	struct cell *cell;
	const struct cell_request *request;
	uint64_t input_left;          /* still to come from the edge */
	uint32_t input_at, input_end; /* in `input`: what the program has not taken */
	uint64_t sent[2];
	uint64_t base_cpu_us, began_us, look_us;
	/* Of the time since `began_us`: no processor was free; the edge had not sent what the program waited for, or not taken what it wrote. */
	uint64_t base_stalled_us, stalled_us, owed_us;
	uint8_t verdict;
	uint8_t input[PIECE];
};

static struct pump pump;

static void finish_input(struct pump *p) {
	if (p->input_left == 0 && p->input_at == p->input_end) close_fd(&p->cell->ends[0]);
}

static void feed(struct pump *p) {
	ssize_t wrote = write(p->cell->ends[0], p->input + p->input_at, p->input_end - p->input_at);
	if (wrote < 0 && errno != EAGAIN && errno != EINTR) {
		/* Nobody reads any more: the rest is nobody's. */
		close_fd(&p->cell->ends[0]);
		p->input_at = p->input_end = 0;
		return;
	}
	if (wrote > 0) p->input_at += (uint32_t)wrote;
	finish_input(p);
}

static void fetch(struct pump *p) {
	size_t most = p->input_left < PIECE ? (size_t)p->input_left : PIECE;
	ssize_t got = read(0, p->input, most);
	if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
	if (got <= 0) {
		p->verdict = VERDICT_FAULT;
		return;
	}
	p->input_left -= (uint64_t)got;
	p->input_at = 0;
	p->input_end = (uint32_t)got;
	feed(p);
}

/* Room for results, for whatever the stream to the edge does not take now. */
static void push_result(struct pump *p) {
	int error = cell_out_push();
	if (error != 0 && error != EAGAIN) p->verdict = VERDICT_FAULT;
}

/* False: there is nothing to read now. Cuts exactly at the limit. */
static bool collect(struct pump *p, int which) {
	int *fd = &p->cell->ends[1 + which];
	ssize_t got = read(*fd, cell_out_room(), PIECE);
	if (got < 0) return false;
	if (got == 0) {
		close_fd(fd);
		return false;
	}
	uint64_t room = p->request->limits.output_bytes - p->sent[which];
	if ((uint64_t)got > room) {
		if (p->verdict == VERDICT_ENDED) p->verdict = VERDICT_OUTPUT;
		got = (ssize_t)room;
	}
	if (got == 0) return false;
	p->sent[which] += (uint64_t)got;
	cell_out_add(which == 0 ? PART_STDOUT : PART_STDERR, (uint32_t)got);
	return true;
}

static uint64_t processor_time(const struct pump *p) {
	uint64_t cpu_us = cell_cgroups_cpu_us(p->cell);
	return cpu_us > p->base_cpu_us ? cpu_us - p->base_cpu_us : 0;
}

/* The kernel settles its count of stalls late: some of it may be from before the call. */
static uint64_t waited_us(const struct pump *p, uint64_t now_us) {
	uint64_t passed_us = now_us - p->began_us, ours_us = p->stalled_us + p->owed_us;
	return passed_us > ours_us ? passed_us - ours_us : 0;
}

/* Milliseconds until the next look: no sooner than the limit could be reached on all processors. */
static int watch_time(struct pump *p) {
	uint64_t now_us = monotonic_us(), wall_us = waited_us(p, now_us);
	const struct cell_limits *limits = &p->request->limits;
	if (now_us >= p->look_us || wall_us >= limits->wall_us) {
		/* Whoever waits for a processor is not who waits. */
		p->stalled_us = cell_cgroups_stalled_us(p->cell) - p->base_stalled_us;
		wall_us = waited_us(p, now_us);
		if (wall_us >= limits->wall_us) p->verdict = VERDICT_WALL;
		uint64_t used_us = processor_time(p);
		if (used_us >= limits->cpu_us) p->verdict = VERDICT_CPU;
		uint64_t left_us = used_us < limits->cpu_us ? (limits->cpu_us - used_us) / (uint64_t)p->cell->processors : 0;
		p->look_us = now_us + (left_us < LOOK_MIN_US ? LOOK_MIN_US : left_us > LOOK_MAX_US ? LOOK_MAX_US : left_us);
	}
	uint64_t wake_us = p->look_us - now_us, end_us = wall_us < limits->wall_us ? limits->wall_us - wall_us : 0;
	return (int)((wake_us < end_us ? wake_us : end_us) / 1000u) + 1;
}

static void choose(const struct pump *p, struct pollfd polled[POLLED]) {
	const struct cell *cell = p->cell;
	bool hungry = p->input_at == p->input_end, idle = cell_out_room() != NULL;
	polled[AT_REQUEST] = (struct pollfd){cell->ends[0] >= 0 && hungry && p->input_left > 0 ? 0 : -1, POLLIN, 0};
	polled[AT_RESULT] = (struct pollfd){1, idle ? 0 : POLLOUT, 0};
	polled[AT_STDIN] = (struct pollfd){hungry ? -1 : cell->ends[0], POLLOUT, 0};
	polled[AT_STDOUT] = (struct pollfd){idle ? cell->ends[1] : -1, POLLIN, 0};
	polled[AT_STDERR] = (struct pollfd){idle ? cell->ends[2] : -1, POLLIN, 0};
	polled[AT_END] = (struct pollfd){cell->watch, POLLIN, 0};
}

static void turn(struct pump *p, int timeout_ms) {
	struct pollfd polled[POLLED];
	choose(p, polled);
	uint64_t began_us = monotonic_us();
	int count = poll(polled, POLLED, timeout_ms);
	if (polled[AT_REQUEST].fd >= 0 || polled[AT_RESULT].events != 0) p->owed_us += monotonic_us() - began_us;
	if (count <= 0) return;
	if (polled[AT_RESULT].revents & POLLERR) p->verdict = VERDICT_FAULT;
	if (polled[AT_RESULT].revents & POLLOUT) push_result(p);
	if (polled[AT_STDIN].revents != 0) feed(p);
	if (polled[AT_REQUEST].revents != 0) fetch(p);
	for (int which = 0; which < 2; which++) {
		if (polled[AT_STDOUT + which].revents != 0 && cell_out_room() != NULL) collect(p, which);
	}
}

/* What is in the pipes when nobody is left who could write more. */
static void drain(struct pump *p) {
	fcntl(1, F_SETFL, fcntl(1, F_GETFL) & ~O_NONBLOCK);
	for (int which = 0; which < 2; which++) {
		do {
			if (cell_out_room() == NULL && cell_out_flush() != 0) p->verdict = VERDICT_FAULT;
		} while (p->cell->ends[1 + which] >= 0 && p->verdict != VERDICT_FAULT && collect(p, which));
	}
}

static void reset(struct pump *p, struct cell *cell, const struct cell_request *request) {
	p->cell = cell;
	p->request = request;
	p->input_left = request->input_bytes;
	p->input_at = p->input_end = 0;
	p->sent[0] = p->sent[1] = 0;
	p->look_us = p->stalled_us = p->owed_us = 0;
	p->base_cpu_us = cell_cgroups_cpu_us(cell);
	p->base_stalled_us = cell_cgroups_stalled_us(cell);
	p->began_us = monotonic_us();
}

uint64_t cell_pump(struct cell *cell, const struct cell_request *request, struct cell_outcome *outcome) {
	struct pump *p = &pump;
	*outcome = (struct cell_outcome){.status = 0};
	reset(p, cell, request);
	bool unrunnable = false;
	outcome->error = cell_program_go(cell, request, &unrunnable);
	p->verdict = outcome->error == 0 ? VERDICT_ENDED : unrunnable ? VERDICT_UNRUNNABLE : VERDICT_FAULT;
	finish_input(p);
	fcntl(1, F_SETFL, fcntl(1, F_GETFL) | O_NONBLOCK);
	bool ended = false;
	while (p->verdict == VERDICT_ENDED && !ended) {
		int timeout_ms = watch_time(p);
		if (p->verdict != VERDICT_ENDED) break;
		turn(p, timeout_ms);
		ended = cell_program_ended(cell, &outcome->status);
		if (cell_stopped) p->verdict = VERDICT_FAULT;
	}
	outcome->wall_us = monotonic_us() - p->began_us;
	if (!ended) outcome->status = SIGKILL;
	outcome->ended = cell_end(cell) == 0;
	if (!outcome->ended) p->verdict = VERDICT_FAULT;
	drain(p);
	cell_cgroups_measure(cell, &request->limits, &outcome->usage);
	outcome->usage.cpu_us -= p->base_cpu_us < outcome->usage.cpu_us ? p->base_cpu_us : outcome->usage.cpu_us;
	outcome->verdict = p->verdict;
	if (p->verdict == VERDICT_FAULT || p->verdict == VERDICT_UNRUNNABLE) return p->input_left;
	/* Who had used up its time reached other limits only because it was not seen at once: how soon it is must not decide. */
	if (outcome->usage.cpu_us > request->limits.cpu_us) outcome->verdict = VERDICT_CPU;
	else if (outcome->usage.out_of_memory) outcome->verdict = VERDICT_MEMORY;
	return p->input_left;
}

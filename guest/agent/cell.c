/* The keeper of a cell, from an empty room to the result of one call. */
#include "cell.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bytes.h"
#include "spawner.h"

#define END_BYTES 36u
/* The container is not what it was: it must not be used again. */
#define EXIT_UNCLEAN 70

/* Ends what there is, and says whether nothing of it is left. */
static bool leave(struct cell *cell) {
	bool ended = cell_end(cell) == 0;
	return cell_cgroups_remove(cell) == 0 && ended;
}

static _Noreturn void fail(struct cell *cell, int report, int error) {
	struct report message = {.stage = STAGE_CELL, .value = error};
	leave(cell);
	ssize_t ignored = write(report, &message, sizeof message);
	(void)ignored;
	_exit(127);
}

/* The words stay mapped until they are forgotten. */
static int take_request(const struct cell *cell, struct cell_request *request) {
	uint8_t head[CELL_HEAD];
	int error = cell_read(head, sizeof head);
	if (error != 0) return error;
	if (cell_head_parse(head, request) != 0) return EINVAL;
	uint32_t size = request->argv_size + request->env_size + request->wanted_size;
	/* The program's first steps read them, so they must be there after a fork. */
	char *texts = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (texts == MAP_FAILED) return ENOMEM;
	error = cell_read(texts, size);
	if (error == 0 && cell_texts_parse(texts, request) != 0) error = EINVAL;
	if (error == 0) error = cell_cgroups_limit(cell, &request->limits);
	return error == 0 ? cell_files_take(cell, request) : error;
}

static void send_end(const struct cell_outcome *outcome, bool clean) {
	uint8_t end[END_BYTES] = {outcome->verdict, clean};
	put32(end + 4, (uint32_t)outcome->status);
	put64(end + 8, outcome->wall_us);
	put64(end + 16, outcome->usage.cpu_us);
	put64(end + 24, outcome->usage.peak_bytes);
	put32(end + 32, (uint32_t)outcome->error);
	cell_send(PART_END, end, sizeof end);
	cell_out_flush();
}

static void refuse(int error) {
	uint8_t number[4];
	put32(number, (uint32_t)error);
	cell_send(PART_REFUSED, number, sizeof number);
	cell_out_flush();
}

/* What the program did not want to read. */
static int skip(uint64_t size) {
	static uint8_t piece[65536];
	int error = 0;
	for (uint64_t left = size; left > 0 && error == 0;) {
		size_t some = left < sizeof piece ? (size_t)left : sizeof piece;
		error = cell_read(piece, some);
		left -= some;
	}
	return error;
}

/* What is in the cell ends before anything is said of it: a result means that nothing of the call runs. */
static void serve(struct cell *cell) {
	struct cell_request request;
	struct cell_outcome outcome;
	int error = take_request(cell, &request);
	if (error != 0) {
		bool clean = leave(cell);
		/* An edge that needs no call any more closes the stream. */
		if (error != EPIPE) refuse(error);
		_exit(clean ? 0 : EXIT_UNCLEAN);
	}
	uint64_t unread = cell_pump(cell, &request, &outcome);
	bool clean = outcome.ended;
	error = cell_files_give(cell, &request);
	munmap((void *)request.argv, request.argv_size + request.env_size + request.wanted_size);
	if (error == 0) send_end(&outcome, clean);
	/* Also what the cgroups are removed for: it fails while anybody is in them. */
	if (!clean || error != 0 || cell_stopped || --cell->calls_left == 0 || skip(unread) != 0) _exit(leave(cell) && clean ? 0 : EXIT_UNCLEAN);
}

/* The place of the next call, with its program where that is there before. */
static int prepare(struct cell *cell, const struct start *start) {
	int error = cell_cgroups_ready(cell);
	if (error == 0) error = cell_room_open(cell);
	if (error == 0) error = cell_open_ends(cell);
	return error == 0 ? cell_program_ready(cell, start) : error;
}

static void stop(int number) {
	(void)number;
	if (!cell_stopped) close(0);
	cell_stopped = 1;
}

static int begin(struct cell *cell) {
	/* Without SA_RESTART: whatever it waits for, it ends the cell first. */
	struct sigaction stopping = {.sa_handler = stop};
	prctl(PR_SET_NAME, "dsec-keeper");
	sigaction(SIGTERM, &stopping, NULL);
	snprintf(cell->name, sizeof cell->name, "c%d", getpid());
	cpu_set_t processors;
	cell->processors = sched_getaffinity(0, sizeof processors, &processors) == 0 ? CPU_COUNT(&processors) : 1;
	cell->self_fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	return cell->self_fd < 0 || unshare(CLONE_NEWNS) != 0 ? errno : 0;
}

void cell_main(const struct options *options, const struct start *start, const struct identity *identity, int report) {
	static struct cell cell;
	cell = (struct cell){.options = options, .uid = identity->uid, .cwd = start->cwd, .space = -1, .work = -1, .init_fd = -1};
	cell.served = cell.go = cell.watch = cell.init_socket = -1;
	cell.space_bytes = start->length;
	cell.calls_left = start->offset;
	int error = begin(&cell);
	if (error == 0) error = prepare(&cell, start);
	if (error != 0) fail(&cell, report, error);
	close(report);
	for (;;) {
		serve(&cell);
		cell_forget(&cell);
		cell.uid++;
		error = cell_space_close(&cell);
		if (error == 0) error = prepare(&cell, start);
		/* Nothing was left of the call before: whoever needs another cell makes one. */
		if (error != 0) _exit(leave(&cell) ? 0 : EXIT_UNCLEAN);
		cell_send(PART_READY, NULL, 0);
		cell_out_flush();
	}
}

/* The keeper of a cell, from an empty room to the result of one call. */
#include "cell.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "bytes.h"
#include "spawner.h"

#define END_BYTES 36u
/* The container is not what it was: it must not be used again. */
#define EXIT_UNCLEAN 70

static _Noreturn void fail(struct cell *cell, int report, int error) {
	struct report message = {.stage = STAGE_CELL, .value = error};
	cell_end(cell);
	cell_cgroups_remove(cell);
	ssize_t ignored = write(report, &message, sizeof message);
	(void)ignored;
	_exit(127);
}

/* The words stay mapped until the process ends. */
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
}

static void refuse(int error) {
	uint8_t number[4];
	put32(number, (uint32_t)error);
	cell_send(PART_REFUSED, number, sizeof number);
}

/* What is in the cell ends before anything is said of it: a result means that nothing of the call is left. */
static _Noreturn void serve(struct cell *cell) {
	struct cell_request request;
	struct cell_outcome outcome;
	int error = take_request(cell, &request);
	if (error != 0) {
		bool clean = cell_end(cell) == 0 && cell_cgroups_remove(cell) == 0;
		/* An edge that needs no call any more closes the stream. */
		if (error != EPIPE) refuse(error);
		_exit(clean ? 0 : EXIT_UNCLEAN);
	}
	cell_pump(cell, &request, &outcome);
	bool clean = cell->init == 0 && cell_cgroups_remove(cell) == 0;
	if (cell_files_give(cell, &request) == 0) send_end(&outcome, clean);
	_exit(clean ? 0 : EXIT_UNCLEAN);
}

static void stop(int number) {
	(void)number;
	cell_stopped = 1;
}

void cell_main(const struct options *options, const struct start *start, const struct identity *identity, int report) {
	static struct cell cell;
	cell = (struct cell){.options = options, .uid = identity->uid, .cwd = start->cwd, .space = -1, .work = -1, .init_fd = -1};
	cell.served = cell.go = cell.watch = -1;
	prctl(PR_SET_NAME, "dsec-keeper");
	/* Without SA_RESTART: whatever it waits for, it ends the cell first. */
	struct sigaction stopping = {.sa_handler = stop};
	sigaction(SIGTERM, &stopping, NULL);
	snprintf(cell.name, sizeof cell.name, "c%d", getpid());
	int error = cell_cgroups_make(&cell);
	if (error == 0) error = cell_make_room(&cell, start->length);
	if (error == 0) error = cell_open_ends(&cell);
	if (error == 0) error = cell_program_ready(&cell, start);
	if (error != 0) fail(&cell, report, error);
	close(report);
	serve(&cell);
}
